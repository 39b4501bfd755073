"""What runs inside a line of markdown: emphasis, code spans and links, and which of them are left open.

Follows CommonMark's rules of flanking; a star or underscore inside a word, or beside a space, marks nothing. Knows no
documents, places or fills.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from tenon_lsp.markup_blocks import NOTHING_OPEN, Role, State, begins_block, step

_MARK = re.compile(
    r"(?=[\\:<`*_~\[\]])(?:"  # spares the engine nearly all of the text
    r"\\."
    r"|://[^\s<>()\[\]`*]*"
    r"|</?[A-Za-z][^<>\n]*>"
    r"|(?P<ticks>`+)"
    r"|(?P<run>\*+|_+|~~+)"
    r"|(?P<open>\[)"
    r"|(?P<target>\]\()"
    r"|(?P<close>\])"
    r")",
    re.DOTALL,
)
_PARENTHESIS = re.compile(r"\\.|[()]")


@dataclasses.dataclass(slots=True)
class _Open:
    mark: str
    count: int
    start: int
    is_sure: bool = True  # else it opens only where something closes it: 2*3, _name


@dataclasses.dataclass(frozen=True, slots=True)
class Unmatched:
    """Where a mark stands that has no other half; `is_opener` when it is the first half."""

    start: int
    mark: str
    is_opener: bool


def unmatched(text: str) -> list[Unmatched]:
    """Every mark of some lines of markdown that has no other half in its own paragraph, in order."""
    found: list[Unmatched] = []
    for start, end in _paragraphs(text):
        found.extend(_unmatched_between(text, start, end))
    return sorted(found, key=lambda each: each.start)


def marks(text: str) -> list[int]:
    """Where `text` may be cut so that a mark, or what follows a line, is left out; ascending."""
    starts = {found.start() for found in _MARK.finditer(text) if found.lastgroup}
    return sorted(starts | {found.start() for found in re.finditer("\n", text)})


def left_open(line: str) -> str:
    """The innermost of code span, link text and link target in which `line` ends: its mark, else nothing."""
    opened = [each for each in _unmatched_between(line, 0, len(line)) if each.is_opener]
    return next((each.mark for each in reversed(opened) if each.mark in ("`", "[", "](")), NOTHING_OPEN)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each run of lines that are read as one; raw lines are none."""
    state = State()
    start = position = 0
    for line in text.split("\n"):
        above = state.role
        state, _ = step(state, line)
        if above not in (Role.TEXT, Role.ITEM) or state.role is not Role.TEXT or begins_block(line):
            if position > start and above is not Role.RAW:
                yield start, position
            start = position
        position += len(line) + 1
    if state.role is not Role.RAW:
        yield start, len(text)


def _unmatched_between(text: str, start: int, end: int) -> Iterator[Unmatched]:
    opened: list[_Open] = []
    position = start
    while found := _MARK.search(text, position, end):
        position = found.end()
        if found["ticks"]:
            closing = _closing_ticks(text, found, end)
            if closing < 0:
                yield Unmatched(found.start(), "`", True)
            position = max(position, closing)
        elif found["run"]:
            yield from _run(text, found, opened, (start, end))
        elif found["open"]:
            opened.append(_Open("[", 1, found.start()))
        elif found["close"] and not _close(opened, "[", 1):
            pass
        elif found["close"]:
            yield Unmatched(found.start(), "]", False)
        elif found["target"]:
            if _close(opened, "[", 1):
                yield Unmatched(found.start(), "]", False)
                continue
            closing = _closing_parenthesis(text, position, end)
            if closing < 0:
                yield Unmatched(found.start(), "](", True)
            position = max(position, closing)
    yield from (Unmatched(each.start, each.mark, True) for each in opened if each.is_sure)


def _run(text: str, found: re.Match[str], opened: list[_Open], span: tuple[int, int]) -> Iterator[Unmatched]:
    """A run of stars, underscores or tildes: it closes what it can, and opens with the rest."""
    mark = found.group()[0]
    before = text[found.start() - 1] if found.start() > span[0] else " "
    after = text[found.end()] if found.end() < span[1] else " "
    is_left = not after.isspace() and (after.isalnum() or not before.isalnum())
    is_right = not before.isspace() and (before.isalnum() or not after.isalnum())
    if mark == "_" and before.isalnum() and after.isalnum():
        return
    left_over = _close(opened, mark, len(found.group())) if is_right else len(found.group())
    if not left_over:
        return
    if is_left:
        is_sure = not (before.isalnum() and after.isalnum()) and found.group() != "_"
        opened.append(_Open(mark, left_over, found.start(), is_sure))
    elif is_right and not is_left and len(found.group()) > 1:  # a lone one is a footnote's star
        yield Unmatched(found.start(), mark, False)


def _close(opened: list[_Open], mark: str, count: int) -> int:
    """Closes the innermost openers of `mark`; how many of `count` find none."""
    for each in reversed(opened):
        if each.mark == mark and count:
            taken = min(each.count, count)
            each.count -= taken
            count -= taken
    opened[:] = [each for each in opened if each.count]
    return count


def _closing_ticks(text: str, found: re.Match[str], end: int) -> int:
    wanted = len(found["ticks"])
    runs = re.compile("`+").finditer(text, found.end(), end)
    return next((run.end() for run in runs if len(run.group()) == wanted), -1)


def _closing_parenthesis(text: str, start: int, end: int) -> int:
    depth = 1
    for found in _PARENTHESIS.finditer(text, start, end):
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if not depth:
            return found.end()
    return -1
