"""When a document's work runs: the newest job wins, after a pause that suits the engine and the typist.

Foreground jobs answer a request; background jobs (prefetch) use the time in which no job runs at all.
Knows no requests, texts or engines, and never looks at how a job ended: no run of failures switches anything off.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

PAUSE_MS_AT_LEAST = 30.0
PAUSE_MS_AT_MOST = 400.0

_USUAL_LATENCY_MS = 300.0  # until the first measurement
_USUAL_GAP_MS = 200.0
_TYPING_GAPS_MS = (40.0, 1000.0)  # quicker is a held key or one key's several edits, slower is thinking
_LATENCIES_KEPT = 8
_GAPS_KEPT = 16
_LATE_KEY = 1.25  # of the usual gap: the next key is not coming

T = TypeVar("T")
Job = Callable[[], Awaitable[T]]

_log = logging.getLogger(__name__)


class Superseded(Exception):  # noqa: N818
    """The answer is not wanted any more: a newer job or a key came, or the scheduler was closed."""


class Scheduler:
    """Runs at most one job of a document at a time, and answers every `run` exactly once.

    Invariant: `_foreground` and `_background` hold the tasks whose outcome is still wanted, `_alive` every task that
    has not ended; a task is cancelled once, when it leaves the first two, so that it can clean up undisturbed.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._foreground: dict[str, asyncio.Task[Any]] = {}
        self._background: dict[str, asyncio.Task[Any]] = {}
        self._alive: dict[asyncio.Task[Any], str] = {}
        self._closed = False
        self._latencies_ms: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self._gaps_ms: deque[float] = deque(maxlen=_GAPS_KEPT)
        self._last_key_s = -float("inf")

    def pause_ms(self, *, fixed_ms: int | None, invoked: bool) -> float:
        """How long to wait for another key before the engine is asked: not at all when asked for by hand.

        With no fixed pause: as long as the engine's answer would come after the next key (its usual latency less the
        usual gap between keys), but no longer than it takes to tell that no key follows (1.25 gaps); 30 to 400 ms.
        """
        if invoked:
            return 0.0
        if fixed_ms is not None:
            return float(fixed_ms)
        latency_ms = statistics.median(self._latencies_ms or [_USUAL_LATENCY_MS])
        gap_ms = statistics.median(self._gaps_ms or [_USUAL_GAP_MS])
        pause_ms = min(latency_ms - gap_ms, _LATE_KEY * gap_ms)
        return min(max(pause_ms, PAUSE_MS_AT_LEAST), PAUSE_MS_AT_MOST)

    def measured(self, latency_ms: float) -> None:
        """Take note of how long the engine took to answer."""
        self._latencies_ms.append(latency_ms)

    async def run(self, uri: str, pause_ms: float, job: Job[T]) -> T:
        """Run `job` after the pause, in place of the document's older job and of all background work.

        Raises what the job raises, and Superseded when `run`, `drop`, `cancel` or `close` ended it. Whatever the
        outcome, and when the caller is cancelled too, the job has stopped when this returns.
        """
        if self._closed:
            raise Superseded
        self._let_go(self._foreground, uri)
        for other in tuple(self._background):
            self._let_go(self._background, other)
        older = [task for task, of in self._alive.items() if of == uri]
        task = self._start(uri, self._after(older, pause_ms, job))
        self._foreground[uri] = task
        interruption = await self._end_of(uri, task)
        if interruption is not None:
            raise interruption
        if self._foreground.get(uri) is not task:
            raise Superseded
        del self._foreground[uri]
        return task.result()

    def cancel(self, uri: str) -> None:
        """A key was typed: as `drop`, and the rhythm of typing is noted."""
        now_s = self._clock()
        gap_ms = (now_s - self._last_key_s) * 1000
        self._last_key_s = now_s
        if _TYPING_GAPS_MS[0] <= gap_ms <= _TYPING_GAPS_MS[1]:
            self._gaps_ms.append(gap_ms)
        self.drop(uri)

    def drop(self, uri: str) -> None:
        """The document's running job and its background job are not wanted any more."""
        self._let_go(self._foreground, uri)
        self._let_go(self._background, uri)

    def background(self, uri: str, job: Job[object]) -> None:
        """Run `job` when all that runs now has ended, unless a `run`, or a key in this document, comes before.

        It replaces the document's older background job. What it raises is logged.
        """
        if self._closed:
            return
        self._let_go(self._background, uri)
        self._background[uri] = self._start(uri, self._after(list(self._alive), 0.0, job))

    async def close(self) -> None:
        """Stop everything for good; no task is left."""
        self._closed = True
        for wanted in (self._foreground, self._background):
            for uri in tuple(wanted):
                self._let_go(wanted, uri)
        if self._alive:
            await asyncio.wait(tuple(self._alive))

    async def _after(self, older: list[asyncio.Task[Any]], pause_ms: float, job: Job[T]) -> T:
        """The job itself, once the pause is over and the older tasks have really stopped."""
        if pause_ms > 0:
            await self._sleep(pause_ms / 1000)
        if older:
            await asyncio.wait(older)
        return await job()

    async def _end_of(self, uri: str, task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
        """Wait until `task` has ended, even while its caller is being cancelled; says whether that was."""
        interruption = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                interruption = error
                if self._foreground.get(uri) is task:
                    self._let_go(self._foreground, uri)
        return interruption

    def _start(self, uri: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._alive[task] = uri
        task.add_done_callback(self._ended)
        return task

    def _let_go(self, wanted: dict[str, asyncio.Task[Any]], uri: str) -> None:
        task = wanted.pop(uri, None)
        if task is not None:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        uri = self._alive.pop(task)
        if self._background.get(uri) is task:
            del self._background[uri]
        if not task.cancelled() and task.exception() and self._foreground.get(uri) is not task:
            _log.warning("work that nobody waits for failed: %r", task.exception())
