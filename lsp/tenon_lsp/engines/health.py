"""How an engine fares: its state, whom the news is told, and how long it is left alone after a fault.

Knows neither processes nor connections, and not what a fill is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator

from tenon_lsp.engines.client import EngineError, EngineState

PAUSE_S_MAX = 8.0  # an engine that is back is found again within ten seconds
TOLD_AGAIN_S = 60.0


def _tell_nobody(*news: object) -> None:
    pass


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told of an engine's faults, of its progress while it loads, and of its states."""

    on_fault: Callable[[EngineError], None] = _tell_nobody
    on_progress: Callable[[str, int | None], None] = _tell_nobody
    on_state: Callable[[EngineState], None] = _tell_nobody


class Health:
    """The state of one engine.

    While a fill is under way an engine that rests READY is BUSY. The same fault is told once a minute at most.
    """

    def __init__(self, listeners: Listeners, clock: Callable[[], float] = time.monotonic) -> None:
        self._listeners = listeners
        self._clock = clock
        self._resting = self._shown = EngineState.STOPPED
        self._fill_count = 0
        self._fault: EngineError | None = None
        self._failures_in_a_row = 0
        self._retry_at = 0.0
        self._told: dict[str, float] = {}

    def check(self) -> None:
        """Raise the fault for which the engine is still left alone."""
        if self._fault is not None and self._clock() < self._retry_at:
            raise EngineError(self._fault.code, str(self._fault))

    @contextlib.contextmanager
    def filling(self) -> Iterator[None]:
        """A fill is under way; when it succeeds, the engine is well."""
        self._fill_count += 1
        self._show()
        try:
            yield
            self.well()
        finally:
            self._fill_count -= 1
            self._show()

    def rest(self, state: EngineState) -> None:
        """This is what the engine does but for fills."""
        self._resting = state
        self._show()

    def progress(self, text: str, percent: int | None) -> None:
        """So far has loading come."""
        self._listeners.on_progress(text, percent)

    def well(self) -> None:
        """Whatever was wrong is over."""
        self._fault = None
        self._failures_in_a_row = 0

    def pause(self, fault: EngineError, at_least_s: float = 0.0) -> None:
        """Leave the engine alone for a time that grows with every failure in a row."""
        self._failures_in_a_row += 1
        self._fault = fault
        self._retry_at = self._clock() + max(at_least_s, pause_s(self._failures_in_a_row))

    def failed(self, fault: EngineError, at_least_s: float = 0.0) -> None:
        """The same for a fault that its user should know of."""
        self.pause(fault, at_least_s)
        self.rest(EngineState.FAILED)
        now, sentence = self._clock(), str(fault)
        self._told = {told: at for told, at in self._told.items() if now - at < TOLD_AGAIN_S}
        if sentence not in self._told:
            self._told[sentence] = now
            self._listeners.on_fault(fault)

    def _show(self) -> None:
        is_busy = self._fill_count and self._resting is EngineState.READY
        state = EngineState.BUSY if is_busy else self._resting
        if state is not self._shown:
            self._shown = state
            self._listeners.on_state(state)


def pause_s(failures_in_a_row: int) -> float:
    """How long an engine is left alone: 0, 1, 2, 4, 8, 8 … s."""
    return 0.0 if failures_in_a_row < 2 else min(PAUSE_S_MAX, 2.0 ** min(failures_in_a_row - 2, 30))
