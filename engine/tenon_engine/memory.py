"""How the C library keeps the memory of a process that computes in several threads. No effect but on glibc."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of mallopt(3)


def share_arena() -> None:
    """Let all threads that are still to start allocate from one arena.

    With one of its own, each keeps what its largest fill once needed; forwards take turns, so none waits for another.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def keep() -> None:
    """Keep what is freed for what is allocated next: a process that trains needs the same large blocks again and again.

    Else each comes from the system anew, page by page (a tenth of a training step, measured on two cores).
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(M_MMAP_MAX, 0)
            library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def free() -> None:
    """Give what is not used back to the system; most of the weights would be kept otherwise."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
