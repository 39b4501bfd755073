"""Fills asked for by coroutines and answered from a backend's threads.

Owns the way from one to the other, and what is counted and logged of a fill. Whoever leaves the context of a fill
before its end cancels it. Knows nothing of what was asked over the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Iterator

from tenon_engine.errors import BusyError, EngineError
from tenon_engine.server.backend import Backend
from tenon_engine.server.metrics import Metrics
from tenon_engine.wire import Cost, FillRequest, FillResult, FillStep

PENDING_EVENTS_MAX = (
    64  # of a client that reads slower than the engine thinks; then it misses steps, never the end
)

logger = logging.getLogger(__name__)


class Fills:
    """Where routes ask for fills."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def open(self, request: FillRequest, *, with_steps: bool = False) -> Iterator[Inbox]:
        """Ask for a fill, whose events are in the inbox; raises BusyError when too many wait."""
        inbox, started = Inbox(), time.monotonic()
        try:
            ticket = self._backend.submit(request, inbox.put, with_steps=with_steps)
        except BusyError:
            self._metrics.count_refusal()
            raise
        self._metrics.open_fills.inc()
        try:
            yield inbox
        finally:
            ticket.cancel()
            self._metrics.open_fills.dec()
            self._record(inbox.end, time.monotonic() - started)

    async def result(self, request: FillRequest) -> FillResult:
        """The answer to `request`."""
        with self.open(request) as inbox:
            while isinstance(event := await inbox.next(), FillStep):
                pass
            return event

    def warm(self) -> None:
        """Have the model loaded soon."""
        self._backend.warm()

    def _record(self, end: FillResult | EngineError | None, seconds: float) -> None:
        cost, number = Cost(), next(self._numbers)
        match end:
            case FillResult():
                outcome, cost = end.stopped.value, end.cost
            case EngineError():
                outcome = "error"
                logger.info("fill %d: %s", number, end.code)
            case None:
                outcome = "abandoned"
        self._metrics.count_fill(outcome, seconds, cost)
        logger.info(
            "fill %d: %s, %d forwards, %d of %d context tokens reused, context %.0f ms, denoising %.0f ms, "
            "total %.0f ms",
            number,
            outcome,
            cost.forwards,
            cost.reused_tokens,
            cost.context_tokens,
            cost.context_ms,
            cost.denoise_ms,
            seconds * 1e3,
        )


class Inbox:
    """The events of one fill: put in by any thread, taken out by one coroutine."""

    def __init__(self) -> None:
        self.end: FillResult | EngineError | None = None
        self._events: deque[FillStep | FillResult | EngineError] = deque(maxlen=PENDING_EVENTS_MAX)
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, event: FillStep | FillResult | EngineError) -> None:
        """Hand an event over, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
            self._loop.call_soon_threadsafe(self._take, event)

    async def next(self) -> FillStep | FillResult:
        """Wait for the next event; raises it when it is an error."""
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, EngineError):
            raise event
        return event

    def _take(self, event: FillStep | FillResult | EngineError) -> None:
        if not isinstance(event, FillStep):
            self.end = event
        self._events.append(event)
        self._arrived.set()
