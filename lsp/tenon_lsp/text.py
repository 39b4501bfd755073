"""Text: a document's text with an index of its lines, and the only arithmetic between positions and offsets.

Lines end with LF, CRLF or a lone CR, as the protocol says; nothing else ends a line. Nothing here raises:
* a line past the last one is the end of the text; a character past the end of its line is that line's end;
* a character inside a code point (half a surrogate pair) is the start of that code point;
* an offset outside the text is its nearer end; an offset between CR and LF is the place before the CR.

Offsets are Python characters (code points). Knows no documents, versions or protocol types.
"""

from __future__ import annotations

import bisect
import dataclasses
import re

from tenon_lsp.positions import Encoding, Position, characters_within, units_of

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A text that never changes; an edit makes another one."""

    source: str
    line_starts: list[int]  # never empty, ascending

    @staticmethod
    def of(source: str) -> Text:
        """The index of `source`, read from start to end."""
        return Text(source, _starts(source))

    def edited(self, start: int, end: int, new: str) -> Text:
        """The text with `new` in place of `[start:end]`; only the lines around the edit are read again."""
        source = self.source[:start] + new + self.source[end:]
        first = self.line_of(max(start - 1, 0))  # a CR before the edit may become half of a CRLF
        last = bisect.bisect_right(self.line_starts, end + 1) - 1
        grown = len(source) - len(self.source)
        after = self.line_starts[last + 1 :]
        begin = self.line_starts[first]
        stop = after[0] + grown if after else len(source)
        between = [begin + at for at in _starts(source[begin:stop])]
        if after and between[-1] == stop:
            between.pop()
        return Text(source, [*self.line_starts[:first], *between, *(at + grown for at in after)])

    @property
    def line_count(self) -> int:
        """How many lines there are; a text that ends with a line end has an empty last one."""
        return len(self.line_starts)

    def line_of(self, offset: int) -> int:
        """The line that `offset` is on."""
        return bisect.bisect_right(self.line_starts, offset, lo=1) - 1

    def line_span(self, line: int) -> tuple[int, int]:
        """Start and end of a line without its line end; past the last line, the empty span at the end."""
        if line >= self.line_count:
            return len(self.source), len(self.source)
        start = self.line_starts[max(line, 0)]
        return start, start + len(self.line(line))

    def line(self, line: int) -> str:
        """A line's text without its line end."""
        if line >= self.line_count:
            return ""
        line = max(line, 0)
        end = self.line_starts[line + 1] if line + 1 < self.line_count else len(self.source)
        text = self.source[self.line_starts[line] : end]
        return text.removesuffix("\n").removesuffix("\r") if line + 1 < self.line_count else text

    def offset(self, position: Position, encoding: Encoding) -> int:
        """The offset of `position`, clamped as the module says."""
        start, _ = self.line_span(position.line)
        return start + characters_within(self.line(position.line), position.character, encoding)

    def position(self, offset: int, encoding: Encoding) -> Position:
        """The position of `offset`, clamped as the module says."""
        offset = min(max(offset, 0), len(self.source))
        if self.source[offset - 1 : offset + 1] == "\r\n":
            offset -= 1
        line = self.line_of(offset)
        return Position(line, units_of(self.source[self.line_starts[line] : offset], encoding))


def _starts(source: str) -> list[int]:
    return [0, *(found.end() for found in _LINE_END.finditer(source))]


def common_length(one: str, other: str) -> int:
    """How many characters both begin with, found by halving: comparing whole pieces is what strings do fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
