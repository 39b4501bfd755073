"""One engine for any number of clients: loaded when it is wanted, filling in several threads, dropped when it is idle.

Owns the threads, the life of the engine, and that every fill has exactly one last event. Which fill comes next is
`fill_queue`'s; how fills share a model is `batching`'s. Knows nothing of HTTP, of models or of files.

Threads: the keeper loads the engine, ends it and is there only as long as it is; the fillers are there while the engine
is ready.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tenon_engine import excerpt, memory
from tenon_engine.errors import BusyError, EngineError
from tenon_engine.failures import FAILURES_MAX, FailureCount
from tenon_engine.fill_queue import RETRY_AFTER_S, Fill, FillQueue, Listener
from tenon_engine.progress import STAGES, Progress
from tenon_engine.wire import EngineInfo, FillRequest, FillResult, FillStep, Hole, HoleFill, Stopped

if TYPE_CHECKING:
    from tenon_engine.engine import Engine

__all__ = ["Listener", "Ticket", "Worker", "WorkerState"]

QUEUE_LIMIT, PARALLEL = 64, 8
FILL_MS_MAX = 120_000  # of a fill without a deadline of its own

logger = logging.getLogger(__name__)


class WorkerState(enum.Enum):
    """How the engine is."""

    IDLE = "idle"  # not loaded, until it is wanted
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"  # could not be loaded, or failed fill after fill; loaded anew when it is wanted again
    CLOSED = "closed"


@dataclasses.dataclass(frozen=True, slots=True)
class Ticket:
    """A fill that was submitted."""

    cancel: Callable[[], None]
    """Stop it, between two steps if it runs; nothing happens when it is over."""


class Worker:
    """Fills for everybody.

    Invariant: `state` and the queue change under the lock; nobody is told anything under it.
    """

    def __init__(
        self,
        load: Callable[[Progress], Engine],
        *,
        queue_limit: int = QUEUE_LIMIT,
        parallel: int = PARALLEL,
        idle_unload_s: float | None = None,
    ) -> None:
        self.info: EngineInfo | None = None  # of the engine that is loaded, or was
        self.state = WorkerState.IDLE
        self.progress: tuple[str, int | None] = ("", None)  # what loading is busy with, per cent where known
        self.failure = ""
        self._load = load
        self._parallel = parallel
        self._idle_unload_s = idle_unload_s
        self._changed = threading.Condition()
        self._queue = FillQueue(queue_limit)
        self._idle_since = 0.0
        self._is_wanted = False  # once more, after all that the keeper has seen
        self._keeper: threading.Thread | None = None
        self._subscribers: list[Callable[[], None]] = []

    def submit(self, request: FillRequest, listener: Listener, *, with_steps: bool) -> Ticket:
        """Queue a fill, and load the engine if it is not. Raises BusyError when the queue is full.

        The listener is called from a thread of the worker; when the fill only waits and is cancelled, or another one
        takes its place, from the thread that does so.
        """
        fill = Fill(request, listener, with_steps)
        with self._changed:
            if self.state is WorkerState.CLOSED:
                raise BusyError("the engine is ending", retry_after_s=RETRY_AFTER_S)
            displaced = self._queue.add(fill)
            self._want()
        if displaced is not None and displaced.error is not None:
            _tell(displaced.fill, displaced.error)
        elif displaced is not None:
            self._answer_stopped(displaced.fill)
        return Ticket(lambda: self._cancel(fill))

    def warm(self) -> None:
        """Load the engine, if it is not, without waiting for it."""
        with self._changed:
            if self.state is not WorkerState.CLOSED:
                self._want()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, when `state` or `progress` changes; returns what ends that."""
        self._subscribers.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(listener)

        return unsubscribe

    def close(self) -> None:
        """Answer everything "cancelled" and end all threads; waits for the steps, or the loading, that are under way.

        Not to be called from a listener.
        """
        with self._changed:
            waiting = self._queue.drop_all()
            self._move(WorkerState.CLOSED)
            keeper = self._keeper
        self._tell_subscribers()
        for fill in waiting:
            self._answer_stopped(fill)
        if keeper is not None:
            keeper.join()

    def _want(self) -> None:
        self._is_wanted = True
        self._changed.notify_all()
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="tenon-engine", daemon=True)
            self._keeper.start()

    def _cancel(self, fill: Fill) -> None:
        with self._changed:
            only_waited = self._queue.drop(fill)
        if only_waited:
            self._answer_stopped(fill)

    def _answer_stopped(self, fill: Fill) -> None:
        """What the engine answers to a fill that is cancelled before its first step."""
        holes = [segment for segment in fill.request.segments if isinstance(segment, Hole)]
        nothing = HoleFill((), Stopped.CANCELLED.value)
        model = self.info.model if self.info else ""
        _tell(fill, FillResult((nothing,) * len(holes), model, Stopped.CANCELLED))

    def _keep(self) -> None:
        """The keeper: load and drop the engine for as long as somebody wants it."""
        while self._take_up():
            engine = self._loaded()
            if engine is not None:
                with self._fillers(engine):
                    self._await_end()
                del engine
                memory.free()
                self._tell_subscribers()

    def _take_up(self) -> bool:
        """Begin to load, or end the keeper when nobody wants it."""
        with self._changed:
            if not self._is_wanted or self.state is WorkerState.CLOSED:
                self._keeper = None
                return False
            self._is_wanted = False
            self._move(WorkerState.LOADING)
        self._tell_subscribers()
        return True

    def _loaded(self) -> Engine | None:
        try:
            engine = self._load(self._reporter())
        except EngineError as error:
            self._fail(error)
            return None
        except Exception as error:
            logger.debug("loading failed", exc_info=True)
            self._fail(EngineError(f"the model cannot be loaded ({type(error).__name__}: {error})"))
            return None
        with self._changed:
            self.info, self._idle_since = engine.info, time.monotonic()
            self._move(WorkerState.READY)
        self._tell_subscribers()
        return engine

    def _fail(self, error: EngineError) -> None:
        with self._changed:
            self._is_wanted = False
            waiting = self._queue.drop_all()
            self._move(WorkerState.FAILED, excerpt.one_line(str(error)))
        self._tell_subscribers()
        for fill in waiting:
            _tell(fill, error)

    def _reporter(self) -> Progress:
        """A Progress that tells of each stage and each per cent once, not of every block of bytes."""

        def report(stage: str, done_bytes: int, total_bytes: int) -> None:
            percent = min(100, 100 * done_bytes // total_bytes) if total_bytes else None
            if self.progress != (progress := (STAGES[stage], percent)):
                self.progress = progress
                self._tell_subscribers()

        return report

    @contextlib.contextmanager
    def _fillers(self, engine: Engine) -> Iterator[None]:
        """The threads that fill, at work until the state is READY no more."""
        failures = FailureCount()
        threads = [
            threading.Thread(
                target=self._fill_on, args=(engine, failures), name=f"tenon-fill-{number}", daemon=True
            )
            for number in range(1, self._parallel + 1)
        ]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()

    def _await_end(self) -> None:
        """Until the engine was idle for long enough, has failed too often, or the worker is closed."""
        with self._changed:
            while self.state is WorkerState.READY:
                left_s = None
                if self._idle_unload_s is not None and self._queue.is_idle:
                    left_s = self._idle_since + self._idle_unload_s - time.monotonic()
                    if left_s <= 0:
                        self._is_wanted = False
                        self._move(WorkerState.IDLE)
                        break
                self._changed.wait(left_s)

    def _fill_on(self, engine: Engine, failures: FailureCount) -> None:
        while (fill := self._next()) is not None:
            end = self._end_of(fill, engine)
            self._judge(end, failures)
            _tell(fill, end)
            with self._changed:
                self._queue.finish(fill)
                self._idle_since = time.monotonic()
                self._changed.notify_all()

    def _judge(self, end: FillResult | EngineError, failures: FailureCount) -> None:
        """Give the engine up when its model fails fill after fill."""
        with self._changed:
            error = failures.judge(end)
        if error is not None:
            logger.warning(
                "the model failed %d times in a row, and is given up: %s",
                FAILURES_MAX,
                excerpt.one_line(str(error)),
            )
            self._fail(error)

    def _next(self) -> Fill | None:
        with self._changed:
            while self.state is WorkerState.READY:
                if (fill := self._queue.next()) is not None:
                    return fill
                self._changed.wait()
        return None

    def _end_of(self, fill: Fill, engine: Engine) -> FillResult | EngineError:
        """Run a fill, telling its steps; its last event."""
        try:
            for event in engine.stream(_what_is_left(fill), cancelled=lambda: fill.is_cancelled):
                if isinstance(event, FillResult):
                    return event
                if fill.with_steps and not fill.is_cancelled:
                    _tell(fill, event)
        except EngineError as error:
            return error
        except Exception as error:
            logger.debug("a fill failed", exc_info=True)
            return EngineError(f"the engine failed ({type(error).__name__})")
        raise AssertionError("a stream ends with its result")

    def _move(self, state: WorkerState, failure: str = "") -> None:
        """Change the state, unless it is CLOSED for good."""
        if self.state is not WorkerState.CLOSED:
            self.state, self.failure = state, failure
            self.progress = ("loading" if state is WorkerState.LOADING else "", None)
            self._changed.notify_all()

    def _tell_subscribers(self) -> None:
        for listener in tuple(self._subscribers):
            try:
                listener()
            except Exception:
                logger.exception("a subscriber failed")


def _what_is_left(fill: Fill) -> FillRequest:
    """The request with the time that is left of its own: its clock runs while it waits, too.

    One without a deadline gets a long one, so that others have their turn.
    """
    limit_ms = fill.request.deadline_ms
    if limit_ms is None:
        return dataclasses.replace(fill.request, deadline_ms=FILL_MS_MAX)
    if limit_ms <= 0:  # the engine says what is wrong with it
        return fill.request
    waited_ms = int((time.monotonic() - fill.submitted_at) * 1e3)
    return dataclasses.replace(fill.request, deadline_ms=max(1, limit_ms - waited_ms))


def _tell(fill: Fill, event: FillStep | FillResult | EngineError) -> None:
    try:
        fill.listener(event)
    except Exception:
        logger.exception("the listener of a fill failed")
