"""Worker processes of a training or of the making of a corpus. Knows nothing of what they do."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor


def pool(workers: int) -> ProcessPoolExecutor:
    """So many processes, which leave Ctrl-C to the one that waits for them."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit the threads' locks
    return ProcessPoolExecutor(workers, context, initializer=_leave_interrupts)


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
