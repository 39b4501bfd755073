"""The only voice to the user: what is wrong, said once until it is well again, and what the engine is doing."""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Callable

from tenon_lsp.engines.client import EngineInfo, EngineState

_log = logging.getLogger(__name__)


class Level(enum.Enum):
    """How loudly a fault is said."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclasses.dataclass(frozen=True, slots=True)
class Activity:
    """What the engine is doing, as a status bar may show it; None is what is not known."""

    state: EngineState = EngineState.STOPPED
    info: EngineInfo | None = None
    percent: int | None = None  # of loading
    latency_ms: float | None = None  # of the last suggestion that the engine wrote


class Status:
    """Says each fault once; a success makes room for it to be said again."""

    def __init__(self, show: Callable[[Level, str], None]) -> None:
        self._show = show
        self._said: set[str] = set()  # codes and sentences

    def fault(self, code: str, sentence: str, level: Level = Level.ERROR) -> None:
        """Tell the user, unless this, or the same sentence, has been said; the log gets it every time."""
        _log.warning("%s: %s", code, sentence)
        if self._said.isdisjoint((code, sentence)):
            self._said |= {code, sentence}
            self._show(level, f"Tenon: {sentence}")

    def say(self, sentence: str, level: Level) -> None:
        """Answer something that the user has asked for; this is said every time."""
        self._show(level, f"Tenon: {sentence}")

    def well(self) -> None:
        """Whatever was wrong is over."""
        self._said.clear()
