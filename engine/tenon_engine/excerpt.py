"""The few lines around a hole, for showing a fill in its surroundings.

Owns what is cut and how odd characters are made visible; knows no colours, no terminal and no page.
"""

from __future__ import annotations

import dataclasses
import re

MAX_CHARACTERS = 2_000  # on either side: a line of a megabyte is cut too
CUT = "…"

_LINE_END = re.compile(r"\r\n|\r|\n")
# Control characters would move a terminal's cursor, bidi controls would reorder what is read: both are shown instead.
_UNPICTURED = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_PICTURES: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **{code: f"<U+{code:04X}>" for code in _UNPICTURED},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Excerpt:
    """Text just before and just after a hole, line ends LF; `first_line` is the number of its first line."""

    before: str
    after: str
    first_line: int


def around(prefix: str, suffix: str, line_count: int) -> Excerpt:
    """The hole's own line and up to `line_count` lines on either side of it, marked where a line is cut."""
    before = plain(prefix[-MAX_CHARACTERS:]).split("\n")
    if len(prefix) > MAX_CHARACTERS:
        before[0] = CUT + before[0]
    after = plain(suffix[:MAX_CHARACTERS]).split("\n")
    if len(suffix) > MAX_CHARACTERS:
        after[-1] += CUT
    before, after = before[-line_count - 1 :], after[: line_count + 1]
    hole_line = 1 + sum(1 for _ in _LINE_END.finditer(prefix))
    return Excerpt("\n".join(before), "\n".join(after), hole_line - len(before) + 1)


def plain(text: str) -> str:
    """`text` with LF line ends and every other control character but the tab made visible."""
    return _LINE_END.sub("\n", text).translate(_PICTURES)


def one_line(text: str) -> str:
    """`text` as a message: on one line, with nothing in it that a terminal would obey."""
    return " ".join(plain(text).split())
