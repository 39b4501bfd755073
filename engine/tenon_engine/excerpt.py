"""The few lines around a hole, for showing a fill in its surroundings.

Owns what is cut and how odd characters are made visible; knows no colours, no terminal and no page.
"""

from __future__ import annotations

import dataclasses
import re

MAX_CHARACTERS = 2_000  # on either side: a line of a megabyte is cut too
CUT = "…"

_LINE_END = re.compile(r"\r\n|\r|\n")
# Control characters would move a terminal's cursor: they are shown as their pictures instead.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


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
    """`text` with LF line ends and every other control character but the tab as a visible picture."""
    return _LINE_END.sub("\n", text).translate(_PICTURES)
