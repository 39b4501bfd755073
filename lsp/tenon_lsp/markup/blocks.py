"""The blocks of markdown, read line by line: quotes, lists and their numbers, tables, fences and raw HTML.

`State` is what the lines so far have opened; `step` reads one more line and says whether it goes on properly. Faithful
where documents are written with care, and lenient elsewhere. Knows no documents, places or fills.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Iterator

NOTHING_OPEN = ""

_QUOTES = re.compile(r"(?: {0,3}> ?)*")
_ITEM = re.compile(r"([-+*]|\d{1,9}[.)])(?: +|$)")
_RULE = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_HEADING = re.compile(r"#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t\r]*$")
_DELIMITERS = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_BAR = re.compile(r"(?<!\\)\|")
_LEADS = r"[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*"
_FENCE = re.compile(_LEADS + r"(?P<mark>`{3,}|~{3,})(?P<info>.*)")
_RAW = re.compile(_LEADS + r"(?:<!--|<(?P<tag>pre|script|style|textarea)\b)", re.IGNORECASE)
_RAW_HINT = re.compile(r"(?=[`~<-])(?:```|~~~|<!--|-->|</?(?:pre|script|style|textarea)\b)", re.IGNORECASE)


class Role(enum.Enum):
    """What a line is."""

    BLANK = "blank"
    TEXT = "text"
    ITEM = "item"
    HEADING = "heading"
    UNDERLINE = "underline"  # of the heading above it
    RULE = "rule"
    ROW = "row"
    RAW = "raw"  # a fence, what is in one, and raw HTML


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line and the markers at its start; its indent counts from behind the quote markers."""

    text: str
    quotes: int
    indent: int
    marker: str  # of a list item
    body: str

    @property
    def is_blank(self) -> bool:
        """Whether nothing but quote markers stands on it."""
        return not self.marker and not self.body.strip()


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """A list that is open, and its last item."""

    list_id: int
    item_id: int
    indent: int
    marker: str
    step: int | None  # from number to number, once two items have shown it

    def holds(self, line: Line) -> bool:
        """Whether `line` stands deep enough to be inside the item."""
        return line.indent >= self.indent + 2

    @property
    def number(self) -> int:
        """The last item's number."""
        return int(self.marker[:-1] or 0)

    def goes_on(self, line: Line) -> bool:
        """Whether the item `line` is the next one."""
        if self.marker[-1] != line.marker[-1]:
            return False
        steps = ((0, 1) if self.number <= 1 else (1,)) if self.step is None else (self.step,)
        return len(line.marker) == 1 or int(line.marker[:-1]) - self.number in steps


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What is open behind a line. Lists and items bear the number of the line that began them."""

    role: Role = Role.BLANK
    has_paragraph: bool = False  # which the next line may go on with
    raw_end: str = NOTHING_OPEN  # the pattern of the line that ends the open fence or raw HTML
    quotes: int = 0
    levels: tuple[Level, ...] = ()
    columns: int = 0  # of the open table
    cells: int = 0  # of the last line
    number: int = 0  # of the next line


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """How a line stands in what is open above it."""

    role: Role
    quotes: int
    owners: tuple[int, ...]  # the items around it
    list_id: int | None  # the list it goes on with; None when it begins one or is no item
    columns: int


def read(text: str) -> Line:
    """The markers of one line."""
    quoted = _QUOTES.match(text)
    lead = quoted.group() if quoted else ""
    rest = text[len(lead) :].rstrip("\r").expandtabs(4)
    body = rest.lstrip()
    item = None if _RULE.match(body) else _ITEM.match(body)
    marker = item[1] if item else ""
    return Line(text, lead.count(">"), len(rest) - len(body), marker, body[item.end() :] if item else body)


def step(state: State, text: str) -> tuple[State, bool]:
    """The state behind one more line, and whether the line goes on properly with the list or table it is in."""
    line = read(text)
    if _is_in_raw(state, line):
        raw_end = raw_after(text, state.raw_end)
        return State(Role.RAW, False, raw_end, state.quotes, state.levels, number=state.number + 1), True
    how = standing(state, line)
    levels, is_next = _levels_after(state, line, how)
    cells = cells_of(line)
    columns = (state.columns or cells) if how.role is Role.ROW else 0
    is_torn = not columns and state.has_paragraph and state.cells > 0 and is_delimiter_row(line)
    is_even = cells == columns if columns else not is_torn
    begins_paragraph = bool(line.body.strip()) and not (_HEADING.match(line.body) or _RULE.match(line.body))
    has_paragraph = how.role is Role.TEXT or (how.role is Role.ITEM and begins_paragraph)
    after = State(
        how.role, has_paragraph, raw_opened(text), how.quotes, levels, columns, cells, state.number + 1
    )
    return after, is_next and is_even


def fold(state: State, lines: Iterable[str]) -> State:
    """The state behind all of `lines`."""
    for line in lines:
        state, _ = step(state, line)
    return state


def standing(state: State, line: Line) -> Standing:
    """How `line` stands behind `state`."""
    role = _role(state, line)
    goes_on = role is Role.TEXT and state.has_paragraph and line.quotes <= state.quotes
    if goes_on:  # with the text above, however it is indented
        return Standing(role, state.quotes, _ids(state.levels), None, 0)
    inside = state.levels if line.quotes == state.quotes else ()
    owners = [level for level in inside if level.holds(line)]
    beside = inside[len(owners) :][:1] if _begins_item(role, line) else ()
    list_id = next((level.list_id for level in beside if level.marker[-1] == line.marker[-1]), None)
    return Standing(role, line.quotes, _ids(owners), list_id, state.columns if role is Role.ROW else 0)


def is_underline(line: Line) -> bool:
    """Whether a line makes a heading of the paragraph right above it."""
    return bool(_UNDERLINE.match(line.text.lstrip(" \t>")))


def is_heading(line: Line) -> bool:
    """Whether a line begins with a heading's hashes."""
    return not line.marker and bool(_HEADING.match(line.body))


