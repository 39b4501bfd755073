"""The outcome of fit, and the reasons it can give."""

from __future__ import annotations

import dataclasses
import enum


class Reason(enum.Enum):
    """A rule of fit that changed the text."""

    CONTROL = "control token"
    INDENTATION = "indentation"
    SUFFIX_ECHO = "repeats what follows"
    PREFIX_ECHO = "repeats what stands before"
    LOOP = "repeats itself"
    BRACKETS = "unneeded bracket"
    CLOSED = "bracket closed"
    LINE_END = "line end added"
    BLANK = "blank"


@dataclasses.dataclass(frozen=True, slots=True)
class Fitted:
    """A text that fits, and every rule that changed it on the way."""

    text: str
    reasons: frozenset[Reason] = frozenset()

    @property
    def reason(self) -> str:
        """The reasons as one phrase, '' when the text stands as it was."""
        return ", ".join(reason.value for reason in Reason if reason in self.reasons)
