"""Brackets: a fill closes what it opens, and nothing that the text after it closes already.

Reads brackets without knowing the language: strings and comments are skipped as far as most languages agree,
and where the surroundings do not add up only the hole's own line counts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from tenon_engine.fit.place import Place

_OPENER = {")": "(", "]": "[", "}": "{"}
_DOUBLE, _SINGLE, _BACKTICK = r'"(?:\\.|[^"\\\n])*"', r"'(?:\\.|[^'\\\n])*'", r"`[^`\n]*`"
_SINGLE_START = r"(?<![\w&<])[rbfuRBFU]{0,2}"  # no apostrophe and no lifetime follows: don't, &'a
_STRING = re.compile(rf"{_DOUBLE}|{_SINGLE_START}{_SINGLE}|{_BACKTICK}")
_BLOCK = re.compile(r'"""[\s\S]*?(?:"""|\Z)|\'\'\'[\s\S]*?(?:\'\'\'|\Z)|/\*[\s\S]*?(?:\*/|\Z)')
_COMMENT = r"(?:(?<=\s)|^)\#\s.*|^[ \t]*//.*"
_REGEX = r"(?:(?<=[(=,:!&|?])|(?<=[(=,:!&|?] ))/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/"
_TOKEN = re.compile(rf"{_BLOCK.pattern}|{_STRING.pattern}|{_COMMENT}|{_REGEX}|[()\[\]{{}}]", re.MULTILINE)
_QUOTE = re.compile(rf"[\"`]|{_SINGLE_START}'")


def cut_unneeded_closers(text: str, place: Place) -> str:
    """`text` up to the first closer from which on it closes what the suffix closes, or nothing at all."""
    quote = open_quote(place.before)
    if quote and place.tail.startswith(quote) and text.endswith(quote) and _odd(text, quote):
        return text[:-1]
    closers = [position for position, bracket in _brackets(text) if bracket in _OPENER]
    if not closers:
        return text
    whole = place.starts_document and not closes_more(place.left + place.right)
    reach = place if whole else dataclasses.replace(place, left=place.before, right=place.tail)
    without = _strays("", reach)[1]
    for end in [len(text), *reversed(closers)]:
        inside, after = _strays(text[:end], reach)
        if after <= without and not (whole and inside):
            break
    return text if end == len(text) else _trim(text[:end], place)


def leaves_open(text: str) -> bool:
    """Whether `text` opens a bracket that it does not close."""
    return bool(_match(_brackets(text))[0])


def closes_more(text: str) -> bool:
    """Whether `text` closes a bracket that it did not open."""
    return bool(_match(_brackets(text))[1])


def open_quote(line: str) -> str:
    """The quote of the string in which `line` ends, '' when it ends in none."""
    found = _QUOTE.search(_STRING.sub("", line))
    return found.group()[-1] if found else ""


def shorten(text: str, *, prefix: str, suffix: str) -> str:
    """The longest piece of an unfinished `text` that ends with a line or a closing bracket, else ''.

    What stands behind its first blank line is a guess of its own and goes as well.
    """
    place = Place.between(prefix, suffix)
    if blank_line := re.search(r"(?<=\S)[ \t]*\n[ \t]*\n", text):
        text = text[: blank_line.start() + 1]
    ends = [position + 1 for position, bracket in _brackets(text) if bracket in _OPENER]
    if not place.tail.strip():
        ends += [found.start() for found in re.finditer(r"\n", text)]
    elif not place.before:
        ends += [found.end() for found in re.finditer(r"\n", text)]
    for end in sorted(ends, reverse=True):
        piece = text[:end]
        if piece.strip() and not leaves_open(piece) and not open_quote(piece.rpartition("\n")[2]):
            return piece
    return ""


def _brackets(text: str) -> list[tuple[int, str]]:
    return [(found.start(), found.group()) for found in _TOKEN.finditer(text) if len(found.group()) == 1]


def _strays(text: str, place: Place) -> tuple[int, int]:
    """How many closers inside `text`, and how many after it, find nothing to close where they stand."""
    start, end = len(place.left), len(place.left) + len(text)
    _, strays = _match(_brackets(place.left + text + place.right))
    return sum(start <= position < end for position in strays), sum(position >= end for position in strays)


def _match(brackets: Iterable[tuple[int, str]]) -> tuple[list[str], list[int]]:
    """Openers never closed, and places of closers without opener; a closer also ends unclosed inner ones."""
    opened: list[str] = []
    strays: list[int] = []
    for position, bracket in brackets:
        opener = _OPENER.get(bracket)
        if opener is None:
            opened.append(bracket)
        elif opener in opened:
            while opened.pop() != opener:
                pass
        else:
            strays.append(position)
    return opened, strays


def _odd(text: str, quote: str) -> bool:
    return len(re.findall(rf"(?<!\\){quote}", text)) % 2 == 1


def _trim(text: str, place: Place) -> str:
    """`text` cut before a closer: without the space that led to it, unless the tail needs its line end."""
    return text if place.tail.strip() and text.rstrip(" \t").endswith("\n") else text.rstrip()
