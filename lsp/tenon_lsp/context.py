"""The window: which text around a place the engine is given, within a budget of characters.

What fits is given as it stands. What does not is folded as an editor folds it: the text next to the place stays whole;
of what is farther above it the headers around the place, the imports and, where room is left, the signatures beside it
stay, in the order of the document, with a comment line where something was left out.

The contiguous text begins where a block of characters does, and nothing above it depends on what is being typed, so
that from one key to the next the window only grows at its end and the engine's context cache holds.

Does not know tokens (but for how many characters one has), other files, or requests.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tree_sitter

from tenon_lsp.languages import LANGUAGES
from tenon_lsp.place import Place
from tenon_lsp.syntax import Scope, Syntax

CHARACTERS_PER_TOKEN = 3.1  # measured: nine of ten windows of real code have more, half have more than 3.9

_BLOCKS = 10  # of a budget: the contiguous text's start moves from one to the next
_NEAR_BLOCKS = 3  # within so many the start of a line is looked for
_FOLDED_PART = 3  # one in so many characters of a prefix may go to what is kept of the text farther above
_HEADER_LINES_MAX = 8  # of a longer header, the first line alone
_INDENTATION_LINES_MAX = 2000  # so far up are headers looked for by their indentation
_TOP_NODES_MAX = 200  # so far down are imports looked for
_SIGNATURES_MAX = 8
_SIBLINGS_MAX = 64  # so far up are signatures looked for, at each level
_CAPTION_LINES_MAX = 4  # of the prose above a fence

_SOLID = re.compile(r"\S")
_LINE_END = re.compile(r"\r\n|\r|\n")
_CLOSERS = (")", "]", "}")
_FENCES = ("```", "~~~")

Span = tuple[int, int]  # whole lines, in offsets of the document


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """How much text an engine takes."""

    prefix_characters: int
    suffix_characters: int
    extra_characters: int

    @staticmethod
    def of(prefix_tokens: int, suffix_tokens: int, extra_tokens: int) -> Budget:
        """What so many tokens hold of nearly any code, so that the engine seldom has to cut."""
        counts = (prefix_tokens, suffix_tokens, extra_tokens)
        return Budget(*(math.floor(count * CHARACTERS_PER_TOKEN) for count in counts))


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """What the engine is told of a place; `path` is None where a file's name would mislead or there is none."""

    prefix: str
    suffix: str
    path: str | None
    language: str  # LSP id


def window(place: Place, budget: Budget, folders: Sequence[Path] = ()) -> Window:
    """The text around `place` within `budget`; its path is told from the innermost of `folders` around it."""
    return Window(
        prefix=_prefix(place, budget.prefix_characters),
        suffix=_suffix(place, budget.suffix_characters),
        path=_path(place, folders),
        language=place.language,
    )


