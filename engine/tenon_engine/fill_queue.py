"""Which fill comes next: the newest one of a session, and one session after the other.

Owns the fills that wait and which of them run. Safe in one thread at a time. Knows neither threads nor engines.
"""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from tenon_engine.errors import BusyError, EngineError
from tenon_engine.wire import FillRequest, FillResult, FillStep

RETRY_AFTER_S = 1.0  # before any fill has ended
NEWEST_SHARE = 0.2  # of the fill that ended last in the average of how long one takes

Listener = Callable[[FillStep | FillResult | EngineError], None]
"""Told the steps of a fill, if it asked for them, and last the result or why there is none. Must not block."""


@dataclasses.dataclass(slots=True, eq=False)
class Fill:
    """A request and who waits for the answer; `is_cancelled` is set by any thread and seen between two steps."""

    request: FillRequest
    listener: Listener
    with_steps: bool
    submitted_at: float = dataclasses.field(default_factory=time.monotonic)
    started_at: float = 0.0
    is_cancelled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Displaced:
    """A fill that waited and has made room: for a newer one of its session, or, with `error`, for another session."""

    fill: Fill
    error: BusyError | None = None


class FillQueue:
    """The fills that wait, by session in the order of their turns, and those that run.

    Invariant: of a session (but '', which is none) at most one fill waits and at most one runs. A fill leaves the
    queue once: out of `next`, of `add` of a newer one, of `drop` or of `drop_all`. Whoever gets it there answers it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[str, deque[Fill]] = OrderedDict()  # who is first is next
        self._running: list[Fill] = []
        self._fill_s: float | None = None  # one takes, of late

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._sessions and not self._running

    def add(self, fill: Fill) -> Displaced | None:
        """Queue `fill`. Of its session the fill that runs is stopped, and the one that waited gives it its place.

        Where all places are taken, the newest of several that no session binds gives its own to a session that has
        none. Raises BusyError when nobody does. Whoever is displaced is to be answered.
        """
        session = fill.request.session
        waiting = self._sessions.get(session, deque())
        displaced = None
        if session and waiting:
            displaced = Displaced(waiting.popleft())
        elif len(self) >= self._limit:
            displaced = self._displaced_for(session)
        for older in self._running:
            if session and older.request.session == session:
                older.is_cancelled = True
        waiting.append(fill)
        self._sessions[session] = waiting
        return displaced

    def next(self) -> Fill | None:
        """The fill to run now, if there is one; its session has its next turn after all others that wait now."""
        busy = {fill.request.session for fill in self._running} - {""}
        session = next((session for session in self._sessions if session not in busy), None)
        if session is None:
            return None
        fill = self._sessions[session].popleft()
        self._sessions.move_to_end(session)
        self._forget_if_empty(session)
        fill.started_at = time.monotonic()
        self._running.append(fill)
        return fill

    def finish(self, fill: Fill) -> None:
        """A fill that `next` gave is over."""
        self._running.remove(fill)
        seconds = time.monotonic() - fill.started_at
        self._fill_s = (
            seconds if self._fill_s is None else self._fill_s + NEWEST_SHARE * (seconds - self._fill_s)
        )

    def drop(self, fill: Fill) -> bool:
        """Stop `fill`; True when it only waited."""
        fill.is_cancelled = True
        session = fill.request.session
        if fill not in self._sessions.get(session, ()):
            return False
        self._sessions[session].remove(fill)
        self._forget_if_empty(session)
        return True

    def drop_all(self) -> list[Fill]:
        """Stop everything; returns what only waited."""
        waiting = [fill for fills in self._sessions.values() for fill in fills]
        for fill in (*waiting, *self._running):
            fill.is_cancelled = True
        self._sessions.clear()
        return waiting

    def _displaced_for(self, session: str) -> Displaced:
        busy = BusyError(
            f"the engine is busy: {self._limit} requests wait already", retry_after_s=self._room_s()
        )
        crowd = self._sessions.get("", deque())
        if not session or len(crowd) < 2:
            raise busy
        return Displaced(crowd.pop(), busy)

    def _room_s(self) -> float:
        """In how many seconds there may be room: when the next of those that run has ended."""
        return RETRY_AFTER_S if self._fill_s is None else self._fill_s / max(1, len(self._running))

    def _forget_if_empty(self, session: str) -> None:
        if not self._sessions[session]:
            del self._sessions[session]
