"""One network for the fills of several threads: forward passes that are wanted at the same time are one.

Owns whose turn it is. There is no thread here: of the threads that wait for a forward, one runs it for all of them, so
a fill that is alone pays nothing. Context is encoded between two forwards, a chunk at a time, so that no canvas waits
for a long context. Knows nothing of fills, sessions or plans.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from tenon_engine.denoise import Network
from tenon_engine.view import View

STRAGGLERS_SHARE = 0.25  # of a turn: how long the next one waits at most for fills that look at what they got
STRAGGLERS_S_MAX = 0.025
ENTRIES_MAX = 128  # of a joint forward: beyond it, reading the weights once for all saves next to nothing

C = TypeVar("C")

logger = logging.getLogger(__name__)


class CausalNetwork(Network[C], Protocol[C]):
    """A network whose context is encoded causally, before and apart from the canvas."""

    def new_context(self) -> C:
        """An empty context."""
        ...

    def extend(self, context: C, ids: list[int]) -> None:
        """Encode `ids` behind what `context` holds."""
        ...

    def defer(self, context: C, ids: list[int]) -> None:
        """Let `ids` follow in `context`, encoded by the next forward on it."""
        ...


class _GivenUpError(Exception):
    """The fill is stopped, and its forward had not begun."""


@dataclasses.dataclass(slots=True, eq=False)
class _Turn(Generic[C]):
    """What one thread wants of a forward, and then what it gets."""

    passes: Sequence[tuple[C, View]]
    is_stopped: Callable[[], object]
    logits: list[Tensor] | None = None
    error: Exception | None = None
    is_alone: bool = False  # after a joint forward that failed: whose fault it was will show
    is_running: bool = False

    @property
    def is_done(self) -> bool:
        return self.logits is not None or self.error is not None

    @property
    def entry_count(self) -> int:
        return sum(len(view.reads) for _, view in self.passes)


class BatchedNetwork(Generic[C]):
    """A network that any number of threads may use, each on contexts of its own.

    Invariant: while `_is_taken`, exactly one thread uses the network, without holding the lock.
    """

    def __init__(self, network: CausalNetwork[C]) -> None:
        self._network = network
        self._changed = threading.Condition()
        self._forwards: list[_Turn[C]] = []  # not done yet, oldest first
        self._encodings: set[int] = set()  # ages of the fills that want to encode
        self._ages = itertools.count()
        self._thread = threading.local()  # its fill's age, and whether that is stopped
        self._is_taken = False
        self._encoded_last = False
        self._taken_at = self._wait_until = 0.0
        self._fill_count = 0

    @property
    def fill_count(self) -> int:
        """How many fills use the network now."""
        return self._fill_count

    @contextlib.contextmanager
    def joined(self, is_stopped: Callable[[], object]) -> Iterator[None]:
        """While this is entered, others may wait a moment for the next forward of this fill.

        Once `is_stopped` says so, the fill leaves with the next forward that it would have to wait for.
        """
        with self._changed:
            self._fill_count += 1
        self._thread.age, self._thread.is_stopped = next(self._ages), is_stopped
        try:
            with contextlib.suppress(_GivenUpError):
                yield
        finally:
            self._thread.is_stopped = _never
            with self._changed:
                self._fill_count -= 1
                self._changed.notify_all()

    def new_context(self) -> C:
        """An empty context."""
        return self._network.new_context()

    def extend(self, context: C, ids: list[int]) -> None:
        """Encode `ids` behind what `context` holds, as soon as it is this thread's turn."""
        with self._encoding():
            self._network.extend(context, ids)

    def defer(self, context: C, ids: list[int]) -> None:
        """Let `ids` follow in `context`, encoded by the next forward on it."""
        self._network.defer(context, ids)

    def forward(self, passes: Sequence[tuple[C, View]]) -> list[Tensor]:
        """Logits f32 [scored, vocabulary] per row, from a forward that other threads may have a part in."""
        turn = _Turn(passes, getattr(self._thread, "is_stopped", _never))
        try:
            while batch := self._claim(turn):
                self._run(batch)
        finally:
            with self._changed:
                if turn in self._forwards:
                    self._forwards.remove(turn)
        if turn.error is not None:
            raise turn.error
        assert turn.logits is not None, "a turn that is done has failed or has its logits"
        return turn.logits

    def _claim(self, turn: _Turn[C]) -> list[_Turn[C]]:
        """Take the network for the turns to run next; none when this one is done, by whichever thread."""
        with self._changed:
            if turn not in self._forwards and not turn.is_done:
                self._forwards.append(turn)
                self._changed.notify_all()
            if not (turn.is_done or self._may_forward()):
                self._await_turn(turn)
            if turn.is_done:
                return []
            self._is_taken = True
            wait_s = self._wait_until - time.monotonic()
            if wait_s > 0:
                self._changed.wait_for(self._all_are_here, timeout=wait_s)
            self._taken_at = time.monotonic()
            batch = [turn] if turn.is_alone else self._batch(turn)
            for each in batch:
                each.is_running = True
            return batch

    def _await_turn(self, turn: _Turn[C]) -> None:
        def is_given_up() -> bool:
            return not turn.is_running and bool(turn.is_stopped())

        self._changed.wait_for(lambda: turn.is_done or self._may_forward() or is_given_up())
        if not turn.is_done and is_given_up():
            raise _GivenUpError

    def _may_forward(self) -> bool:
        return not self._is_taken and (self._encoded_last or not self._encodings)

    def _all_are_here(self) -> bool:
        """Whether every fill waits for the network; those that do not are busy with what it said."""
        return len(self._forwards) + len(self._encodings) >= self._fill_count

    def _batch(self, own: _Turn[C]) -> list[_Turn[C]]:
        """The oldest turns, one at least, and no more than pays."""
        batch: list[_Turn[C]] = []
        entry_count = 0
        for turn in self._forwards:
            if turn is not own and turn.is_stopped():
                continue
            entry_count += turn.entry_count
            if batch and entry_count > ENTRIES_MAX:
                break
            if not turn.is_alone:
                batch.append(turn)
        return batch

    def _run(self, batch: Sequence[_Turn[C]]) -> None:
        """One forward for all of `batch`; where that fails, each of them gets one of its own."""
        try:
            logits = iter(self._network.forward([each for turn in batch for each in turn.passes]))
            for turn in batch:
                turn.logits = [next(logits) for _ in turn.passes]
        except Exception as error:
            logger.debug("a forward for %d failed", len(batch), exc_info=True)
            if len(batch) == 1:
                batch[0].error = error
            for turn in batch:
                turn.is_alone = True
        finally:
            with self._changed:
                for turn in batch:
                    turn.is_running = False
                self._forwards = [turn for turn in self._forwards if not turn.is_done]
                self._free(encoded=False)

    @contextlib.contextmanager
    def _encoding(self) -> Iterator[None]:
        """The network for a chunk of context: the oldest fill's first, in turn with the forwards of canvases.

        Contexts that took turns with each other would all be late.
        """
        age: int | None = getattr(self._thread, "age", None)
        with self._changed:
            if age is None:  # nobody's fill
                age = next(self._ages)
            self._encodings.add(age)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._may_encode(age))
            self._encodings.remove(age)
            self._is_taken, self._taken_at = True, time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                self._free(encoded=True)

    def _may_encode(self, age: int) -> bool:
        is_next = not self._is_taken and min(self._encodings) == age
        return is_next and not (self._encoded_last and self._forwards)

    def _free(self, *, encoded: bool) -> None:
        now = time.monotonic()
        self._is_taken, self._encoded_last = False, encoded
        self._wait_until = now + min(STRAGGLERS_SHARE * (now - self._taken_at), STRAGGLERS_S_MAX)
        self._changed.notify_all()


def _never() -> bool:
    return False
