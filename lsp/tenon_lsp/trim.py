"""Trim: the engine's fill made to fit what only the language server knows: tree, block, region and line ends.

The engine has fitted the text already (indentation, echo, brackets). The rules here cut, one after the other, until
none of them changes anything; so what they leave, trimmed again, stays as it is. It is '', or

* a prefix of the fill (in markdown, without a marker that stands there already), in the document's line ends,
  perhaps with closers for the brackets that it leaves open;
* free of new parse errors: no more of them than without it, or with a name in its place (in a large document: than in
  the code near by);
* where it has several lines, inside the block, the definition and the region in which it begins;
* no echo of what follows it, and no control text.

Knows no engine, no settings and no requests.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import tree_sitter

from tenon_engine import line_ends
from tenon_lsp import languages, markup
from tenon_lsp.brackets import closed, surplus
from tenon_lsp.excerpt import without
from tenon_lsp.place import Place
from tenon_lsp.syntax import Syntax

SYNTAX = "syntax"  # the reason of what was cut because it did not parse

_TRIES_AT_MOST = 10  # of shorter pieces, each of which is parsed
_PASSES_AT_MOST = 8
_BELOW_CHARACTERS = 16_384  # how far an echo is looked for

_NAME = "x"

_LINE_END = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"\w")
_CONTROL = re.compile(
    r"<[|\uff5c][^|<>\s]*[|\uff5c]>|<fim_\w+>|[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd\ud800-\udfff]"
)
_CUT_IN_LINE = re.compile(r"(?=[)\]};])|(?<=[)\]};])")
_CLOSERS = re.compile(r"[\s)\]};,]*")
_CLOSERS_LINE = re.compile(r"\s*[)\]}]+[;,]?\s*")
_LINE_REST = re.compile(r"[ \t]*[;,]?")
_FENCE = re.compile(r"`{3,}|~{3,}|---|\+\+\+")


@dataclasses.dataclass(frozen=True, slots=True)
class Trimmed:
    """What is left of a fill, and which rule cut it; where several did, the last one in their order."""

    text: str
    reason: str


def trim(text: str, place: Place, *, one_line: bool) -> Trimmed:
    """`text` as it may stand at `place`; '' when nothing of it is worth showing."""
    return _trim(text, _Ground(place, one_line=one_line))


def best(
    candidates: Sequence[tuple[str, float]], place: Place, *, one_line: bool, min_confidence: float
) -> list[tuple[str, float]]:
    """The different texts that are left of sure enough candidates: first those that parsed, then by confidence."""
    ground = _Ground(place, one_line=one_line)
    ranked = sorted(candidates, key=lambda candidate: -candidate[1])
    trimmed = [(_trim(text, ground), sure) for text, sure in ranked if sure >= min_confidence]
    trimmed.sort(key=lambda each: each[0].reason == SYNTAX)
    found: dict[str, float] = {}
    for each, confidence in trimmed:
        if each.text:
            found.setdefault(each.text, confidence)
    return list(found.items())


def _trim(text: str, ground: _Ground) -> Trimmed:
    piece = line_ends.to_lf(text)
    fired: set[str] = set()
    for _ in range(_PASSES_AT_MOST):
        changed = _apply(piece, ground, fired)
        is_done, piece = changed == piece, changed
        if is_done:
            break
    shown = piece.replace("\n", ground.line_end) if is_done and piece.strip() else ""
    if shown != text:
        fired.add("line-ends" if shown else "blank")
    return Trimmed(shown, max(fired, key=_ORDER.index, default=""))


def _apply(text: str, ground: _Ground, fired: set[str]) -> str:
    for reason, rule in _RULES:
        changed = rule(text, ground) if text.strip() else text
        if changed != text:
            fired.add(reason)
        text = changed
    return text


class _Ground:
    """A place as the rules see it, and the trees of what was tried there. A fill has LF, a tree the document's ends."""

    def __init__(self, place: Place, *, one_line: bool) -> None:
        self.place = place
        self.one_line = one_line
        self.before, self.after = place.before, place.after
        self.line_end = place.line_end
        row = languages.find(place.language)
        self.is_prose = row is not None and row.is_prose
        self.start = place.region.inside(place.start)
        self._filled: dict[str, Syntax] = {}  # by fill; never any without the one of ''
        if place.region.syntax and not self.is_prose:
            end = place.region.inside(place.end)
            self._filled[""], self.start = without(place.region.syntax, self.start, end)

    @functools.cached_property
    def below(self) -> list[str]:
        """The lines below that say something, without space at their ends."""
        near = self.place.suffix[len(self.after) : len(self.after) + _BELOW_CHARACTERS]
        return _spoken(_LINE_END.split(near)[1:])

    def filled(self, text: str) -> Syntax | None:
        """The tree with `text` in the place."""
        if self._filled and text not in self._filled:
            new = text.replace("\n", self.line_end)
            self._filled[text] = self._filled[""].edited(self.start, self.start, new)
        return self._filled.get(text)

    def errors(self, text: str) -> tuple[int, bool]:
        """How much does not parse with `text` in the place, and whether anything; there are errors without a node."""
        filled = self.filled(text)
        return (len(filled.errors), filled.tree.root_node.has_error) if filled else (0, False)

    @functools.cached_property
    def allowed(self) -> tuple[int, bool]:
        """How much need not parse. Where something is missing (`x = `), a name shows what is wrong besides."""
        without_it = self.errors("")
        return min(without_it, self.errors(_NAME)) if any(without_it) else without_it

    def kept(self, text: str, end: int) -> str:
        """`text[:end]` without the space at its end; a tail that has a line of its own keeps it."""
        piece = text[:end].rstrip()
        line_start = text.rfind("\n")
        ends_line = line_start >= 0 and not text[line_start:].strip() and self.after.strip()
        return piece + text[line_start:] if piece and ends_line else piece


