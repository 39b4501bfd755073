"""How the C library keeps the memory of a process that computes in several threads. No effect but on glibc."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

M_ARENA_MAX = -8  # of mallopt(3)


def share_arena() -> None:
    """Let all threads that are still to start allocate from one arena.

    With one of its own, each keeps what its largest fill once needed; forwards take turns, so none waits for another.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def free() -> None:
    """Give what is not used back to the system; most of the weights would be kept otherwise."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
