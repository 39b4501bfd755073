"""The only arithmetic on positions: a client's (line, character) to an offset in Python characters, and back.

Lines end with LF, CRLF or a lone CR, as the protocol says; nothing else ends a line. Nothing here raises:
* a line past the last one is the end of the text; a character past the end of its line is that line's end;
* a character inside a code point (half a surrogate pair) is the start of that code point;
* an offset outside the text is its nearer end; an offset between CR and LF is the place before the CR.

Knows no documents, versions or protocol types.
"""

from __future__ import annotations

import dataclasses
import enum
import re

_LINE_END = re.compile(r"\r\n|\r|\n")


class Encoding(enum.Enum):
    """The unit a client counts characters of a line in; values as in the protocol's `positionEncodings`."""

    UTF_8 = "utf-8"
    UTF_16 = "utf-16"
    UTF_32 = "utf-32"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two characters: line and character count from 0, character in units of an Encoding."""

    line: int
    character: int


def offset_at(text: str, position: Position, encoding: Encoding) -> int:
    """The offset of `position` in `text`, clamped as the module says."""
    start, end = _line_span(text, position.line)
    return start + _characters_within(text[start:end], position.character, encoding)


def position_at(text: str, offset: int, encoding: Encoding) -> Position:
    """The position of `offset` in `text`, clamped as the module says."""
    offset = min(max(offset, 0), len(text))
    if text[offset - 1 : offset + 1] == "\r\n":
        offset -= 1
    line, line_start = 0, 0
    for match in _LINE_END.finditer(text, 0, offset):
        line, line_start = line + 1, match.end()
    return Position(line, _units_of(text[line_start:offset], encoding))


def _line_span(text: str, line: int) -> tuple[int, int]:
    """Start and end of a line without its line end; past the last line, the empty span at the end."""
    start, number = 0, 0
    for match in _LINE_END.finditer(text):
        if number >= line:
            return start, match.start()
        start, number = match.end(), number + 1
    return (start, len(text)) if line <= number else (len(text), len(text))


def _characters_within(line: str, units: int, encoding: Encoding) -> int:
    """How many whole characters of `line` fit into its first `units` units."""
    if encoding is Encoding.UTF_32 or line.isascii():
        return min(max(units, 0), len(line))
    for index, character in enumerate(line):
        units -= _units_of(character, encoding)
        if units < 0:
            return index
    return len(line)


def _units_of(text: str, encoding: Encoding) -> int:
    if encoding is Encoding.UTF_32 or text.isascii():
        return len(text)
    if encoding is Encoding.UTF_16:
        return len(text) + sum(1 for character in text if character > "\uffff")
    # A lone surrogate has no UTF-8 form; three bytes is what every lenient encoder writes.
    return len(text.encode("utf-8", "surrogatepass"))
