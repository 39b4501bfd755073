"""Keys and values of contexts, kept between the fills of a session (between keystrokes).

Validity: attention in a context is causal, so keys and values hold exactly as far as the ids before them are the same;
what follows the longest common prefix with the last context is dropped. Canvas entries written behind a context are
never part of it. Safe to use from several threads. Knows ids, not text; owns no sampling.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

SESSIONS_MAX = 16  # of the embedded model, 10 MB each with the default budgets


class Context(Protocol):
    """A model's own store of one context."""

    ids: list[int]

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` ids."""
        ...


C = TypeVar("C", bound=Context)


class ContextCache(Generic[C]):
    """The last context of each session, the least recently used forgotten first."""

    def __init__(self, new: Callable[[], C], *, sessions_max: int = SESSIONS_MAX) -> None:
        self._new = new
        self._sessions_max = sessions_max
        self._contexts: OrderedDict[str, C] = OrderedDict()
        self._changing = threading.Lock()

    def begin(self, session: str, ids: Sequence[int]) -> C:
        """The session's context, cropped to what it shares with `ids`; the caller encodes the rest and gives it back.

        Until then it is the caller's alone: a second request of the session meanwhile gets a new one.
        """
        with self._changing:
            context = self._contexts.pop(session, None)
        if context is None:
            context = self._new()
        context.crop(common_length(context.ids, ids))
        return context

    def keep(self, session: str, context: C) -> None:
        """Take a context back, for the session's next request."""
        with self._changing:
            self._contexts[session] = context
            self._contexts.move_to_end(session)
            while len(self._contexts) > self._sessions_max:
                self._contexts.popitem(last=False)


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
