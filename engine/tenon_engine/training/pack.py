"""From a checkpoint to the file that is shipped: the averaged weights in int8, with one scale per rank.

The format is `models.embedded`'s, which reads it back.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from safetensors.torch import save_file
from torch import Tensor

from tenon_engine.base_fetch import OFFICIAL, appearing_complete
from tenon_engine.errors import BadRequestError, StorageError
from tenon_engine.models.embedded import DECIDED_RANKS, OPEN_RANKS
from tenon_engine.training import checkpoint
from tenon_engine.training.state import LORA_SCALE, MODULES, State

INT8_MAX = 127


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """What was packed; `lost` is the share of the energy (squared norm) of all updates that rounding cost."""

    step: int
    size_bytes: int
    lost: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Factors:
    """One update as it is shipped, its energy and how much of that rounding cost."""

    a: Tensor  # int8 [ranks, in]
    b: Tensor  # int8 [out, ranks]
    scale: Tensor  # f32 [ranks]
    energy: float
    lost: float


def pack(folder: Path, out: Path) -> Packed:
    """Write the adapter that the checkpoint in `folder` stands for. Raises BadRequestError or StorageError."""
    found = checkpoint.load(folder)
    if found is None:
        raise BadRequestError(f"{folder} holds no checkpoint: `tenon train run --out {folder}` makes one")
    tensors, parts = _packed(found.average)
    metadata = {
        "base": "Qwen2.5-Coder-0.5B-Instruct GGUF Q4_K_M",
        "base_sha256": OFFICIAL.sha256,
        "license": "Apache-2.0",
        "open_rank": str(OPEN_RANKS),
        "decided_rank": str(DECIDED_RANKS),
        "step": str(found.step),
    }
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with appearing_complete(out) as growing:
            save_file(tensors, growing, metadata)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror or error}") from error
    return Packed(
        step=found.step,
        size_bytes=out.stat().st_size,
        lost=sum(part.lost for part in parts) / sum(part.energy for part in parts),
    )


def _packed(state: State) -> tuple[dict[str, Tensor], list[_Factors]]:
    tensors = {name: state[name].contiguous() for name in ("mask_embedding", "mask_key_bias")}
    every: list[_Factors] = []
    for index in range(len(state["mask_key_bias"])):
        for module in MODULES:
            key = f"layers.{index}.{module}"
            parts = [
                _factors(state[f"{key}.{part}_a"], state[f"{key}.{part}_b"] * LORA_SCALE)
                for part in ("open", "decided")
            ]
            tensors[f"{key}.lora_A"] = torch.cat([part.a for part in parts])
            tensors[f"{key}.lora_B"] = torch.cat([part.b for part in parts], 1).contiguous()
            tensors[f"{key}.lora_scale"] = torch.cat([part.scale for part in parts])
            every += parts
    return tensors, every


def _factors(a: Tensor, b: Tensor) -> _Factors:
    """b @ a in orthogonal factors of equal weight, which rounding costs least. a: [ranks, in], b: [out, ranks]."""
    left, right = torch.linalg.qr(b), torch.linalg.qr(a.t())  # so that only small matrices are decomposed
    u, s, v = torch.linalg.svd(left.R @ right.R.t())
    roots, missing = s.sqrt(), len(a) - len(s)  # a map may be smaller than its update has ranks
    exact_b = F.pad(left.Q @ (u[:, : len(s)] * roots), (0, missing))
    exact_a = F.pad((v[: len(s)] * roots[:, None]) @ right.Q.t(), (0, 0, 0, missing))
    rounded_a, a_scale = _rounded(exact_a, dim=1)
    rounded_b, b_scale = _rounded(exact_b, dim=0)
    scale = a_scale.flatten() * b_scale.flatten()
    return _Factors(
        rounded_a,
        rounded_b,
        scale,
        energy=float(s.square().sum()),
        lost=_distance(exact_b, exact_a, rounded_b * scale, rounded_a.float()),
    )


def _rounded(factor: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    scale = factor.abs().amax(dim, keepdim=True).clamp_min(1e-12) / INT8_MAX
    return (factor / scale).round().to(torch.int8), scale


def _distance(b: Tensor, a: Tensor, other_b: Tensor, other_a: Tensor) -> float:
    """Squared norm of b @ a - other_b @ other_a, without making either product."""
    down, up = torch.cat([a, other_a]), torch.cat([b, -other_b], 1)
    return max(0.0, float(((up.t() @ up) * (down @ down.t())).sum()))
