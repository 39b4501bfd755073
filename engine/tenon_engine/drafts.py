"""Drafts copied from text that is already there: the continuation of the latest matching n-gram.

Costs no forward; a wrong draft costs nothing but its slot. Knows ids only.
"""

from __future__ import annotations

from collections.abc import Sequence


def ngram_drafts(history: Sequence[int], *, length: int, count: int) -> list[int]:
    """Up to `count` ids that followed the last earlier occurrence of the final `length` ids of `history`."""
    if length <= 0 or len(history) <= length:
        return []
    key = tuple(history[-length:])
    for start in range(len(history) - length - 1, -1, -1):
        if history[start] == key[0] and tuple(history[start : start + length]) == key:
            follow = start + length
            return list(history[follow : follow + count])
    return []
