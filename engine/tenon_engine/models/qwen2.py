"""The Qwen2 architecture as infilling needs it: a causal context pass with the base weights alone, and a canvas pass in
which every entry sees what its view says, with the canvas adapter on top.

Owns tensors, devices and numerics. Knows nothing of text, sampling or requests.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import Tensor

from tenon_engine.models.linear import Linear, Lora
from tenon_engine.view import OPEN, START, View

HIDDEN_SCORE = -3e4  # added to scores of keys an entry must not see; finite, so that no row turns into NaN
ROPE_POSITIONS = 8192


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
    """Keys and values of one context, with room behind them for the entries of a canvas.

    The last of `ids` may still wait for their keys and values (`encoded_count` says from where on).
    """

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        self.ids: list[int] = []
        self.encoded_count = 0
        self._shape = shape
        self._store = torch.empty(shape.layers, 2, shape.kv_heads, 0, shape.head_width, dtype=dtype)

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` ids."""
        del self.ids[length:]
        self.encoded_count = min(self.encoded_count, length)

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
        copy.ids, copy.encoded_count, copy._store = list(self.ids), self.encoded_count, self._store.clone()
        return copy

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store [kv_heads, n, width] from entry `start` on; returns all keys and values up to their end."""
        end = start + keys.shape[1]
        store = self._store[layer]
        store[0, :, start:end], store[1, :, start:end] = keys, values
        return store[0, :, :end], store[1, :, :end]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Entries of one pass that attend together: deferred ids of a context, or a row's view."""

    context: KeyValues
    start: int  # where their keys and values go
    positions: Sequence[int]
    mask: Tensor  # [layers, heads or 1, entries, start + entries], added to the scores
    ids: Sequence[int] = ()


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
        self.defer(context, ids)
        block = self._context_block(context)
        self._run(F.embedding(torch.tensor(block.ids), self._embedding), [block], None, outputs=False)
        context.encoded_count = len(context.ids)

    def defer(self, context: KeyValues, ids: Sequence[int]) -> None:
        """Let `ids` follow in `context`, encoded by the next forward on it: cheaper than in a pass of their own."""
        context.ids.extend(ids)

    @torch.inference_mode()
    def forward(self, passes: Sequence[tuple[KeyValues, View]]) -> list[Tensor]:
        """One canvas pass over several rows at once; logits f32 [scored, head rows] per row.

        Entries of all rows, before them the deferred ids of their contexts, go through the linear maps as one ragged
        batch; only attention is per row.
        """
        waiting = {id(context): context for context, _ in passes if context.encoded_count < len(context.ids)}
        blocks = [self._context_block(context) for context in waiting.values()]
        waiting_ids = [token for block in blocks for token in block.ids]
        blocks += [self._canvas_block(context, view) for context, view in passes]
        canvas, gate = self._embed([view for _, view in passes])
        x = torch.cat([F.embedding(torch.tensor(waiting_ids, dtype=torch.long), self._embedding), canvas])
        x = self._run(x, blocks, gate, outputs=True)[len(waiting_ids) :]
        for context in waiting.values():
            context.encoded_count = len(context.ids)
        offsets = itertools.accumulate((len(view.reads) for _, view in passes), initial=0)
        rows = zip(offsets, passes, strict=False)
        scored = [offset + entry for offset, (_, view) in rows for entry in view.scored]
        logits = self._head(self._norm(x[scored], self._output_norm)).float()
        return list(logits.split([len(view.scored) for _, view in passes]))

    def _run(self, x: Tensor, blocks: Sequence[_Block], gate: Tensor | None, *, outputs: bool) -> Tensor:
        """All entries [entries, hidden], block after block, through all layers; `gate` belongs to the last of them.

        Keys and values are written on the way. Without `outputs` they are all that is wanted, and what is returned
        means nothing.
        """
        positions = torch.tensor([position for block in blocks for position in block.positions])
        counts = [len(block.positions) for block in blocks]
        for index, layer in enumerate(self._layers):
            q, keys, values = self._project(layer, x, positions, gate)
            parts = zip(
                blocks, q.split(counts, 1), keys.split(counts, 1), values.split(counts, 1), strict=True
            )
            seen = [
                (block, own_q, block.context.write(index, block.start, k, v)) for block, own_q, k, v in parts
            ]
            if outputs or index + 1 < len(self._layers):
                attended = [self._attend(own_q, *kv, block.mask[index]) for block, own_q, kv in seen]
                x = self._finish(layer, x, torch.cat(attended), gate)
        return x

    def _context_block(self, context: KeyValues) -> _Block:
        """The deferred ids of a context: causal."""
        start, end = context.encoded_count, len(context.ids)
        context.reserve(end)
        mask = torch.full((end - start, end), HIDDEN_SCORE, dtype=self._embedding.dtype).triu(start + 1)
        return _Block(
            context=context,
            start=start,
            positions=range(start, end),
            mask=mask.expand(self.shape.layers, 1, -1, -1),
            ids=context.ids[start:],
        )

    def _canvas_block(self, context: KeyValues, view: View) -> _Block:
        start = len(context.ids) + view.kept
        context.reserve(start + len(view.reads))
        positions = [len(context.ids) + place for place in view.places]
        return _Block(context=context, start=start, positions=positions, mask=self._mask(start, view))

    def _embed(self, views: Sequence[View]) -> tuple[Tensor, Tensor | None]:
        """Input of every canvas entry [entries, hidden], and the gate of the low-rank updates [entries, ranks]."""
        reads = torch.tensor([token for view in views for token in view.reads])
        is_open = (reads == OPEN)[:, None]
        x = F.embedding(reads.masked_fill(reads == START, self._start_id).clamp_min(0), self._embedding)
        if self._adapter is None or not any(view.adapted for view in views):
            assert not bool(is_open.any()), "open slots need the canvas adapter"
            return x, None
        x = torch.where(is_open, self._adapter.mask_embedding, x)
        gate = torch.where(is_open, self._adapter.open_gate, self._adapter.decided_gate)
        adapted = torch.tensor([view.adapted for view in views for _ in view.reads])
        return x, gate * adapted[:, None]

    def _mask(self, seen_before: int, view: View) -> Tensor:
        """What is added to the scores: [layers, heads or 1, entries, seen before + entries]."""
        entries = len(view.reads)
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
        """A linear map; where there is a gate, its entries (the last ones) get the low-rank update."""
        linear: Linear = getattr(layer, name)
        y = linear(x)
        if gate is None:
            return y
        plain = len(x) - len(gate)
        updated = layer.lora[name].added(y[plain:], x[plain:], gate)
        if not plain:
            return updated
        y[plain:] = updated
        return y

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.shape.rms_eps)
