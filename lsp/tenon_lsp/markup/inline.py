"""What runs inside a line of markdown: emphasis, code spans and links, and which of them are left open.

Follows CommonMark's rules of flanking; a star or underscore inside a word, or beside a space, marks nothing. Knows no
documents, places or fills.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from tenon_lsp.markup.blocks import NOTHING_OPEN, Role, State, begins_block, step

_LINE_CHARACTERS_AT_MOST = 1_000  # of a longer line, its end is read

_MARK = re.compile(
    r"(?=[\\:<`*_~!\[\]])(?:"  # spares the engine nearly all of the text
    r"\\."
    r"|://[^\s<>()\[\]`*]*"
    r"|</?[A-Za-z][^<>\n]*>"
    r"|(?P<ticks>`+)"
    r"|(?P<run>\*+|_+|~~+)"
    r"|(?P<open>!?\[)"
    r"|(?P<target>\]\()"
    r"|(?P<close>\])"
    r")",
    re.DOTALL,
)
# The ends of a link's target, which has no space in it but before its title.
_PARENTHESIS = re.compile(r"\\.|[()]|(?<=[^(\s])\s+(?![\s)\"'(])")


@dataclasses.dataclass(slots=True)
class _Half:
    """A mark that opens, closes or both; `count` is what is left of it."""

    mark: str
    count: int
    start: int
    length: int = 1
    is_both: bool = False
    is_opener: bool = True
    is_sure: bool = True  # else it opens only where something closes it: 2*3, _name

    def fits(self, opener: _Half) -> bool:
        """Whether this one may close `opener`; CommonMark's rule of three tells ** and * apart inside words."""
        is_mixed = (self.length + opener.length) % 3 == 0 and self.length % 3 != 0
        return self.mark == opener.mark[-1] and not (is_mixed and (self.is_both or opener.is_both))


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
    line = line[-_LINE_CHARACTERS_AT_MOST:]
    opened = [each for each in _unmatched_between(line, 0, len(line)) if each.is_opener]
    return next((each.mark.lstrip("!") for each in reversed(opened) if each.mark[-1] in "`[("), NOTHING_OPEN)


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


def _unmatched_between(text: str, start: int, end: int) -> list[Unmatched]:
    reading = _Reading(text, start, end)
    position = start
    while found := _MARK.search(text, position, end):
        position = max(found.end(), reading.take(found))
    reading.lost.extend(reading.opened)
    return [Unmatched(each.start, each.mark, each.is_opener) for each in reading.lost if each.is_sure]


@dataclasses.dataclass(slots=True)
class _Reading:
    """A paragraph as far as it is read: the halves that are open, and those that will find no other."""

    text: str
    start: int
    end: int
    opened: list[_Half] = dataclasses.field(default_factory=list)
    lost: list[_Half] = dataclasses.field(default_factory=list)

    def take(self, found: re.Match[str]) -> int:
        """Reads one mark; where what it encloses ends, if nothing in that is a mark."""
        closing = 0
        if found["ticks"]:
            closing = _closing_ticks(self.text, found, self.end)
            if closing < 0:
                self.lost.append(_Half("`", 1, found.start()))
        elif found["run"]:
            self._take_run(found)
        elif found["open"]:
            self.opened.append(_Half(found.group(), 1, found.start()))
        elif found["close"] or found["target"]:
            closing = self._take_bracket(found)
        return closing

    def _take_bracket(self, found: re.Match[str]) -> int:
        """A closing one, and the link's target that follows it; a link that is in another one's text ends that."""
        closer = _Half("[", 1, found.start(), is_opener=False)
        innermost = next((each for each in reversed(self.opened) if closer.fits(each)), closer)
        self._close(closer)
        if closer.count:
            self.lost.append(closer)
        if closer.count or not found["target"]:
            return 0
        closing = _closing_parenthesis(self.text, found.end(), self.end)
        if closing < 0:
            self.lost.append(_Half("](", 1, found.start()))
        elif innermost.mark == "[":
            self.lost.extend(each for each in self.opened if each.mark == "[")
            self.opened = [each for each in self.opened if each.mark != "["]
        return closing

    def _take_run(self, found: re.Match[str]) -> None:
        """A run of stars, underscores or tildes: it closes what it can, and opens with the rest."""
        before = self.text[found.start() - 1] if found.start() > self.start else " "
        after = self.text[found.end()] if found.end() < self.end else " "
        is_in_word = before.isalnum() and after.isalnum()
        is_left = not after.isspace() and (after.isalnum() or not before.isalnum())
        is_right = not before.isspace() and (before.isalnum() or not after.isalnum())
        run = found.group()
        if run[0] == "_" and is_in_word:
            return
        half = _Half(run[0], len(run), found.start(), len(run), is_both=is_left and is_right)
        if is_right:
            self._close(half)
        if half.count and is_left:
            half.is_sure = half.count < half.length or (not is_in_word and run != "_")
            self.opened.append(half)
        elif half.count and is_right and len(run) > 1:  # a lone one is a footnote's star
            half.is_opener = False
            self.lost.append(half)

    def _close(self, closer: _Half) -> None:
        """Closes the innermost openers that `closer` fits; emphasis begun inside them finds its end no more."""
        for index in range(len(self.opened) - 1, -1, -1):
            opener = self.opened[index]
            if opener.mark[-1] == "[" and closer.mark != "[":
                break  # emphasis never reaches out of a link's text
            if closer.count and closer.fits(opener):
                taken = min(opener.count, closer.count)
                opener.count -= taken
                opener.is_sure = True
                closer.count -= taken
                inside = self.opened[index + 1 :]
                self.lost.extend(each for each in inside if each.count and each.mark[-1] != "[")
                self.opened[index + 1 :] = [each for each in inside if each.mark[-1] == "["]
        self.opened = [each for each in self.opened if each.count]


def _closing_ticks(text: str, found: re.Match[str], end: int) -> int:
    wanted = len(found["ticks"])
    runs = re.compile("`+").finditer(text, found.end(), end)
    return next((run.end() for run in runs if len(run.group()) == wanted), -1)


def _closing_parenthesis(text: str, start: int, end: int) -> int:
    depth = 1
    for found in _PARENTHESIS.finditer(text, start, end):
        if found.group().isspace():
            return -1
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if not depth:
            return found.end()
    return -1
