"""A fill in markdown, cut until it breaks nothing around it.

The rules run one after the other, until none of them changes anything. Knows no comments of code and no engine.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator

from tenon_lsp.markup import blocks
from tenon_lsp.markup.blocks import Role, State
from tenon_lsp.markup.inline import left_open, marks, unmatched
from tenon_lsp.place import Place

_LINES_ABOVE_AT_MOST = 200  # a block that is longer is read from its middle
_LINES_BELOW_AT_MOST = 40
_PARAGRAPH_CHARACTERS_AT_MOST = 1_000  # on either side of the place
_SENTENCES_TRIED = 8  # as where to begin to read a longer paragraph

# A gap is taken whole or not at all: long ones would else be tried at every length.
_GAP = r"(?:(?<=[ \t])|[ \t]+)"
_START = re.compile(
    r"(?P<quote>(?:[ \t]*>)+)?[ \t]*(?![ \t])(?P<marker>[-+*]|\d{1,9}[.)]|#{1,6})?"
    rf"(?:{_GAP}(?P<task>\[[ xX]\]))?[ \t]*"
)
_LONE_MARKER = re.compile(
    rf"[ \t>]*(?![ \t>])(?:[-+*]|\d{{1,9}}[.)]|#{{1,6}}|\|)?(?:{_GAP}\[[ xX]?\]?)?[ \t]*"
)
_INDENT_OF_CODE = re.compile(r" {0,3}\t[ \t]*| {4}[ \t]*")
_TARGET = re.compile(r"[^\s)]*(?=\s+(?![\s\"'(]))")  # of a link, up to where it has a space
_DANGLING = re.compile(r"(?:^|(?<=[\s(]))[*_~`\[]+\Z")  # the first half of a mark that is cut in two
_ORDERED = r"\d{1,9}[.)](?=[ \t]|$)"
_BULLET = r"[-+*](?=[ \t]|$)"
_HASHES = r"#{1,6}(?=[ \t]|$)"


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """The lines around a place, as far as they matter to a fill."""

    above: State  # behind the last line above
    before: str
    after: str
    below: tuple[str, ...]  # up to the line behind the first one that is not blank
    is_titled_below: bool  # whether a heading with an underline begins right below
    paragraph: tuple[str, str]  # what is read together with the place's line: before it, and after it
    place: Place

    @staticmethod
    def of(place: Place) -> Surroundings:
        """The surroundings of a place in a markdown region."""
        prefix, suffix = place.prefix, place.suffix
        line_start = prefix.rfind("\n") + 1
        start = _block_start(place, prefix, line_start)
        above = [line.rstrip("\r") for line in prefix[start:line_start].split("\n")[:-1]]
        after, *below = _first_lines(suffix)
        before = prefix[line_start:]
        joined = list(_paragraph_lines(below))
        further = below[1 : len(joined) + 1] if joined else []
        return Surroundings(
            above=blocks.fold(State(), above),
            before=before,
            after=after,
            below=tuple(below[: _first_solid(below) + 2]),
            is_titled_below=any(blocks.is_underline(blocks.read(line)) for line in further),
            paragraph=(
                _paragraph_before(above, before),
                "\n".join([after, *joined])[:_PARAGRAPH_CHARACTERS_AT_MOST],
            ),
            place=place,
        )

    @property
    def is_in_front(self) -> bool:
        """Whether the place stands in front of all that its line has, which is more than text."""
        return not self.before.strip() and bool(self.after.strip()) and blocks.begins_block(self.after)

    @property
    def is_heading(self) -> bool:
        """Whether the line is a heading, with the place in its text."""
        line = blocks.read(self.before)
        if not self.above.raw_end and line.body.startswith("#") and blocks.is_heading(line):
            return True
        here, _ = blocks.step(self.above, self.before + self.after)
        return bool(here.role is Role.TEXT and self.below) and _role_of(here, self.below[0]) is Role.UNDERLINE

    @property
    def is_row(self) -> bool:
        """Whether the line is a row of a table, with the place in one of its cells."""
        if not self.before.strip() or self.above.raw_end or self.is_in_front:
            return False
        here, _ = blocks.step(self.above, self.before + self.after)
        is_header = bool(self.below) and _role_of(here, self.below[0]) is Role.ROW
        return here.role is Role.ROW or is_header or blocks.read(self.before).body.startswith("|")


Rule = Callable[[str, Surroundings], str]


def cut_markdown(text: str, place: Place) -> str:
    """The piece of `text` that may stand at a place in a markdown region."""
    around = Surroundings.of(place)
    shorter = _apply(text, around)
    while shorter != text:
        text, shorter = shorter, _apply(shorter, around)
    return text


def _apply(text: str, around: Surroundings) -> str:
    for rule in _RULES:
        text = rule(text, around)
    return text


def _cut_repeated_start(text: str, around: Surroundings) -> str:
    """Without the markers that stand in front of the place already."""
    start = _START.fullmatch(around.before)
    if start is None:
        return text
    marker = start["marker"] or ""
    has_gap = around.before[-1:].isspace()
    if not marker.strip("#") and not has_gap:
        marker = ""  # the hashes of the fill may be the rest of these
    again = (
        start["quote"] and r"(?:[ \t]*>)+",
        marker and (_HASHES if marker[0] == "#" else _ORDERED if marker[-1] in ".)" else _BULLET),
        start["task"] and r"\[[ xX]\](?=[ \t]|$)",
    )
    at = 0
    for pattern in filter(None, again):
        found = re.compile(r"[ \t]*" + pattern, re.MULTILINE).match(text, at)
        at = found.end() if found else at
    return text[at:].lstrip(" \t") if at and has_gap else text[at:]


def _cut_to_shape(text: str, around: Surroundings) -> str:
    """One line in a heading or cell, and where a line's first word, a code span or a link goes on behind the place."""
    if around.is_row:
        return _cut_row(text.partition("\n")[0], around)
    before = around.before[-_PARAGRAPH_CHARACTERS_AT_MOST:]
    mark = left_open(before)
    if mark == "](" and (target := _TARGET.match(text)):
        return target.group()
    is_at_start = bool(before.strip()) and _START.fullmatch(before)
    is_inside = bool(around.after.strip()) and bool(is_at_start or mark)
    if "\n" in text and (is_inside or around.is_heading):
        return text.partition("\n")[0].rstrip()
    return text


