"""The adapter's numbers while they are trained: one tensor per name, in full precision.

Owns the names and where they start: from a packed adapter (`unpack`), whose ranks are padded to those of training.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from tenon_engine.models import embedded

State = dict[str, Tensor]
"""`mask_embedding`, `mask_key_bias`, and `layers.L.M.open_a|open_b|decided_a|decided_b` of every module M."""

OPEN_RANKS, DECIDED_RANKS = 64, embedded.DECIDED_RANKS
LORA_SCALE = 2.0  # y = W x + LORA_SCALE · B A x
MODULES = tuple(module for modules in embedded.MODULES.values() for module in modules)


def unpack(adapter: Path, *, seed: int = 0) -> State:
    """The state a packed adapter stands for; ranks it lacks are fresh and change nothing yet."""
    generator = torch.Generator().manual_seed(seed)
    with embedded.readable(adapter, "name another adapter"), safe_open(adapter, "pt") as file:
        state: State = {name: file.get_tensor(name).float() for name in ("mask_embedding", "mask_key_bias")}
        for index in range(len(state["mask_key_bias"])):
            for module in MODULES:
                key = f"layers.{index}.{module}"
                a, b, scale = (file.get_tensor(f"{key}.lora_{part}").float() for part in ("A", "B", "scale"))
                open_ranks = len(scale) - DECIDED_RANKS
                for part, ranks, chosen in (
                    ("open", OPEN_RANKS, slice(open_ranks)),
                    ("decided", DECIDED_RANKS, slice(open_ranks, None)),
                ):
                    factors = _balanced(a[chosen], b[:, chosen] * scale[chosen])
                    state[f"{key}.{part}_a"], state[f"{key}.{part}_b"] = _padded(*factors, ranks, generator)
    return state


def _balanced(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The same product with rows of A as long as fresh ones, so that a step means what it did at the start."""
    lengths = a.norm(dim=1).clamp_min(1e-12)
    return a / lengths[:, None], b * lengths / LORA_SCALE


def _padded(a: Tensor, b: Tensor, ranks: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Fresh ranks behind those there are: A random, B nothing."""
    missing, width = ranks - len(a), a.shape[1]
    fresh = torch.randn(missing, width, generator=generator) / math.sqrt(width)
    return torch.cat([a, fresh]).contiguous(), torch.cat([b, b.new_zeros(len(b), missing)], 1).contiguous()
