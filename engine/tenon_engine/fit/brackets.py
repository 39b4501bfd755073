"""Brackets: a fill closes what it opens, and nothing that the text after it closes already.

Reads brackets without knowing the language, and where the surroundings do not add up only the hole's own line
counts.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable

from tenon_engine.fit.place import Place
from tenon_engine.fit.scan import Brackets, find_brackets, open_quote

NEAR_CHARACTERS = 1000

_OPENER = {")": "(", "]": "[", "}": "{"}
_CLOSER = {opener: closer for closer, opener in _OPENER.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class _Matched:
    """Openers that nothing closes, how many an outer closer ended, and places of closers without opener."""

    opened: Brackets
    passed_over: int
    strays: list[int]

    @property
    def unclosed_count(self) -> int:
        return len(self.opened) + self.passed_over


def cut_unneeded_closers(text: str, place: Place) -> str:
    """`text` up to the first closer from which on it closes what the suffix closes, or nothing at all."""
    quote = open_quote(place.before)
    if quote and place.tail.startswith(quote) and text.endswith(quote) and _odd(text, quote):
        return text[:-1]
    closers = [position for position, bracket in find_brackets(text)[0] if bracket in _OPENER]
    if not closers:
        return text
    frame, without = _surroundings(place.left, place.right)
    whole = place.starts_document and not without.strays
    if not whole:
        frame, without = _surroundings(place.before, place.tail)
    for end in [len(text), *reversed(closers)]:
        inside, after = frame.strays(text[:end])
        if after <= len(without.strays) and not (whole and inside):
            break
    return text if end == len(text) else _trim(text[:end], place)


def close_brackets(text: str, place: Place) -> str:
    """A one-line `text` at a line's end, with the closers that it lacks and nothing after it has.

    A text that ends with an opener opens a block, which is not this line's to close.
    """
    ends_inside = "\n" not in text and not text.rstrip().endswith(tuple(_CLOSER))
    opened = _match(find_brackets(text)[0]).opened if ends_inside and not place.tail.strip() else []
    if not opened or not place.starts_document or open_quote(place.before + text):
        return text
    frame, without = _surroundings(place.left, place.right)
    closed = text.rstrip() + "".join(_CLOSER[bracket] for _, bracket in reversed(opened))
    if without.strays or frame.match(text).unclosed_count <= without.unclosed_count:
        return text
    mended = frame.match(closed)
    return text if mended.strays or mended.unclosed_count > without.unclosed_count else closed


def unmatched_count(text: str, *, prefix: str, suffix: str) -> int:
    """How many brackets have no partner, `text` between `prefix` and `suffix`."""
    place = Place.between(prefix, suffix)
    matched = _surroundings(place.left, place.right)[0].match(text)
    return matched.unclosed_count + len(matched.strays)


def leaves_open(text: str) -> bool:
    """Whether `text` opens a bracket that it does not close."""
    return bool(_match(find_brackets(text)[0]).opened)


def leaves_line_open(text: str, prefix: str, suffix: str) -> bool:
    """Whether `text` opens a string, or a round or square bracket, that neither it nor `suffix` closes.

    A curly one may begin a block that is not written yet. Only what stands near is read.
    """
    left = prefix[-NEAR_CHARACTERS:]
    before = left.rpartition("\n")[2]
    quote = "" if open_quote(before) else open_quote((before + text).rpartition("\n")[2])
    if quote and quote not in suffix.partition("\n")[0]:
        return True
    frame, _ = _surroundings(left, suffix[:NEAR_CHARACTERS])
    fill = range(len(left), len(left) + len(text))
    return any(position in fill and bracket in "([" for position, bracket in frame.match(text).opened)


def closes_more(text: str) -> bool:
    """Whether `text` closes a bracket that it did not open."""
    return bool(_match(find_brackets(text)[0]).strays)


def shorten(text: str, *, prefix: str, suffix: str) -> str:
    """The longest piece of an unfinished `text` that ends with a line or a closing bracket, else ''.

    What stands behind its first blank line is a guess of its own and goes as well.
    """
    place = Place.between(prefix, suffix)
    if blank_line := re.search(r"(?<=\S)[ \t]*\n[ \t]*\n", text):
        text = text[: blank_line.start() + 1]
    ends = [position + 1 for position, bracket in find_brackets(text)[0] if bracket in _OPENER]
    if not place.tail.strip():
        ends += [found.start() for found in re.finditer(r"\n", text)]
    elif not place.before:
        ends += [found.end() for found in re.finditer(r"\n", text)]
    for end in sorted(ends, reverse=True):
        piece = text[:end]
        if piece.strip() and not leaves_open(piece) and not open_quote(piece.rpartition("\n")[2]):
            return piece
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around a fill, its brackets read once for every fill that is tried."""

    left: str
    settled: int  # up to where no fill changes what is read of `left`
    left_brackets: Brackets  # up to there
    tail: str  # with its line end
    below: str
    below_brackets: Brackets

    def match(self, text: str) -> _Matched:
        """The brackets of all three together."""
        line = self.left + text + self.tail
        brackets, settled = find_brackets(line, self.settled)
        if settled < len(line) and self.below:  # a block of text goes on below
            brackets = find_brackets(line + self.below, self.settled)[0]
            return _match([*self.left_brackets, *brackets])
        below = ((len(line) + position, bracket) for position, bracket in self.below_brackets)
        return _match([*self.left_brackets, *brackets, *below])

    def strays(self, text: str) -> tuple[int, int]:
        """How many closers inside `text`, and how many after it, find nothing to close where they stand."""
        start, end = len(self.left), len(self.left) + len(text)
        strays = self.match(text).strays
        return sum(start <= position < end for position in strays), sum(
            position >= end for position in strays
        )


@functools.lru_cache(maxsize=2)  # the rules ask in turn, and all candidates stand in the same place
def _surroundings(left: str, right: str) -> tuple[_Frame, _Matched]:
    """The frame between `left` and `right`, and how its brackets match when nothing is filled in."""
    brackets, settled = find_brackets(left)
    tail, line_end, below = right.partition("\n")
    before = [each for each in brackets if each[0] < settled]
    frame = _Frame(left, settled, before, tail + line_end, below, find_brackets(below)[0])
    return frame, frame.match("")


def _match(brackets: Iterable[tuple[int, str]]) -> _Matched:
    """Pairs `brackets`; a closer also ends unclosed inner ones."""
    opened: Brackets = []
    counts = dict.fromkeys(_CLOSER, 0)
    passed_over = 0
    strays: list[int] = []
    for position, bracket in brackets:
        opener = _OPENER.get(bracket)
        if opener is None:
            opened.append((position, bracket))
            counts[bracket] += 1
        elif counts[opener]:
            while (inner := opened.pop()[1]) != opener:
                counts[inner] -= 1
                passed_over += 1
            counts[opener] -= 1
        else:
            strays.append(position)
    return _Matched(opened, passed_over, strays)


def _odd(text: str, quote: str) -> bool:
    return len(re.findall(rf"(?<!\\){quote}", text)) % 2 == 1


def _trim(text: str, place: Place) -> str:
    """`text` cut before a closer: without the space that led to it, unless the tail needs its line end."""
    return text if place.tail.strip() and text.rstrip(" \t").endswith("\n") else text.rstrip()
