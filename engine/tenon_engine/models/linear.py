"""Linear maps as this engine needs them: laid out by oneDNN where it pays, and with the gated low-rank update.

Knows nothing of layers or attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import Tensor

PACKED_FOR_ENTRIES = 16  # the number of rows oneDNN lays packed weights out for; others work as well


class Linear:
    """`y = W x + b`. Packed, the weight lives in oneDNN's own layout for this CPU and the plain copy can go."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, packed: bool = False) -> None:
        self._bias = bias
        self._packed = packed
        self._operators: Any = torch.ops.mkldnn
        self._weight = (
            self._operators._reorder_linear_weight(weight, PACKED_FOR_ENTRIES) if packed else weight
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x: [entries, in] -> [entries, out]."""
        if self._packed:
            out: Tensor = self._operators._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return out
        return F.linear(x, self._weight, self._bias)

    def added(self, y: Tensor, x: Tensor) -> Tensor:
        """y + W x. y: [entries, out], x: [entries, in]."""
        if self._packed:
            out: Tensor = self._operators._linear_pointwise.binary(x, y, self._weight, None, "add")
            return out
        return y + F.linear(x, self._weight)


class Lora:
    """The gated low-rank update of one fused linear map: parts share their input, each has its own output rows.

    y += B · ((A x) ⊙ scale ⊙ gate), scale folded into A, the B of all parts set as blocks into one matrix.
    """

    def __init__(
        self, parts: Sequence[tuple[Tensor, Tensor, Tensor]], dtype: torch.dtype, *, packed: bool = False
    ) -> None:
        """parts: (A [ranks, in], B [out, ranks], scale [ranks]) in the order of the fused output rows."""
        self._down = Linear(
            torch.cat([a.float() * scale[:, None] for a, _, scale in parts]).to(dtype), packed=packed
        )
        self._up = Linear(torch.block_diag(*(b.to(dtype) for _, b, _ in parts)), packed=packed)
        self._parts = len(parts)

    def added(self, y: Tensor, x: Tensor, gate: Tensor) -> Tensor:
        """y: [entries, sum of out]; x: [entries, in]; gate: [entries, ranks]; returns y with the update added."""
        return self._up.added(y, self._down(x) * gate.repeat(1, self._parts))