def _prefix(place: Place, budget: int) -> str:
    spare, block = budget - place.region.inside(place.start), max(budget // _BLOCKS, 1)
    if spare < 0:
        return _folded(place, budget, block)
    return _before_region(place, spare // block * block) + place.prefix


def _folded(place: Place, budget: int, block: int) -> str:
    """What is kept of the text farther above, then the contiguous text."""
    room = budget // _FOLDED_PART
    start = _start(place, budget - room, block)
    spans = _kept(place, start, room)
    spare = (room - len(_fold(place, spans, start))) // block * block
    if spare:  # whole blocks, so that both starts move at the same key
        start = _start(place, budget - room + spare, block)
    return _fold(place, spans, start) + place.snapshot.text.source[start : place.start]


def _start(place: Place, room: int, block: int) -> int:
    """Where a line begins, near the first block that leaves at most `room`; in a long line, where the block begins."""
    begin = place.region.start
    at = begin + max(0, -(-(place.start - room - begin) // block) * block)
    starts = place.snapshot.text.line_starts
    following = bisect.bisect_left(starts, at)
    is_near = following < len(starts) and starts[following] <= min(at + _NEAR_BLOCKS * block, place.start)
    return starts[following] if is_near and at > begin else at


def _kept(place: Place, start: int, room: int) -> list[Span]:
    """Lines above `start` that are worth their room: the innermost header first, then imports, then signatures."""
    kept: list[Span] = []

    def keep(spans: Iterable[Span], limit: int) -> None:
        for span in spans:
            if span[0] >= start or span[1] - span[0] > limit:
                continue
            if len(_fold(place, [*kept, span], start)) > limit:
                return
            kept.append(span)

    keep(_headers(place), room)
    used = len(_fold(place, kept, start))
    keep(_imports(place), used + (room - used) * 2 // 3)
    keep(itertools.islice(_signatures(place, start), _SIGNATURES_MAX), room)
    return kept


def _fold(place: Place, spans: Iterable[Span], start: int) -> str:
    """The text of `spans` before `start`, with a line where other text was left out between or after them."""
    source, pieces, reached = place.snapshot.text.source, list[str](), place.region.start
    for begin, end in (*sorted(spans), (start, start)):
        begin, end = max(begin, reached), min(end, start)
        left_out = _SOLID.search(source, reached, max(begin, reached))
        if pieces and left_out:
            pieces.append(_ellipsis(place, left_out.start()))
        if end > begin:
            pieces.append(source[begin:end])
        reached = max(reached, end)
    return "".join(pieces)


def _ellipsis(place: Place, at: int) -> str:
    """The line that stands for text which begins at `at`: a comment, or a blank line where there are none."""
    text, comment = place.snapshot.text, _line_comment(place)
    line_start = text.line_starts[text.line_of(at)]
    return (f"{text.source[line_start:at]}{comment} ..." if comment else "") + _line_end(place)


def _headers(place: Place) -> list[Span]:
    """Of what encloses the place, innermost first: by the tree, and by indentation, which survives a broken one."""
    syntax, offset = place.region.syntax, place.region.inside(place.start)
    if _is_prose(place):  # a section goes on until the next one: blank lines at its end are in it
        offset = _solid_end(place, place.region.start) - 1
    scopes = syntax.scopes(max(offset, 0)) if syntax else ()
    spans = {_header(place, scope) for scope in scopes}
    return sorted(spans.union(_indented_headers(place)), reverse=True)


def _header(place: Place, scope: Scope) -> Span:
    """The lines of a scope's header, with the brace that opens its body."""
    text, begin = place.snapshot.text, place.region.start
    first, last = text.line_of(begin + scope.start), text.line_of(begin + scope.body_start)
    body_start = begin + scope.body_start
    is_body_line = not text.source[text.line_span(last)[0] : body_start].strip()
    if is_body_line and not text.source.startswith("{", body_start):
        last -= 1
    if scope.body_start == scope.end or not first <= last < first + _HEADER_LINES_MAX:
        last = first
    return _lines(place, first, last)


def _indented_headers(place: Place) -> Iterator[Span]:
    """Lines above the place that are each indented less than everything between them and the place."""
    text = place.snapshot.text
    line = text.line_of(place.start)
    first = max(text.line_of(place.region.start), line - _INDENTATION_LINES_MAX)
    limit = _indentation(place.before)
    while limit and (line := line - 1) >= first:
        content = text.line(line)
        indentation = _indentation(content)
        if indentation < limit and indentation < len(content):
            is_closing = content.startswith(_CLOSERS, indentation)
            limit = indentation + is_closing  # what it closes begins at the same indentation
            if not is_closing or content.startswith("}", indentation):  # `} else {` is a header
                yield _lines(place, line, line)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _imports(place: Place) -> Iterator[Span]:
    """The last first: those of the project itself mostly come last."""
    syntax = place.region.syntax
    if syntax is None:
        return
    tops = itertools.islice(_children(syntax.outline.root_node), _TOP_NODES_MAX)
    nodes = itertools.chain.from_iterable(_children(top) if top.is_error else (top,) for top in tops)
    for node in reversed([node for node in nodes if node.type in syntax.language.imports]):
        start, end = syntax.span(node)
        yield _lines_of(place, start, max(end - 1, start))


def _signatures(place: Place, start: int) -> Iterator[Span]:
    """Headers of what ends above `start` beside the place or beside what encloses it, the nearest first.

    Looked for from `start` upwards: the tree changes less there than at the place, where text is unfinished.
    """
    syntax = place.region.syntax
    if syntax is None:
        return
    begin, solid = place.region.inside(start), _solid_end(place, start)
    around = {node.id for node in _walk(syntax.node_at(max(solid - 1, 0), solid), "parent")}
    for node in _walk(syntax.node_at(begin, begin + 1), "parent"):
        if node.parent is None or node.parent.id not in around:
            continue
        for sibling in itertools.islice(_walk(node, "prev_named_sibling"), _SIBLINGS_MAX):
            if syntax.span(sibling)[1] <= begin:
                yield from (_header(place, scope) for scope in _scope_of(syntax, sibling))


def _scope_of(syntax: Syntax, node: tree_sitter.Node) -> tuple[Scope, ...]:
    """The scope that `node` is, or that it wraps as an export or a decoration does."""
    language = syntax.language
    nodes = itertools.chain((node,), () if node.type in language.blocks else _children(node))
    found = next((each for each in nodes if each.type in language.scopes), None)
    return syntax.scopes(syntax.span(found)[0] + 1)[-1:] if found else ()


def _children(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    return _walk(node.named_child(0) if node.named_child_count else None, "next_named_sibling")


def _walk(node: tree_sitter.Node | None, onward: str) -> Iterator[tree_sitter.Node]:
    """One node after the other: the list of all children takes long to make in a large file."""
    while node is not None:
        yield node
        node = getattr(node, onward)


def _solid_end(place: Place, start: int) -> int:
    """The end of the last thing between `start` and the place that is no space, in the region."""
    return place.region.inside(start + len(place.snapshot.text.source[start : place.start].rstrip()))


def _lines_of(place: Place, start: int, end: int) -> Span:
    """The lines that hold the region's `[start:end]`."""
    first, last = (place.snapshot.text.line_of(place.region.start + offset) for offset in (start, end))
    return _lines(place, first, last)


def _lines(place: Place, first: int, last: int) -> Span:
    """The span of whole lines, both included, with the line end, within the region."""
    starts, region = place.snapshot.text.line_starts, place.region
    end = starts[last + 1] if last + 1 < len(starts) else region.end
    return max(starts[first], region.start), min(end, region.end)


def _before_region(place: Place, room: int) -> str:
    """What belongs before the region's own text, the end of it: earlier cells of a notebook, a fence's caption."""
    found = ""
    for text in _earlier_texts(place):
        if len(found) + len(text) > room:
            return _last_lines(text, room - len(found)) + found
        found = text + found
    return found


def _earlier_texts(place: Place) -> Iterator[str]:
    """Nearest first, each with the line ends that part it from what follows."""
    line_end = _line_end(place)
    if not place.region.is_whole:
        lines = _caption(place)
        if lines and (comment := _line_comment(place)):
            yield _marked(lines, f"{comment} ", line_end) + line_end
        return
    is_prose = _is_prose(place)
    other_mark = "    " if is_prose else f"{_line_comment(place)} ".lstrip()
    for cell in reversed(place.snapshot.cells):
        is_other = cell.is_code is is_prose
        if cell.text.strip() and (other_mark or not is_other):
            lines = _LINE_END.split(cell.text.rstrip())
            yield _marked(lines, other_mark if is_other else "", line_end) + line_end * 2


def _marked(lines: Sequence[str], mark: str, line_end: str) -> str:
    return line_end.join(f"{mark}{line}".rstrip() if mark else line for line in lines)


def _caption(place: Place) -> list[str]:
    """The lines of prose just above a fence."""
    text, row = place.snapshot.text, LANGUAGES.get(place.snapshot.language)
    above = range(text.line_of(place.region.start) - 2, -1, -1) if row and row.is_prose else ()
    lines = itertools.dropwhile(lambda line: not line, (text.line(line).strip() for line in above))
    caption = itertools.takewhile(lambda line: line and not line.startswith(_FENCES), lines)
    return [*itertools.islice(caption, _CAPTION_LINES_MAX)][::-1]


def _last_lines(text: str, room: int) -> str:
    """The last whole lines of `text` that fit into `room`."""
    cut = len(text) - room
    found = _LINE_END.search(text, cut - 1) if room > 0 else None
    return text[found.end() :] if found else ""


def _suffix(place: Place, budget: int) -> str:
    """Up to the end of an enclosing scope if that keeps half of the budget, else of a line, else of the budget."""
    text, syntax, at, least = place.snapshot.text, place.region.syntax, place.end, place.end + budget // 2
    end = at + budget
    if end >= place.region.end:
        return place.suffix
    scopes = syntax.scopes(place.region.inside(at)) if syntax else ()
    ends = [stop for stop in (_lines_of(place, scope.end, scope.end)[1] for scope in scopes) if stop <= end]
    best = max((*ends, at))
    if best <= least:
        best = text.line_starts[text.line_of(end)]
    if best <= least:
        best = end - (text.source[end - 1 : end + 1] == "\r\n")
    return text.source[at:best]


def _path(place: Place, folders: Sequence[Path]) -> str | None:
    """Below the innermost folder, or the bare name. None for a fence or a script: the name tells another language."""
    path = place.snapshot.path
    if path is None or not place.region.is_whole:
        return None
    around = [folder for folder in folders if path.is_relative_to(folder)]
    return path.relative_to(max(around, key=lambda folder: len(folder.parts), default=path.parent)).as_posix()


def _is_prose(place: Place) -> bool:
    row = LANGUAGES.get(place.language)
    return row is not None and row.is_prose


def _line_comment(place: Place) -> str:
    row = LANGUAGES.get(place.language)
    return row.line_comment if row else ""


def _line_end(place: Place) -> str:
    """The document's line end, as its first line has it."""
    found = _LINE_END.search(place.snapshot.text.source)
    return found[0] if found else "\n"