def _cut_row(text: str, around: Surroundings) -> str:
    """Up to the first bar; at the end of a row, up to the bar that would make a cell too many."""
    is_framed = blocks.read(around.before).body.startswith("|")
    allowed = 0
    if not around.after.strip():
        columns = _columns(around)
        if not columns:
            return text
        allowed = columns + (1 if is_framed else -1) - blocks.bars_of(around.before)
        if allowed < 0 or (is_framed and not allowed):
            return ""
    if is_framed and allowed and blocks.bars_of(text) >= allowed:
        return text[: blocks.nth_bar(text, allowed - 1) + 1]
    end = blocks.nth_bar(text, allowed)
    return text if end == len(text) else text[:end].rstrip()


def _columns(around: Surroundings) -> int:
    """How many columns the table has that the place is in; 0 when nothing says it yet."""
    if around.above.columns:
        return around.above.columns
    below = blocks.read(around.below[0]) if around.below else None
    if below and blocks.is_delimiter_row(below):
        return blocks.cells_of(below)
    return (
        around.above.cells if around.above.has_paragraph else 0
    )  # of the row above, whatever table that is in


def _cut_blocks(text: str, around: Surroundings) -> str:
    """The most lines that go on properly, and keep what stands below in its role."""
    lines = text.split("\n")
    after, below = around.after, around.below
    base, _ = blocks.step(around.above, around.before + after)
    if around.is_in_front:  # the place's own line is the first one below
        after, below, base = "", (around.before + after, *below), around.above
    fitting = list(_lines_that_go_on(lines, after, around))
    for count in range(len(fitting), 0, -1):
        whole, behind = fitting[count - 1]
        can_end = lines[count : count + 1] == [around.before] if around.is_in_front else True
        if after.strip():
            is_code = (_INDENT_OF_CODE.fullmatch if around.before.strip() else _INDENT_OF_CODE.match)(whole)
            can_end = behind.role in (base.role, Role.TEXT) and not is_code
        is_lone = not after.strip() and _says_nothing(whole, is_first=count == 1, around=around)
        if can_end and not is_lone and _keeps(behind, base, below, around):
            return _first_of(lines, count, around)
    return ""


def _lines_that_go_on(lines: list[str], after: str, around: Surroundings) -> Iterator[tuple[str, State]]:
    """Each line that goes on properly, with the state behind it if it is the last one."""
    state = around.above
    for index, line in enumerate(lines):
        whole = line if index else around.before + line
        behind, _ = blocks.step(state, whole + after)
        state, is_proper = blocks.step(state, whole)
        if not _goes_on(whole, state, is_proper or (not index and bool(around.before.strip())), around):
            return
        yield whole, behind


def _goes_on(whole: str, state: State, is_proper: bool, around: Surroundings) -> bool:
    """Whether a line of the fill is one that may follow those above it."""
    if state.role is Role.RAW:
        return True
    next_below = next((line for line in around.below if line.strip()), "")
    is_echo = state.role is Role.ITEM and whole.rstrip() == next_below.rstrip()
    quotes = blocks.read(around.before).quotes
    return is_proper and not is_echo and blocks.read(whole).quotes >= quotes


def _says_nothing(whole: str, *, is_first: bool, around: Surroundings) -> bool:
    """Whether a line is a marker without its text, which the fill brings."""
    brings = not is_first or not around.before.strip()
    return brings and bool(whole.strip()) and bool(_LONE_MARKER.fullmatch(whole.rstrip("\r")))


