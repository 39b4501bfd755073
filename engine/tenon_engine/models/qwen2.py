"""The Qwen2 architecture as infilling needs it: a causal context pass with the base weights alone, and a canvas pass in
which every entry sees what its view says, with the canvas adapter on top.

Owns tensors, devices and numerics. Knows nothing of text, sampling or requests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import Tensor

from tenon_engine.view import OPEN, START, View

HIDDEN_SCORE = -3e4  # added to scores of keys an entry must not see; finite, so that no row turns into NaN
ROPE_POSITIONS = 8192
PACKED_FOR_ENTRIES = 16  # the number of rows oneDNN lays packed weights out for; others work as well


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Hyperparameters of a checkpoint."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    rope_theta: float
    rms_eps: float
    vocabulary: int


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


@dataclasses.dataclass(slots=True)
class Layer:
    """Weights of one block; q, k and v are fused."""

    attn_norm: Tensor
    qkv: Linear
    o: Linear
    ffn_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear
    lora: dict[str, Lora] = dataclasses.field(default_factory=dict)  # by the names above


@dataclasses.dataclass(slots=True)
class CanvasAdapter:
    """What the adapter adds besides its low-rank updates."""

    mask_embedding: Tensor  # [hidden]
    mask_key_bias: Tensor  # [layers, heads]
    open_gate: Tensor  # [ranks]
    decided_gate: Tensor  # [ranks]


class KeyValues:
    """Keys and values of one context, with room behind them for the entries of a canvas."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        self.ids: list[int] = []
        self._shape = shape
        self._store = torch.empty(shape.layers, 2, shape.kv_heads, 0, shape.head_width, dtype=dtype)

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` ids."""
        del self.ids[length:]

    def reserve(self, length: int) -> None:
        """Make room for `length` entries; all that is stored stays, canvas entries too."""
        *outer, capacity, width = self._store.shape
        if length > capacity:
            grown = self._store.new_empty(*outer, -(-length // 128) * 128, width)
            grown[:, :, :, :capacity] = self._store
            self._store = grown

    def fork(self) -> KeyValues:
        """A copy for another candidate."""
        copy = KeyValues(self._shape, self._store.dtype)
        copy.ids, copy._store = list(self.ids), self._store.clone()
        return copy

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store [kv_heads, n, width] from entry `start` on; returns all keys and values up to their end."""
        end = start + keys.shape[1]
        store = self._store[layer]
        store[0, :, start:end], store[1, :, start:end] = keys, values
        return store[0, :, :end], store[1, :, :end]


class Qwen2Canvas:
    """The module: `extend` a context, then `forward` canvases behind it."""

    def __init__(
        self,
        shape: Shape,
        layers: Sequence[Layer],
        *,
        output_norm: Tensor,
        embedding: Tensor,
        head: Linear,
        start_id: int,
        adapter: CanvasAdapter | None,
    ) -> None:
        """embedding: [vocabulary, hidden]; head: its rows of the ids that may be predicted."""
        self.shape = shape
        self._layers = layers
        self._output_norm = output_norm
        self._embedding = embedding
        self._head = head
        self._start_id = start_id
        self._adapter = adapter
        frequency = shape.rope_theta ** -(torch.arange(0, shape.head_width, 2).float() / shape.head_width)
        angle = torch.arange(ROPE_POSITIONS).float()[:, None] * frequency
        angle = torch.cat([angle, angle], -1)
        self._cos, self._sin = angle.cos().to(embedding.dtype), angle.sin().to(embedding.dtype)

    def new_context(self) -> KeyValues:
        """An empty context."""
        return KeyValues(self.shape, self._embedding.dtype)

    @torch.inference_mode()
    def extend(self, context: KeyValues, ids: Sequence[int]) -> None:
        """Encode `ids` behind what `context` holds: causal, base weights alone. Computes no logits."""
        start, count = len(context.ids), len(ids)
        context.reserve(start + count)
        x = F.embedding(torch.tensor(ids), self._embedding)
        mask = torch.full((count, start + count), HIDDEN_SCORE, dtype=x.dtype).triu(start + 1)[None]
        positions = torch.arange(start, start + count)
        for index, layer in enumerate(self._layers):
            q, keys, values = self._project(layer, x, positions, None)
            keys, values = context.write(index, start, keys, values)
            if index + 1 < len(
                self._layers
            ):  # the last layer's output is not needed, only its keys and values
                x = self._finish(layer, x, self._attend(q, keys, values, mask), None)
        context.ids.extend(ids)

    @torch.inference_mode()
    def forward(self, passes: Sequence[tuple[KeyValues, View]]) -> list[Tensor]:
        """One canvas pass over several rows at once; logits f32 [scored, head rows] per row.

        Entries of all rows go through the linear maps as one ragged batch; only attention is per row.
        """
        reads = torch.tensor([token for _, view in passes for token in view.reads])
        positions = torch.tensor(
            [len(context.ids) + place for context, view in passes for place in view.places]
        )
        x, gate = self._embed(reads, [view.adapted for _, view in passes for _ in view.reads])
        masks = [self._mask(context, view) for context, view in passes]
        counts = [len(view.reads) for _, view in passes]
        for context, view in passes:
            context.reserve(len(context.ids) + view.kept + len(view.reads))
        for index, layer in enumerate(self._layers):
            q, keys, values = self._project(layer, x, positions, gate)
            outs, row = [], 0
            for (context, view), mask, count in zip(passes, masks, counts, strict=True):
                part = slice(row, row + count)
                start = len(context.ids) + view.kept
                seen = context.write(index, start, keys[:, part], values[:, part])
                outs.append(self._attend(q[:, part], *seen, mask[index]))
                row += count
            x = self._finish(layer, x, torch.cat(outs) if len(outs) > 1 else outs[0], gate)
        offsets = [sum(counts[:n]) for n in range(len(counts))]
        scored = [
            offset + entry for offset, (_, view) in zip(offsets, passes, strict=True) for entry in view.scored
        ]
        logits = self._head(self._norm(x[scored], self._output_norm)).float()
        return list(logits.split([len(view.scored) for _, view in passes]))

    def _embed(self, reads: Tensor, adapted: Sequence[bool]) -> tuple[Tensor, Tensor | None]:
        """Input of every entry [entries, hidden], and the gate of the low-rank updates [entries, ranks]."""
        is_open = (reads == OPEN)[:, None]
        x = F.embedding(reads.masked_fill(reads == START, self._start_id).clamp_min(0), self._embedding)
        if self._adapter is None or not any(adapted):
            assert not bool(is_open.any()), "open slots need the canvas adapter"
            return x, None
        x = torch.where(is_open, self._adapter.mask_embedding, x)
        gate = torch.where(is_open, self._adapter.open_gate, self._adapter.decided_gate)
        return x, gate * torch.tensor(adapted)[:, None]

    def _mask(self, context: KeyValues, view: View) -> Tensor:
        """What is added to the scores: [layers, heads or 1, entries, context + kept + entries]."""
        entries = len(view.reads)
        seen_before = len(context.ids) + view.kept
        hidden = torch.zeros(entries, seen_before + entries, dtype=self._embedding.dtype)
        sees = torch.from_numpy(view.sees)
        hidden[:, seen_before:].masked_fill_(~sees, HIDDEN_SCORE)
        if self._adapter is None or not view.adapted:
            return hidden.expand(self.shape.layers, 1, -1, -1)
        is_open = torch.tensor(view.reads) == OPEN
        sees_open = torch.zeros_like(hidden)
        sees_open[:, seen_before:] = is_open[None, :] & ~torch.eye(entries, dtype=torch.bool)
        return self._adapter.mask_key_bias[:, :, None, None] * sees_open + hidden

    def _project(
        self, layer: Layer, x: Tensor, positions: Tensor, gate: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [heads, n, width], keys and values [kv_heads, n, width], positions turned in."""
        shape = self.shape
        h = self._norm(x, layer.attn_norm)
        qkv = self._linear(layer, "qkv", h, gate).view(len(x), -1, shape.head_width).transpose(0, 1)
        turned = qkv[: shape.heads + shape.kv_heads]
        half = shape.head_width // 2
        turned = (
            turned * self._cos[positions]
            + torch.cat([-turned[..., half:], turned[..., :half]], -1) * self._sin[positions]
        )
        return turned[: shape.heads], turned[shape.heads :], qkv[shape.heads + shape.kv_heads :]

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Grouped-query attention: query heads that share a key head are stacked as rows. -> [n, hidden]."""
        heads, count, width = q.shape
        groups = heads // self.shape.kv_heads
        stacked = mask.expand(heads, -1, -1).reshape(self.shape.kv_heads, groups * count, -1)
        q = q.reshape(self.shape.kv_heads, groups * count, width)
        out = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=stacked[None])[0]
        return out.reshape(heads, count, width).transpose(0, 1).reshape(count, heads * width)

    def _finish(self, layer: Layer, x: Tensor, attended: Tensor, gate: Tensor | None) -> Tensor:
        """The rest of a block after attention."""
        x = x + self._linear(layer, "o", attended, gate)
        h = self._norm(x, layer.ffn_norm)
        wide = F.silu(self._linear(layer, "gate", h, gate)) * self._linear(layer, "up", h, gate)
        return x + self._linear(layer, "down", wide, gate)

    def _linear(self, layer: Layer, name: str, x: Tensor, gate: Tensor | None) -> Tensor:
        linear: Linear = getattr(layer, name)
        y = linear(x)
        return y if gate is None else layer.lora[name].added(y, x, gate)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.shape.rms_eps)
