"""The adapter's numbers while they are trained: one tensor per name, in full precision.

Owns the names and where they start: from a packed adapter (`unpack`), in the ranks that are shipped: more would have to
be cut at the end, and what was learnt last goes first then.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from tenon_engine.models import embedded
from tenon_engine.models.embedded import OPEN_RANKS

State = dict[str, Tensor]
"""`mask_embedding`, `mask_key_bias`, and `layers.L.M.open_a|open_b|decided_a|decided_b` of every module M."""

LORA_SCALE = 2.0  # y = W x + LORA_SCALE · B A x
MODULES = tuple(module for modules in embedded.MODULES.values() for module in modules)


def unpack(adapter: Path) -> State:
    """The state a packed adapter stands for."""
    with embedded.readable(adapter, "name another adapter"), safe_open(adapter, "pt") as file:
        state: State = {name: file.get_tensor(name).float() for name in ("mask_embedding", "mask_key_bias")}
        for index in range(len(state["mask_key_bias"])):
            for module in MODULES:
                key = f"layers.{index}.{module}"
                a, b, scale = (file.get_tensor(f"{key}.lora_{part}").float() for part in ("A", "B", "scale"))
                for part, ranks in (("open", slice(OPEN_RANKS)), ("decided", slice(OPEN_RANKS, None))):
                    factors = _balanced(a[ranks], b[:, ranks] * scale[ranks])
                    state[f"{key}.{part}_a"], state[f"{key}.{part}_b"] = factors
    return state


def _balanced(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The same product with rows of A of length 1, so that a step means as much to each rank, whatever it weighs."""
    lengths = a.norm(dim=1).clamp_min(1e-12)
    return a / lengths[:, None], b * lengths / LORA_SCALE