def goes_on(state: State, line: Line) -> bool:
    """Whether the item `line` is the next one of the list that it stands in."""
    list_id = standing(state, line).list_id
    return any(level.list_id == list_id and level.goes_on(line) for level in state.levels)


def last_number(state: State, list_id: int) -> int:
    """The number of a list's last item."""
    return next((level.number for level in state.levels if level.list_id == list_id), 0)


def begins_block(text: str) -> bool:
    """Whether a line begins something other than a paragraph, whatever stands above it."""
    line = read(text)
    is_block = line.marker or line.quotes or _HEADING.match(line.body) or line.body.startswith("|")
    return bool(is_block or _RULE.match(line.body) or _RAW.match(text) or raw_opened(text))


def raw_opened(text: str) -> str:
    """The pattern that ends the fence or raw HTML which a line opens and leaves open, else nothing."""
    if fence := _FENCE.match(text):
        mark = fence["mark"]
        is_span = mark[0] == "`" and "`" in fence["info"]
        return NOTHING_OPEN if is_span else rf"^[ \t>]*{mark[0]}{{{len(mark)},}}[ \t]*$"
    if raw := _RAW.match(text):
        end = rf"(?i)</{raw['tag']}>" if raw["tag"] else "-->"
        return NOTHING_OPEN if re.search(end, text[raw.end() :]) else end
    return NOTHING_OPEN


def raw_after(text: str, raw_end: str) -> str:
    """What is open behind a line when `raw_end` was open before it."""
    if raw_end:
        return NOTHING_OPEN if re.search(raw_end, text) else raw_end
    return raw_opened(text)


def imbalance(text: str, raw_end: str) -> int:
    """How wrong the fences of `text` look when `raw_end` is open before it: left open, or opened inside another."""
    wrong = 0
    for line in _hinted_lines(text):
        if raw_end == "-->":
            wrong += "<!--" in line
        elif raw_end and not re.search(raw_end, line):
            fence = _FENCE.match(line)
            wrong += bool(fence and fence["info"].strip())
        raw_end = raw_after(line, raw_end)
    return wrong + bool(raw_end)


