"""Echo: a fill says nothing again that follows it, or stands before it, and no line over and over.

Only what touches is compared: the fill's end with the suffix's start, its start with the prefix's end. The
same words further away are no echo. Closing brackets are left to `brackets`: some of them are needed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from tenon_engine.fit.brackets import closes_more, leaves_open
from tenon_engine.fit.place import Place

LOOP_LINES = 3  # a line this often in a row is a model going round, two may be meant
CUT_SHORT_LEAST = 0.8  # of a line's length

_WORD = re.compile(r"\w+")
_CLOSERS = re.compile(r"[)\]}\s]*")


def cut_suffix_echo(text: str, place: Place) -> str:
    """`text` without the rest of the line, or the lines below, at its end."""
    for cut in (_cut_rest_of_word, _cut_rest_of_line, _cut_lines_below):
        text = cut(text, place)
    return text


def cut_prefix_echo(text: str, place: Place) -> str:
    """`text` without the lines above, or the start of the line, at its start."""
    return _cut_lines_above(text, place) if not place.before.strip() else _cut_start_of_line(text, place)


def cut_loop(text: str, place: Place) -> str:
    """`text` up to the first of several equal lines in a row."""
    lines = text.split("\n")
    whole = [place.before + lines[0], *lines[1:]]
    filled = [index for index, line in enumerate(whole) if _says(line)]
    for position, index in enumerate(filled[: 1 - LOOP_LINES]):
        if all(whole[other] == whole[index] for other in filled[position : position + LOOP_LINES]):
            return place.keep_lines(lines, index + 1)
    return text


def _cut_rest_of_word(text: str, place: Place) -> str:
    """Nothing, when inside a word `text` only goes on with what follows."""
    rest = _WORD.match(place.tail)
    inside = rest and place.before and _WORD.match(place.before[-1])
    return "" if rest and inside and place.tail.startswith(text) and len(text) >= rest.end() else text


def _cut_rest_of_line(text: str, place: Place) -> str:
    tail = place.tail.rstrip()
    if _CLOSERS.fullmatch(tail):
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        said = line.rstrip()
        if said.endswith(tail) and _follows([tail, *lines[index + 1 :]], [tail, *place.below]):
            head = said[: len(said) - len(tail)]
            piece = "\n".join([*lines[:index], head])
            deeper = head.isspace() and tail[0].isspace()  # the same words on a line of another depth
            needed = closes_more(tail) and leaves_open(piece)
            if not deeper and not needed and not _goes_on_drawing(piece, tail, place):
                return piece
    return text


def _cut_lines_below(text: str, place: Place) -> str:
    lines = text.split("\n")
    whole, below = [place.before + lines[0], *lines[1:]], list(place.below)
    if place.tail.strip() and not lines[-1].strip():  # the fill ends where the tail's own line begins
        below.insert(0, whole.pop() + place.tail)
    first = 1 if place.before.strip() else 0
    for index in range(first, len(whole)):
        if any(map(_says, whole[index:])) and _follows(whole[index:], below):
            return place.keep_lines(lines, index)
    return text


def _cut_lines_above(text: str, place: Place) -> str:
    lines = text.split("\n")
    whole = [place.before + lines[0], *lines[1:]]
    above = _spoken(place.above)
    filled = [index for index, line in enumerate(whole) if line.strip()]
    for count in range(min(len(above), len(filled)), 0, -1):
        again = [whole[index].rstrip() for index in filled[:count]]
        if again == above[-count:] and any(map(_says, again)):
            first, *others = lines[filled[count - 1] + 1 :] or [""]
            return "\n".join([first.removeprefix(place.before), *others])
    return text


def _cut_start_of_line(text: str, place: Place) -> str:
    lines = text.split("\n")
    for count in range(min(len(place.above), len(lines) - 1), 0, -1):
        if tuple(lines[:count]) == place.above[-count:] and lines[count].startswith(place.before):
            return "\n".join(lines[count:])[len(place.before) :]
    start = place.before.lstrip()
    if " " in start:  # one word may well be meant twice: foo(foo(x))
        return text.removeprefix(start)
    return text


def _follows(lines: Iterable[str], below: Iterable[str]) -> bool:
    """Whether `lines` are the first ones of `below`, blank ones aside.

    The last of several may be cut short, if there are words before it or little of it is missing.
    """
    said = _spoken(lines)
    expected = list(itertools.islice((line.rstrip() for line in below if line.strip()), len(said)))
    if said == expected:
        return True
    if len(said) < 2 or said[:-1] != expected[:-1] or not expected[-1].startswith(said[-1]):
        return False
    return any(map(_says, said[:-1])) or len(said[-1]) >= CUT_SHORT_LEAST * len(expected[-1])


def _goes_on_drawing(piece: str, tail: str, place: Place) -> bool:
    """Whether `tail` goes on with a drawn line, a run of one character, that `piece` is part of."""
    return len(set(tail)) == 1 and (place.before + piece).endswith(tail[0])


def _spoken(lines: Iterable[str]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()]


def _says(line: str) -> bool:
    return bool(_WORD.search(line))
