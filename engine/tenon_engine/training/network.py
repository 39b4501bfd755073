"""The trainable twin of `models.qwen2`: the same arithmetic in whole batches, the adapter's numbers as parameters.

The base is frozen and read where the file is mapped; a context is encoded without gradients, canvases with them. Its
logits are those of the run-time network (a test holds the two together). Knows tensors; no texts, no optimiser.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from safetensors import safe_open
from torch import Tensor

from tenon_engine.models.embedded import DECIDED_RANKS, OPEN_RANKS
from tenon_engine.models.linear import PACKED_FOR_ENTRIES
from tenon_engine.models.qwen2 import HIDDEN_SCORE, Shape
from tenon_engine.training.attention import attend, grouped, ungrouped
from tenon_engine.training.state import LORA_SCALE, MODULES, State
from tenon_engine.view import OPEN

RANKS = OPEN_RANKS + DECIDED_RANKS


class Frozen(NamedTuple):
    """A weight of the base: for the way there and, where it is laid out for this CPU, another for the way back."""

    weight: Tensor  # [out, in]
    transposed: Tensor | None = None


class FrozenLayer(NamedTuple):
    """Weights of one block of the base, q, k and v fused, gate and up too; a tuple, as a compiler takes it apart."""

    attn_norm: Tensor
    qkv: Frozen
    qkv_bias: Tensor
    o: Frozen
    ffn_norm: Tensor
    gate_up: Frozen
    down: Frozen


class LowRank(NamedTuple):
    """The update of one linear map: factors of open and of decided slots."""

    open_a: Tensor  # [open ranks, in]
    open_b: Tensor  # [out, open ranks]
    decided_a: Tensor
    decided_b: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """The frozen model."""

    shape: Shape
    layers: Sequence[FrozenLayer]
    output_norm: Tensor
    embedding: Tensor  # [vocabulary, hidden]; its first rows are the head

    @property
    def dtype(self) -> torch.dtype:
        """What it is computed in."""
        return self.embedding.dtype

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Base:
        """The same on another device, as it is read from the file."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype or tensor.dtype)

        return Base(
            self.shape,
            [_changed(layer, lambda each: Frozen(moved(each.weight)), moved) for layer in self.layers],
            moved(self.output_norm),
            moved(self.embedding),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """Contexts and the true texts behind them as the base reads them."""

    keys: Sequence[Tensor]  # per layer [rows, kv_heads, tokens, width]
    values: Sequence[Tensor]
    counts: Tensor  # [rows] tokens of the context alone
    hidden: Tensor  # [rows * tokens, hidden], ready for the head


class _Place(NamedTuple):
    """Where the entries of a pass stand: rotary factors [entries, 1, width]."""

    cos: Tensor
    sin: Tensor


class _Sight(NamedTuple):
    """What canvas entries see: `hidden` is added to the scores, `open_keys` is where the key bias belongs."""

    hidden: Tensor  # [rows, 1, slots, tokens + slots]
    open_keys: Tensor  # [rows, slots, slots]


def packed(base: Base) -> Base:
    """The same, its weights laid out by oneDNN for this CPU, both ways: 6 % faster, for twice the memory."""
    reorder: Callable[..., Tensor] = torch.ops.mkldnn._reorder_linear_weight

    def both(frozen: Frozen) -> Frozen:
        ways = (frozen.weight, frozen.weight.t().contiguous())
        return Frozen(*(reorder(way, PACKED_FOR_ENTRIES) for way in ways))

    layers = [_changed(layer, both, lambda vector: vector) for layer in base.layers]
    return dataclasses.replace(base, layers=layers)


def load_base(weights: Path) -> Base:
    """Map the converted weights; nothing is copied."""
    with safe_open(weights, "pt") as file:
        shape = Shape(**json.loads(file.metadata()["hyperparameters"]))

        def tensor(index: int, name: str) -> Tensor:
            found: Tensor = file.get_tensor(f"layers.{index}.{name}")
            return found

        def frozen(index: int, name: str) -> Frozen:
            return Frozen(tensor(index, f"{name}.weight"))

        layers = [
            FrozenLayer(
                attn_norm=tensor(index, "attn_norm"),
                qkv=frozen(index, "qkv"),
                qkv_bias=tensor(index, "qkv.bias"),
                o=frozen(index, "o"),
                ffn_norm=tensor(index, "ffn_norm"),
                gate_up=frozen(index, "gate_up"),
                down=frozen(index, "down"),
            )
            for index in range(shape.layers)
        ]
        return Base(shape, layers, file.get_tensor("output_norm"), file.get_tensor("output.weight"))


class TrainableCanvas:
    """`read` contexts with the base alone, then `forward` canvases behind them with the adapter."""

    def __init__(self, base: Base, state: State, *, compiled: bool = False) -> None:
        """`state` are the parameters: they are trained in place."""
        self.base = base
        shape = base.shape
        self._mask_embedding, self._key_bias = state["mask_embedding"], state["mask_key_bias"]
        self._updates = [
            {
                module: LowRank(*(state[f"layers.{index}.{module}.{part}"] for part in LowRank._fields))
                for module in MODULES
            }
            for index in range(shape.layers)
        ]
        frequency = shape.rope_theta ** -(torch.arange(0, shape.head_width, 2).float() / shape.head_width)
        self._frequency = torch.cat([frequency, frequency]).to(base.embedding.device)
        self._read_layer: Callable[..., Any] = _read_layer
        self._canvas_layer: Callable[..., Any] = _canvas_layer
        if compiled:  # one graph serves all layers: shapes are the same everywhere
            self._read_layer = torch.compile(_read_layer, dynamic=False)
            self._canvas_layer = torch.compile(_canvas_layer, dynamic=False)

    @torch.no_grad()
    def read(self, ids: Tensor, counts: Tensor) -> Read:
        """ids: [rows, tokens], causal, each row a context of so many ids and a text behind it."""
        rows, tokens = ids.shape
        x = F.embedding(ids.flatten(), self.base.embedding)
        place = self._place(torch.arange(tokens, device=ids.device).repeat(rows))
        keys, values = [], []
        for layer in self.base.layers:
            x, k, v = self._read_layer(x, layer, place, rows, self.base.shape)
            keys.append(k)
            values.append(v)
        return Read(keys, values, counts, _norm(x, self.base.output_norm, self.base.shape))

    def forward(self, read: Read, reads: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        """reads, positions: [rows, slots]; sees: [rows, slots, slots] -> [rows * slots, hidden], ready for the head."""
        is_open = reads == OPEN
        x = F.embedding(reads.clamp_min(0).flatten(), self.base.embedding)
        x = torch.where(is_open.flatten()[:, None], self._mask_embedding.to(x.dtype), x)
        gate = _gate(is_open.flatten(), x.dtype)
        place = self._place(positions.flatten())
        sight = self._sight(read, is_open, sees)
        layers = zip(self.base.layers, self._updates, read.keys, read.values, self._key_bias, strict=True)
        for layer, updates, keys, values, key_bias in layers:
            x = self._canvas_layer(
                x, layer, updates, (keys, values), gate, place, sight, key_bias, self.base.shape
            )
        return _norm(x, self.base.output_norm, self.base.shape)

    def _place(self, positions: Tensor) -> _Place:
        angle = positions.float()[:, None, None] * self._frequency
        return _Place(angle.cos().to(self.base.dtype), angle.sin().to(self.base.dtype))

    def _sight(self, read: Read, is_open: Tensor, sees: Tensor) -> _Sight:
        rows, slots = is_open.shape
        tokens = read.keys[0].shape[2]
        in_context = torch.arange(tokens, device=sees.device) < read.counts[:, None]
        visible = torch.cat([in_context[:, None].expand(rows, slots, tokens), sees], -1)
        hidden = torch.zeros(visible.shape, dtype=self.base.dtype, device=sees.device)
        others = ~torch.eye(slots, dtype=torch.bool, device=sees.device)
        return _Sight(
            hidden.masked_fill_(~visible, HIDDEN_SCORE)[:, None],
            (is_open[:, None] & others).to(self.base.dtype),
        )


def _changed(
    layer: FrozenLayer, weight: Callable[[Frozen], Frozen], vector: Callable[[Tensor], Tensor]
) -> FrozenLayer:
    return FrozenLayer(
        attn_norm=vector(layer.attn_norm),
        qkv=weight(layer.qkv),
        qkv_bias=vector(layer.qkv_bias),
        o=weight(layer.o),
        ffn_norm=vector(layer.ffn_norm),
        gate_up=weight(layer.gate_up),
        down=weight(layer.down),
    )


def _read_layer(
    x: Tensor, layer: FrozenLayer, place: _Place, rows: int, shape: Shape
) -> tuple[Tensor, Tensor, Tensor]:
    """One block, causal within each row. x: [rows * tokens, hidden]."""
    qkv = _linear(_norm(x, layer.attn_norm, shape), layer.qkv, layer.qkv_bias)
    q, k, v = (part.unflatten(0, (rows, -1)).transpose(1, 2) for part in _heads(qkv, place, shape))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + _linear(out.transpose(1, 2).reshape(len(x), -1), layer.o)
    gate, up = _linear(_norm(x, layer.ffn_norm, shape), layer.gate_up).chunk(2, -1)
    return x + _linear(F.silu(gate) * up, layer.down), k, v


def _canvas_layer(
    x: Tensor,
    layer: FrozenLayer,
    updates: Mapping[str, LowRank],
    context: tuple[Tensor, Tensor],
    gate: Tensor,
    place: _Place,
    sight: _Sight,
    key_bias: Tensor,
    shape: Shape,
) -> Tensor:
    """One block with the adapter, over the canvases of all rows. x: [rows * slots, hidden]."""
    rows = len(sight.hidden)
    h = _norm(x, layer.attn_norm, shape)
    plain = _linear(h, layer.qkv, layer.qkv_bias)
    q, k, v = _heads(
        _updated(plain, h, [updates[f"self_attn.{part}_proj"] for part in "qkv"], gate), place, shape
    )
    q, k, v = (part.unflatten(0, (rows, -1)).transpose(1, 2) for part in (q, k, v))
    keys, values = torch.cat([context[0], k], 2), torch.cat([context[1], v], 2)
    q = grouped(q / math.sqrt(shape.head_width), shape.kv_heads)
    attended = attend(q, keys, values, key_bias, sight.hidden, sight.open_keys)
    h = ungrouped(attended, shape.heads).transpose(1, 2).reshape(len(x), -1)
    x = x + _updated(_linear(h, layer.o), h, [updates["self_attn.o_proj"]], gate)
    h = _norm(x, layer.ffn_norm, shape)
    wide = _updated(_linear(h, layer.gate_up), h, [updates["mlp.gate_proj"], updates["mlp.up_proj"]], gate)
    narrow, up = wide.chunk(2, -1)
    h = F.silu(narrow) * up
    return x + _updated(_linear(h, layer.down), h, [updates["mlp.down_proj"]], gate)


def _linear(x: Tensor, frozen: Frozen, bias: Tensor | None = None) -> Tensor:
    if frozen.transposed is None:
        return F.linear(x, frozen.weight, bias)
    out: Tensor = _PackedProduct.apply(x, frozen.weight, frozen.transposed, bias)  # type: ignore[no-untyped-call]
    return out


class _PackedProduct(torch.autograd.Function):
    """A product with a packed weight, and with its packed transpose on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, transposed: Tensor, bias: Tensor | None) -> Tensor:
        """x: [entries, in]"""
        ctx.transposed = transposed
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of x alone: the weights are frozen."""
        return _product(gradients[0].contiguous(), ctx.transposed, None), None, None, None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def _updated(y: Tensor, x: Tensor, updates: Sequence[LowRank], gate: Tensor) -> Tensor:
    """y + B · (gate ⊙ A x) of the maps that share the input x, their outputs side by side."""
    down = torch.cat([factor for each in updates for factor in (each.open_a, each.decided_a)]).to(x.dtype)
    inner = F.linear(x, down).unflatten(-1, (len(updates), -1)) * gate[:, None]
    parts = y.split([len(each.open_b) for each in updates], -1)
    added = [
        torch.addmm(part, inner[:, index], torch.cat([each.open_b, each.decided_b], 1).to(x.dtype).t())
        for index, (part, each) in enumerate(zip(parts, updates, strict=True))
    ]
    return added[0] if len(added) == 1 else torch.cat(added, -1)


def _heads(qkv: Tensor, place: _Place, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [entries, heads, width], positions turned in."""
    parts = qkv.unflatten(-1, (-1, shape.head_width))
    turned, v = parts.split([shape.heads + shape.kv_heads, shape.kv_heads], 1)
    half = shape.head_width // 2
    turned = turned * place.cos + torch.cat([-turned[..., half:], turned[..., :half]], -1) * place.sin
    q, k = turned.split([shape.heads, shape.kv_heads], 1)
    return q, k, v


def _gate(is_open: Tensor, dtype: torch.dtype) -> Tensor:
    """[entries, ranks]: which ranks act on an entry, and how much."""
    of_open = torch.arange(RANKS, device=is_open.device) < OPEN_RANKS
    return (is_open[:, None] == of_open).to(dtype) * LORA_SCALE


def _norm(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, shape.rms_eps)