def _first_of(lines: list[str], count: int, around: Surroundings) -> str:
    """The first `count` of a fill's lines, ended so that a block behind the place stays on its own line."""
    piece = "\n".join(lines[:count])
    if around.is_in_front:
        return piece and piece + "\n" + around.before
    return piece if count == len(lines) or around.after.strip() else piece.rstrip()


def _keeps(now: State, base: State, below: tuple[str, ...], around: Surroundings) -> bool:
    """Whether what stands below is what it was, when `now` stands in place of `base` before it."""
    if now.raw_end != base.raw_end:
        rest = around.place.suffix[0 if around.is_in_front else len(around.after) :]
        return blocks.imbalance(rest, now.raw_end) < blocks.imbalance(rest, base.raw_end)
    if around.is_titled_below and now.has_paragraph and not base.has_paragraph:
        return False
    for text, further in itertools.zip_longest(below, below[1:], fillvalue=""):
        line = blocks.read(text)
        if not line.is_blank and not now.raw_end:
            is_split = around.above.role is Role.BLANK and base.role is Role.BLANK
            begins_table = blocks.is_delimiter_row(blocks.read(further))
            return _keeps_line(now, base, line, may_split=is_split, begins_table=begins_table)
        now, base = blocks.fold(now, [text]), blocks.fold(base, [text])
    return True


def _keeps_line(now: State, base: State, line: blocks.Line, *, may_split: bool, begins_table: bool) -> bool:
    """Whether a line below keeps its role, its item and its list; `may_split` where the list may end at the fill."""
    is_so, was = blocks.standing(now, line), blocks.standing(base, line)
    if is_so.role is not was.role:
        mends = is_so.role is Role.ROW and was.role is Role.TEXT  # a table that was torn, or had no header
        if blocks.is_delimiter_row(line):
            return mends and not now.columns
        return mends and not begins_table and is_so.columns == blocks.cells_of(line)
    if (is_so.quotes, is_so.columns) != (was.quotes, was.columns):
        return False
    if is_so.owners != was.owners:  # text indented for an item that the fill brings
        is_orphan = was.role is Role.TEXT and not was.owners and not base.has_paragraph
        return is_orphan and all(level.holds(line) for level in now.levels)
    if is_so.list_id != was.list_id:
        is_next = is_so.list_id is None or blocks.goes_on(now, line)
        return is_next and (may_split or was.list_id is None)
    if is_so.list_id is None or len(line.marker) == 1:
        return True
    number = int(line.marker[:-1])
    last, last_was = (blocks.last_number(state, is_so.list_id) for state in (now, base))
    return last < number or last_was >= number


def _cut_inline(text: str, around: Surroundings) -> str:
    """Up to the first mark that finds no other half, or takes one from the text around."""
    before, after = around.paragraph
    found_before = len(unmatched(before + after))
    for end in [len(text), *reversed(marks(text))]:
        if end < len(text) and _DANGLING.search(text, 0, end):
            continue
        piece = text[:end] if end == len(text) or around.after[:1].strip() else text[:end].rstrip()
        found = unmatched(before + piece + after)
        inside = [each for each in found if len(before) <= each.start < len(before) + len(piece)]
        if not inside and len(found) <= found_before:
            return piece
    return ""


def _block_start(place: Place, prefix: str, line_start: int) -> int:
    """Where the top-level block begins that stands last before the place's line."""
    earliest = line_start
    for _ in range(_LINES_ABOVE_AT_MOST):
        earliest = prefix.rfind("\n", 0, max(earliest - 1, 0)) + 1
    syntax = place.region.syntax
    solid = len(prefix[:line_start].rstrip())
    if syntax is None or not solid:
        return earliest
    node = syntax.node_at(solid - 1, solid)
    while node.parent is not None and node.parent.type not in ("section", "document"):
        node = node.parent
    start = prefix.rfind("\n", 0, syntax.span(node)[0]) + 1
    return max(earliest, start) if start < line_start else earliest


def _first_lines(suffix: str) -> list[str]:
    lines = suffix.split("\n", _LINES_BELOW_AT_MOST + 1)
    return [line.rstrip("\r") for line in lines[: _LINES_BELOW_AT_MOST + 1]]


def _first_solid(lines: list[str]) -> int:
    return next((index for index, line in enumerate(lines) if not blocks.read(line).is_blank), len(lines))


def _paragraph_before(above: list[str], before: str) -> str:
    lines = [before]
    for line in reversed(above):
        if (
            blocks.begins_block(lines[0])
            or not line.strip()
            or sum(map(len, lines)) > _PARAGRAPH_CHARACTERS_AT_MOST
        ):
            break
        lines.insert(0, line)
    return "\n".join(lines)[-_PARAGRAPH_CHARACTERS_AT_MOST:]


def _paragraph_lines(below: list[str]) -> Iterator[str]:
    for line in below:
        if not line.strip() or blocks.begins_block(line):
            return
        yield line


def _role_of(state: State, text: str) -> Role:
    return blocks.standing(state, blocks.read(text)).role


_RULES: tuple[Rule, ...] = (_cut_repeated_start, _cut_to_shape, _cut_blocks, _cut_inline)
