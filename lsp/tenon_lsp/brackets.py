"""Brackets: which ones a piece of text leaves open, and the closers that it lacks.

Reads no syntax: brackets of strings are left out as far as most languages agree on what a string is.
"""

from __future__ import annotations

import re

_CLOSER = {"(": ")", "[": "]", "{": "}"}
_BRACKET = re.compile(
    r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|(?<![\w&<])\'[^\'\\\n]*(?:\\.[^\'\\\n]*)*\'|([()\[\]{}])'
)


def opened(text: str) -> list[int]:
    """Where the brackets stand that `text` does not close."""
    places: list[int] = []
    for found in _BRACKET.finditer(text):
        bracket = found.group(1)
        if bracket in _CLOSER:
            places.append(found.start())
        elif bracket and places and _CLOSER[text[places[-1]]] == bracket:
            places.pop()
    return places


def surplus(text: str) -> int:
    """How many brackets more `text` closes than it opens."""
    brackets = [found.group(1) for found in _BRACKET.finditer(text) if found.group(1)]
    return len(brackets) - 2 * sum(bracket in _CLOSER for bracket in brackets)


def closed(text: str, before: str) -> str:
    """`text`, behind `before` on its line, with the closers that it lacks; '' when it lacks none or ends by opening.

    What its last line opens is closed there, what others open on lines of their own.
    """
    places = opened(text)
    if not places or text[-1] in _CLOSER:
        return ""
    lines = [before + text, *text.split("\n")[1:]]
    closers, last_line = "", text.count("\n")
    for at in reversed(places):
        line = text.count("\n", 0, at)
        if line != last_line:
            closers += "\n" + lines[line][: len(lines[line]) - len(lines[line].lstrip())]
        closers, last_line = closers + _CLOSER[text[at]], line
    return text + closers
