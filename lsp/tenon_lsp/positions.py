"""Positions as a client counts them: lines from 0, characters of a line in units of the agreed encoding.

Knows one line at a time; what a whole text's offsets are is `tenon_lsp.text`'s.
"""

from __future__ import annotations

import dataclasses
import enum


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


def characters_within(line: str, unit_count: int, encoding: Encoding) -> int:
    """How many whole characters of `line` fit into its first `unit_count` units."""
    if encoding is Encoding.UTF_32 or line.isascii():
        return min(max(unit_count, 0), len(line))
    for index, character in enumerate(line):
        unit_count -= units_of(character, encoding)
        if unit_count < 0:
            return index
    return len(line)


def units_of(text: str, encoding: Encoding) -> int:
    """The length of `text` in units."""
    if encoding is Encoding.UTF_32 or text.isascii():
        return len(text)
    if encoding is Encoding.UTF_16:
        return len(text) + sum(1 for character in text if character > "\uffff")
    # A lone surrogate has no UTF-8 form; three bytes is what every lenient encoder writes.
    return len(text.encode("utf-8", "surrogatepass"))
