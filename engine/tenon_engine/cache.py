"""Keys and values of contexts, kept between the fills of a session (between keystrokes).

Fills without a session take the context that is most like theirs, if one of another such fill is.

Validity: attention in a context is causal, so keys and values hold exactly as far as the ids before them are the same;
what follows the longest common prefix with the last context is dropped. Canvas entries written behind a context are
never part of it. Safe to use from several threads. Knows ids, not text; owns no sampling.
"""

from __future__ import annotations

import itertools
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
        self._contexts: OrderedDict[str | int, C] = OrderedDict()  # by session, else by a number
        self._numbers = itertools.count()
        self._changing = threading.Lock()

    def begin(self, session: str, ids: Sequence[int]) -> C:
        """The session's context, cropped to what it shares with `ids`; the caller encodes the rest and gives it back.

        Until then it is the caller's alone: a second request of the session meanwhile gets a new one.
        """
        with self._changing:
            key = session or self._like(ids)
            context = None if key is None else self._contexts.pop(key, None)
        if context is None:
            context = self._new()
        context.crop(common_length(context.ids, ids))
        return context

    def keep(self, session: str, context: C) -> None:
        """Take a context back, for the session's next request."""
        with self._changing:
            key = session or next(self._numbers)
            self._contexts[key] = context
            self._contexts.move_to_end(key)
            while len(self._contexts) > self._sessions_max:
                self._contexts.popitem(last=False)

    def _like(self, ids: Sequence[int]) -> int | None:
        """The number of the context that shares most with `ids`, if that is most of it; another client may need it."""
        shared = {
            key: common_length(context.ids, ids)
            for key, context in self._contexts.items()
            if isinstance(key, int)
        }
        key = max(shared, key=shared.__getitem__, default=None)
        if key is None or 2 * shared[key] < len(self._contexts[key].ids):
            return None
        return key


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