def _hinted_lines(text: str) -> Iterator[str]:
    end = -1
    while hint := _RAW_HINT.search(text, end + 1):
        start, end = text.rfind("\n", 0, hint.start()) + 1, text.find("\n", hint.start())
        yield text[start : end if end >= 0 else len(text)].rstrip("\r")
        if end < 0:
            return


def bars_of(text: str) -> int:
    """How many bars between cells stand in a piece of a line."""
    return len(_BAR.findall(text))


def nth_bar(text: str, count: int) -> int:
    """Where the bar after the first `count` ones stands; the end of `text` when there is none."""
    return next((bar.start() for index, bar in enumerate(_BAR.finditer(text)) if index == count), len(text))


def cells_of(line: Line) -> int:
    """How many cells a line has as the row of a table; 0 when it has no bars."""
    body = line.body.strip()
    bars = bars_of(body)
    ends = body.startswith("|") + (len(body) > 1 and body.endswith("|") and not body.endswith("\\|"))
    return bars + 1 - ends if bars else 0


def is_delimiter_row(line: Line) -> bool:
    """Whether a line may be the one below a table's header."""
    return bool("-" in line.body and "|" in line.body and _DELIMITERS.match(line.body))


def _is_in_raw(state: State, line: Line) -> bool:
    """Whether a line belongs to the open fence or raw HTML, which ends with the quote or item around it."""
    is_inside = line.quotes >= state.quotes and (not state.levels or state.levels[-1].holds(line))
    return bool(state.raw_end) and (is_inside or line.is_blank)


def _begins_item(role: Role, line: Line) -> bool:
    return bool(line.marker) and role in (Role.ITEM, Role.RAW)


def _only_goes_on(state: State, line: Line) -> bool:
    """Whether a marker is read as text, for it cannot begin a list inside a paragraph: '2.', or one without text."""
    is_beside = any(not level.holds(line) for level in state.levels)
    is_paragraph = state.has_paragraph and line.quotes <= state.quotes and not is_beside
    begins_lists = bool(line.body.strip()) and line.marker[:-1] in ("", "1")
    return is_paragraph and not begins_lists


def _role(state: State, line: Line) -> Role:
    is_inside = line.quotes == state.quotes
    if _is_in_raw(state, line) or raw_opened(line.text) or _RAW.match(line.text):
        return Role.RAW
    if line.is_blank:
        return Role.BLANK
    is_deep_enough = not state.levels or state.levels[-1].holds(line)
    if state.has_paragraph and is_inside and is_deep_enough and is_underline(line):
        return Role.UNDERLINE
    if _RULE.match(line.body):
        return Role.RULE
    if line.marker:
        return Role.TEXT if _only_goes_on(state, line) else Role.ITEM
    if _HEADING.match(line.body):
        return Role.HEADING
    is_under_header = (
        state.has_paragraph and is_deep_enough and is_delimiter_row(line) and cells_of(line) == state.cells
    )
    return Role.ROW if is_inside and (state.columns or is_under_header) else Role.TEXT


def _levels_after(state: State, line: Line, how: Standing) -> tuple[tuple[Level, ...], bool]:
    inside = state.levels if how.quotes == state.quotes else ()
    if how.role is Role.BLANK:
        return inside, True
    kept = tuple(level for level in inside if level.item_id in how.owners)
    if not _begins_item(how.role, line):
        return kept, True
    begun = Level(state.number, state.number, line.indent, line.marker, None)
    if len(kept) == len(inside):
        return (*kept, begun), True
    beside = inside[len(kept)]
    if how.list_id is None:  # another kind of list, which a blank line may separate
        return (*kept, begun), state.role is Role.BLANK
    pace = begun.number - beside.number
    item = dataclasses.replace(begun, list_id=beside.list_id, step=pace if pace in (0, 1) else None)
    return (*kept, item), beside.goes_on(line)


def _ids(levels: Iterable[Level]) -> tuple[int, ...]:
    return tuple(level.item_id for level in levels)
