"""When an engine whose fills fail one after the other is ill: a rule about the ends of fills, and its sentence.

Knows no threads, no states and no models.
"""

from __future__ import annotations

from tenon_engine.errors import EngineError, ModelFailedError
from tenon_engine.wire import FillResult, Stopped

FAILURES_MAX = 3  # in a row; one alone may be the fault of what was asked


class FailureCount:
    """How often the model failed since it last did not."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def judge(self, end: FillResult | EngineError) -> ModelFailedError | None:
        """Take note of a fill's end; an error that says why the model is no good, None while it may be.

        A fill that was stopped, or was refused, says nothing about the model.
        """
        match end:
            case FillResult(stopped=Stopped.DONE):
                self._in_a_row = 0
            case ModelFailedError():
                self._in_a_row += 1
                if self._in_a_row == FAILURES_MAX:
                    return end
        return None