def _cut_control(text: str, _: _Ground) -> str:
    found = _CONTROL.search(text)
    return text[: found.start()] if found else text


def _cut_lines(text: str, ground: _Ground) -> str:
    return text.partition("\n")[0].rstrip() if ground.one_line and "\n" in text else text


def _cut_region_end(text: str, ground: _Ground) -> str:
    """Up to the line that would end a fence or front matter, or the tag that would end a script or style."""
    region, snapshot = ground.place.region, ground.place.snapshot
    if region.is_whole:
        return text
    pattern = r"</(?:script|style)\b"
    if snapshot.language == "markdown":
        opening = _FENCE.search(snapshot.text.line(snapshot.text.line_of(region.start) - 1))
        pattern = rf"^[ \t>]*{re.escape(opening.group())}" if opening else r"(?!)"
    found = re.search(pattern, ground.before + text, re.MULTILINE)
    return text if found is None else ground.kept(text, max(found.start() - len(ground.before), 0))


def _cut_markup(text: str, ground: _Ground) -> str:
    return markup.cut(text, ground.place)


def _cut_left_block(text: str, ground: _Ground) -> str:
    """Several lines up to where they leave the block, or the definition, that they begin in."""
    if "\n" not in text.rstrip() or ground.is_prose:
        return text
    if filled := ground.filled(text):
        text = _cut_by_tree(_Fill(text, filled, ground))
        if not (filled.language.is_indented and any(ground.errors(""))):
            return text
    return _cut_by_indentation(text, ground)  # no tree says where blocks end, or one that is damaged


@dataclasses.dataclass(frozen=True, slots=True)
class _Fill:
    """A fill of several lines in its tree."""

    text: str
    tree: Syntax
    ground: _Ground

    def span(self, node: tree_sitter.Node) -> tuple[int, int]:
        """Start and end of a node in the fill: negative before it, past its length behind it."""
        return self._inside(self.tree.span(node)[0]), self._inside(self.tree.span(node)[1])

    def _inside(self, offset: int) -> int:
        start = self.ground.start
        if offset <= start:
            return offset - start
        return len(self.tree.source[start:offset].replace(self.ground.line_end, "\n"))

    def is_around(self, node: tree_sitter.Node) -> bool:
        """Whether the place is inside of a block, of which the fill goes on to say something."""
        if node.type not in self.tree.language.blocks or not node.children:
            return False
        (start, end), first, last = self.span(node), node.children[0], node.children[-1]
        if start == 0:  # a body without a mark before it
            return not self.ground.before.strip() and not _is_mark(first)
        if _is_mark(last) and not self.text[: max(self.span(last)[0], 0)].strip():
            return False
        return start < 0 and not self._is_of_this_line(start, end)

    def definition_end(self, node: tree_sitter.Node) -> int:
        """The end of the statement that defines `node`, which the place is inside of; 0 where it is none."""
        start, end = self.span(node)
        if node.type in self.tree.language.scopes and start < 0 and not self._is_of_this_line(start, end):
            for _ in range(3):  # an export, a declaration, a decorator around it
                outer = node.parent
                if outer is None or outer.parent is None or outer.type in self.tree.language.blocks:
                    return self.span(node)[1]
                node = outer
        return 0

    def _is_of_this_line(self, start: int, end: int) -> bool:
        return start >= -len(self.ground.before) and end <= self.text.find("\n")


