"""Scan: where a text's brackets stand, read once from start to end, whatever the text.

A quote that its line does not close is tried once a line, so the time grows with the length alone.

Knows no language: strings, comments and regular expressions are skipped as far as most languages agree.
"""

from __future__ import annotations

import re

_BRACKETS = "()[]{}"
_BLOCK_END = {'"""': '"""', "'''": "'''", "/*": "*/"}
_MARK = re.compile(r'^[ \t]*//|"""|\'\'\'|/\*|["\'`/#()\[\]{}]', re.MULTILINE)
_FREE = r"(?<![\w&<])"  # no apostrophe and no lifetime: don't, &'a
_SINGLE_START = rf"(?:{_FREE}|(?<={_FREE}[rbfuRBFU])|(?<={_FREE}[rbfuRBFU][rbfuRBFU]))'"
_REGEX_START = r"(?:(?<=[(=,:!&|?])|(?<=[(=,:!&|?] ))/(?!/)"
_LINE_TOKEN = {  # each matches to its end or, with an empty group, as far as it gets, and never fails late
    '"': re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*("?)'),
    "'": re.compile(rf"{_SINGLE_START}[^'\\\n]*(?:\\.[^'\\\n]*)*('?)"),
    "`": re.compile(r"`[^`\n]*(`?)"),
    "/": re.compile(_REGEX_START + r"(?:\\.|\[[^\]\\\n]*(?:\\.[^\]\\\n]*)*\]|[^/\\\n\[])*(/?)"),
    "#": re.compile(r"(?:(?<=\s)|^)#(?=\s).*()", re.MULTILINE),
    "//": re.compile(r"[ \t]*//.*()"),
}
_COMMENTS = ("#", "//")
_QUOTE = re.compile(rf"[\"`]|{_SINGLE_START}")

Brackets = list[tuple[int, str]]


def find_brackets(text: str, start: int = 0) -> tuple[Brackets, int]:
    """The brackets of `text` from `start` on, and up to where no text behind it can change what was read."""
    brackets: Brackets = []
    position, settled = start, len(text.rstrip(" \t"))
    unclosed: dict[str, tuple[int, int]] = {}  # by mark: where it stands, and the end of its line
    while found := _MARK.search(text, position):
        at, mark, position = found.start(), found.group().lstrip(), found.end()
        if mark in _BRACKETS:
            brackets.append((at, mark))
            continue
        if end_mark := _BLOCK_END.get(mark):
            end = text.find(end_mark, position)
            position = end + len(end_mark) if end >= 0 else len(text)
            settled = settled if end >= 0 else min(settled, at)
        elif unclosed.get(mark, (0, 0))[1] <= at and (token := _LINE_TOKEN[mark].match(text, at)):
            if token.group(1) or mark in _COMMENTS:
                position = token.end()
            else:
                unclosed[mark] = at, _line_end(text, token.end())
        if position >= len(text) - 1 and not text.endswith("\n"):
            settled = min(settled, at)
    return brackets, min([settled, *(at for at, line_end in unclosed.values() if line_end == len(text))])


def open_quote(line: str) -> str:
    """The quote of the string in which `line` ends, '' when it ends in none."""
    position = 0
    while (found := _QUOTE.search(line, position)) and (
        token := _LINE_TOKEN[found.group()].match(line, found.start())
    ):
        if not token.group(1):
            return found.group()
        position = token.end()
    return ""


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end
