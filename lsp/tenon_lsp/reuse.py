"""Recent answers of each document, given again from memory while the user types along.

An answer still holds when the document lies between the one it was made for and the one that taking it gives:
the cursor's left has grown by a beginning of the text, its right by an end of it (a pair that the editor closed), and
nothing else has changed. What is recalled is the rest, so taking it gives exactly the document the answer promised.

Knows no versions, requests or protocol types, and never asks the engine.
"""

from __future__ import annotations

import dataclasses

ANSWERS_KEPT = 8  # of each document

_CLOSERS = frozenset(")]};, \t\r\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """An answer: all text before and behind the hole, and the texts for it with their confidence, best first."""

    prefix: str
    suffix: str
    texts: tuple[tuple[str, float], ...]


class Reuse:
    """The last answers by document, newest first and at most one for each place."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[Shown, ...]] = {}

    def remember(self, uri: str, shown: Shown) -> None:
        """Keep an answer; it replaces an older one for the same place, an answer without texts just removes that."""
        place = (shown.prefix, shown.suffix)
        kept = tuple(old for old in self._shown.get(uri, ()) if (old.prefix, old.suffix) != place)
        self._shown[uri] = ((shown, *kept) if shown.texts else kept)[:ANSWERS_KEPT]

    def recall(self, uri: str, prefix: str, suffix: str) -> tuple[tuple[str, float], ...] | None:
        """What is left of the newest answer that holds for the document `prefix + suffix`, best first; else None.

        `prefix + text + suffix` is the document that taking the answer itself would have given, for every text.
        """
        for shown in self._shown.get(uri, ()):
            rests = _rests(shown, prefix, suffix)
            # The two comparisons that may read megabytes come last, and copy nothing.
            if rests and prefix.startswith(shown.prefix) and suffix.endswith(shown.suffix):
                return rests
        return None

    def was_accepted(self, uri: str, prefix: str, text: str) -> bool:
        """Whether `text` only repeats what stands right before the cursor and was just taken from here.

        Blank lines between do not matter. Closing brackets may follow each other, and so may lines that end one
        block after the other (`end`, then a less indented `end`): they are no repeats.
        """
        offered, standing = text.strip(), prefix.rstrip()
        if set(offered) <= _CLOSERS or not standing.endswith(offered):
            return False
        head = _line_head(standing[: -len(offered)])
        if _indent(head) != _indent(_line_head(prefix + text[: text.index(offered)])):
            return False
        taken = {filled.strip() for shown in self._shown.get(uri, ()) for filled, _ in shown.texts}
        # A line may have been typed by hand up to where the text that completed it was taken.
        return offered in taken or (not head.strip() and any(end and offered.endswith(end) for end in taken))

    def forget(self, uri: str) -> None:
        """Drop all answers of a document that was closed."""
        self._shown.pop(uri, None)


def _rests(shown: Shown, prefix: str, suffix: str) -> tuple[tuple[str, float], ...]:
    """What is left of each text, as the characters next to the cursor tell; nothing blank."""
    typed = len(prefix) - len(shown.prefix)
    closed = len(suffix) - len(shown.suffix)
    if typed < 0 or closed < 0:
        return ()
    return tuple(
        (text[typed : len(text) - closed], confidence)
        for text, confidence in shown.texts
        if typed + closed < len(text)
        and prefix.endswith(text[:typed])
        and suffix.startswith(text[len(text) - closed :])
        and not text[typed : len(text) - closed].isspace()
    )


def _line_head(text: str) -> str:
    """What stands on the last line of `text`."""
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