def _cut_by_tree(fill: _Fill) -> str:
    text, length = fill.text, len(fill.text.rstrip())
    node: tree_sitter.Node | None = fill.tree.node_at(fill.ground.start)
    while node is not None and fill.span(node)[1] < length:
        if fill.is_around(node):
            return _cut_at_block_end(fill, node)
        if end := fill.definition_end(node):
            end = _end(_LINE_REST, text, end)
            return fill.ground.kept(text, end) if text[_end(_CLOSERS, text, end) :] else text
        node = node.parent
    return text


def _cut_at_block_end(fill: _Fill, block: tree_sitter.Node) -> str:
    """Up to the end of `block`: before what closes it, or behind where that leaves fewer errors."""
    text, ground = fill.text, fill.ground
    inner = outer = fill.span(block)[1]
    if _is_mark(block.children[-1]):
        inner = fill.span(block.children[-1])[0]
    elif block.next_sibling is not None and _is_mark(block.next_sibling):
        outer = fill.span(block.next_sibling)[1]
    behind = _end(_CLOSERS, text, outer)
    if not text[behind:]:
        return text
    pieces = [ground.kept(text, end) for end in (inner, outer, behind)]
    if surplus(text) > 0:  # the fill closes more than it opens: it was needed, if errors do not tell
        pieces.reverse()
    return min(pieces, key=ground.errors) if inner < outer else pieces[0]


def _cut_by_indentation(text: str, ground: _Ground) -> str:
    """Up to the first line that stands further left than the fill's first one; closers that it needs may follow."""
    lines = text.split("\n")
    filled = [(index, line) for index, line in enumerate(lines) if line.strip() or not index]
    level = (
        _columns(ground.before + lines[0]) if (ground.before + lines[0]).strip() else _columns(filled[1][1])
    )
    has_left = False
    for index, line in filled[1:]:
        has_left = has_left or _columns(line) < level
        if has_left and not (_CLOSERS_LINE.fullmatch(line) and surplus(text) > 0):
            return ground.kept(text, len("\n".join(lines[:index])))
    return text


def _cut_echo(text: str, ground: _Ground) -> str:
    """Without the rest of the line, or whole lines below, at its end. Closers alone are no echo."""
    tail = ground.after.rstrip()
    if tail:
        piece = text.rstrip().removesuffix(tail)
        is_echo = len(piece) < len(text.rstrip()) and _WORD.search(tail)
        is_another_depth = not piece.strip() and tail[0].isspace()
        is_drawing = len(set(tail)) == 1 and (ground.before + piece).endswith(tail[0])
        return piece if is_echo and not (is_another_depth or is_drawing or surplus(piece) < 0) else text
    lines = text.split("\n")
    whole = [ground.before + lines[0], *lines[1:]]
    for index in range(1 if ground.before.strip() else 0, len(whole)):
        again = _spoken(whole[index:])
        if any(map(_WORD.search, again)) and again == ground.below[: len(again)]:
            return ground.kept(text, len("\n".join(lines[:index])))
    return text


def _cut_errors(text: str, ground: _Ground) -> str:
    """The longest piece that parses as well as the document does without it, or with a name in its place."""
    if ground.errors(text) <= ground.allowed:
        return text
    pieces = itertools.islice(filter(None, _pieces(text, ground)), _TRIES_AT_MOST)
    return next((piece for piece in pieces if ground.errors(piece) <= ground.allowed), "")


def _pieces(text: str, ground: _Ground) -> Iterator[str]:
    """What to try, longest first: ends of lines, also with brackets closed, then brackets of the first line."""
    for end in [len(text), *(found.start() for found in reversed([*re.finditer("\n", text)]))]:
        piece = ground.kept(text, end)
        yield piece
        yield "" if ground.after.strip() else closed(piece, ground.before)
    first = text.partition("\n")[0]
    for found in reversed([*_CUT_IN_LINE.finditer(first)]):
        yield first[: found.start()].rstrip()


_RULES: tuple[tuple[str, Callable[[str, _Ground], str]], ...] = (
    ("control", _cut_control),
    ("one-line", _cut_lines),
    ("region", _cut_region_end),
    ("markup", _cut_markup),
    ("block", _cut_left_block),
    ("echo", _cut_echo),
    (SYNTAX, _cut_errors),
)
_ORDER = ("blank", "line-ends", *(reason for reason, _ in _RULES))


def _is_mark(node: tree_sitter.Node) -> bool:
    """Whether a node only begins or ends another one."""
    return not node.is_named or node.type in ("start_tag", "end_tag")


def _spoken(lines: Iterable[str]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()]


def _columns(line: str) -> int:
    return len(line[: len(line) - len(line.lstrip())].expandtabs(4))


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start
