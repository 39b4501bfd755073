"""What a step costs in operations, and how fast this device does them at best. Knows no texts and no optimiser."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import numpy as np
import torch

from tenon_engine.models.qwen2 import Shape
from tenon_engine.training.examples import Batch
from tenon_engine.training.network import RANKS

PROBE_SIZE = {"cpu": 1024, "cuda": 8192}  # of a square product that is large enough to be fast
PROBE_TIMES = 5


def operations(shape: Shape, batch: Batch, *, head_rows: int) -> float:
    """Floating point operations of one forward and backward, padding included: matrix products and attention alone."""
    rows, tokens = batch.ids.shape
    slots = batch.reads.shape[1]
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    block = shape.hidden * (2 * queries + 2 * keys) + 3 * shape.hidden * shape.ffn
    update = RANKS * (7 * shape.hidden + 2 * queries + 2 * keys + 3 * shape.ffn)
    attended = rows * (tokens * tokens / 2 + 3 * slots * (tokens + slots)) * 2 * queries
    products = rows * (tokens * block + slots * (2 * block + 3 * update))
    heads = (2 * len(batch.scored) + len(np.unique(batch.teacher))) * head_rows * shape.hidden
    return float(2.0 * (shape.layers * (products + attended) + heads))


def best_operations_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """What this device reaches in a plain matrix product, measured."""
    size = PROBE_SIZE[device.type]
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    times = []
    for _ in range(PROBE_TIMES):
        _wait(device)
        started = time.perf_counter()
        left @ right
        _wait(device)
        times.append(time.perf_counter() - started)
    operations: float = 2.0 * size * size * size
    return operations / min(times)


def compiling_pays(device: torch.device) -> bool:
    """Where products are so fast that all else counts: on a GPU, on a CPU with matrix tiles. It takes a compiler."""
    if device.type == "cuda":
        return True
    cpu: Any = torch.cpu
    compiler = shutil.which("g++") or shutil.which("clang++")
    return sys.platform == "linux" and compiler is not None and bool(cpu._is_amx_tile_supported())


def packing_pays(device: torch.device, dtype: torch.dtype) -> bool:
    """Where oneDNN lays weights out for the CPU."""
    return device.type == "cpu" and dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
