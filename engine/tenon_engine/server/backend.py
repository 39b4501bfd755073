"""The part of a worker that the HTTP app uses, so that anything with this surface can be served.

Knows nothing of HTTP, nor of how fills are scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tenon_engine.wire import EngineInfo, FillRequest
from tenon_engine.worker import Listener, WorkerState


class Ticket(Protocol):
    """One fill that was submitted."""

    def cancel(self) -> None:
        """Stop it between two steps, if it is not done; may be called again."""
        ...


class Backend(Protocol):
    """Who fills."""

    @property
    def info(self) -> EngineInfo | None:
        """What is loaded, or was."""
        ...

    @property
    def state(self) -> WorkerState:
        """Whether the weights are loaded."""
        ...

    @property
    def progress(self) -> tuple[str, int | None]:
        """What loading is busy with, and per cent of it where they are known."""
        ...

    @property
    def failure(self) -> str:
        """Why loading failed, in a sentence; '' when it did not."""
        ...

    def submit(self, request: FillRequest, listener: Listener, *, with_steps: bool) -> Ticket:
        """Queue a fill; `listener` is called from another thread, last with a result or an error.

        Raises BusyError when the queue is full.
        """
        ...

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, when one of the properties changes; returns how to end that."""
        ...

    def warm(self) -> None:
        """Load the weights, if they are not, without waiting for them."""
        ...
