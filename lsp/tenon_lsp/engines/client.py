"""The engine as the language server sees it: requests, answers, faults and states, whatever runs behind them.

Knows neither processes nor sockets, neither documents nor editors.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from tenon_engine.wire import (
    EngineInfo as EngineInfo,
)  # part of the interface: who asks needs no other import
from tenon_engine.wire import FillRequest, FillResult, FillStep

StepListener = Callable[[FillStep], None]


class EngineFault(enum.Enum):
    """What went wrong, for whoever decides how loudly to say it."""

    STARTING_FAILED = "starting_failed"  # no process, no weights, no such model
    DIED = "died"  # the engine ended, or has ended and is not to be started again yet
    FAILED = "failed"  # this fill failed; the engine is well
    BAD_REQUEST = "bad_request"
    UNAVAILABLE = "unavailable"  # an engine elsewhere does not answer, or not as it should
    BUSY = "busy"  # the engine has more to do than it takes on


class EngineError(Exception):
    """A fault and one sentence about it."""

    def __init__(self, code: EngineFault, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class EngineState(enum.Enum):
    """What an engine is doing, as an editor may show it."""

    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    FAILED = "failed"


class Engine(Protocol):
    """Fills requests; starts itself on first use."""

    info: EngineInfo | None
    """What was loaded; None until then."""

    async def fill(self, request: FillRequest, on_step: StepListener | None = None) -> FillResult:
        """The answer, each step passed to `on_step` before; EngineError if there is none.

        When the waiting task is cancelled, the engine is told at once and stops between two steps.
        """
        ...

    async def warm(self) -> None:
        """Load ahead. Raises no EngineError; loading goes on when the waiting task is cancelled."""
        ...

    async def close(self) -> None:
        """End it for good, within three seconds."""
        ...
