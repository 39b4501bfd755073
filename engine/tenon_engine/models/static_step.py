"""A denoising step compiled for static shapes, with CUDA graphs where there is CUDA; run by one thread, whoever asks.

Every thread that calls a function with CUDA graphs records graphs of its own, with their memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

R = TypeVar("R")

SHAPES_MAX = 64  # compiled at most; torch gives up on a function at 8
EAGER = "eager"  # a backend without a compiler, for tests
CUDA_GRAPHS = "reduce-overhead"


def static_step(function: Callable[..., R], *, backend: str = "inductor") -> Callable[..., R]:
    """`function`, to be called with tensors of few shapes; what it gave is gone when it is called again."""
    mode = CUDA_GRAPHS if backend == "inductor" else None
    compiled: Callable[..., R] = torch.compile(function, backend=backend, dynamic=False, mode=mode)
    thread = ThreadPoolExecutor(1, thread_name_prefix="denoising step")

    @torch.inference_mode()
    def step(*arguments: object) -> R:
        torch.compiler.cudagraph_mark_step_begin()
        with torch._dynamo.config.patch(recompile_limit=SHAPES_MAX):
            return compiled(*arguments)

    return lambda *arguments: thread.submit(step, *arguments).result()
