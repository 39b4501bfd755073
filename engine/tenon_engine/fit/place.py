"""Where a fill stands: the text near a hole, split the way every rule needs it."""

from __future__ import annotations

import dataclasses

REACH_CHARACTERS = 16_384  # on either side: what lies further off never decides about a fill


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The surroundings of a hole: `left + fill + right`, and their lines."""

    left: str
    right: str
    above: tuple[str, ...]  # whole lines before the hole's line
    before: str  # the hole's line up to the hole
    tail: str  # what follows the hole on its line
    below: tuple[str, ...]  # whole lines after it
    starts_document: bool  # whether `left` reaches to its start, as far as can be seen

    @staticmethod
    def between(prefix: str, suffix: str) -> Place:
        """The place between `prefix` and `suffix`, as far as it matters."""
        left, right = prefix[-REACH_CHARACTERS:], suffix[:REACH_CHARACTERS]
        *above, before = left.split("\n")
        tail, *below = right.split("\n")
        starts, ends = len(left) == len(prefix), len(right) == len(suffix)
        begins_inside = left.lstrip("\n")[:1] in (" ", "\t") and bool(above)  # an excerpt of a document
        return Place(
            left=left,
            right=right,
            above=tuple(above if starts else above[1:]),
            before=before,
            tail=tail,
            below=tuple(below if ends else below[:-1]),
            starts_document=starts and not begins_inside,
        )

    def end_line(self, text: str) -> str:
        """`text` with a line end if it fills whole lines before one whose indentation follows the hole."""
        before_a_line = not self.before and self.tail[:1] in (" ", "\t") and self.tail.strip()
        unended = text.strip() and not text.endswith(("\n", " ", "\t"))
        return text + "\n" if before_a_line and unended else text

    def keep_lines(self, lines: list[str], count: int) -> str:
        """The first `count` of a fill's lines, ended so that the tail stays on its own line if it was."""
        if count and self.tail.strip() and not lines[-1].strip():
            return "\n".join([*lines[:count], lines[-1]])
        return "\n".join(lines[:count]).rstrip()
