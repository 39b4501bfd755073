"""What this device does: the clock that waits for it, and its bandwidth and speed where the table of cards has none.

Knows no model.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from tenon_engine.evaluation.cost import Card, card_named

REPEATS = 9
WARM_UP = 2
READ_VALUES = {"cuda": 1 << 28, "cpu": 1 << 25}  # of a matrix that no cache of the device holds
PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}


def card_of(device: torch.device, dtype: torch.dtype) -> tuple[Card, bool]:
    """The card that `device` is, from the table (True), or what products of this type measure on it (False)."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    known = card_named(name)
    return (known, True) if known else (measured_card(device, dtype, name or device.type), False)


@torch.inference_mode()
def measured_card(device: torch.device, dtype: torch.dtype, name: str) -> Card:
    """Bandwidth by a matrix that is read for one vector, as weights are for one token; speed by a square product."""
    columns = 4096
    matrix = torch.ones(READ_VALUES[device.type] // columns, columns, dtype=dtype, device=device)
    vector = torch.ones(columns, 1, dtype=dtype, device=device)
    read_s = median_ms(lambda: matrix @ vector, device) / 1e3
    size = PRODUCT_SIZE[device.type]
    square = torch.ones(size, size, dtype=dtype, device=device)
    product_s = median_ms(lambda: square @ square, device) / 1e3
    return Card(
        f"{name}, measured",
        bytes_per_second=matrix.numel() * matrix.element_size() / read_s,
        operations_per_second=2.0 * size**3 / product_s,
    )


def median_ms(work: Callable[[], object], device: torch.device, *, repeats: int = REPEATS) -> float:
    """How long `work` takes, warm."""
    for _ in range(WARM_UP):
        work()
    return statistics.median(_once_ms(work, device) for _ in range(repeats))


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _once_ms(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return (time.perf_counter() - started) * 1e3
