"""Attention of canvas entries with a learned bias on open keys, forward and backward by hand.

By hand, because it keeps one score matrix where automatic differentiation keeps four: what is stored is what bounds the
speed here. Knows tensors alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def attend(
    q: Tensor, keys: Tensor, values: Tensor, key_bias: Tensor, hidden: Tensor, open_keys: Tensor
) -> Tensor:
    """softmax(q k + hidden + key_bias ⊙ open_keys) v, the bias on the last keys alone.

    q: [rows, kv_heads, groups * slots, width], scaled; keys, values: [rows, kv_heads, tokens + slots, width];
    key_bias: [heads]; hidden: [rows, 1, slots, tokens + slots]; open_keys: [rows, slots, slots]; returns q's shape.
    """
    out: Tensor = _CanvasAttention.apply(q, keys, values, key_bias, hidden, open_keys)  # type: ignore[no-untyped-call]
    return out


def grouped(q: Tensor, kv_heads: int) -> Tensor:
    """[rows, heads, slots, width] -> [rows, kv_heads, groups * slots, width]; a group shares its keys."""
    out: Tensor = q.unflatten(1, (kv_heads, -1)).flatten(2, 3)
    return out


def ungrouped(out: Tensor, heads: int) -> Tensor:
    """The way back."""
    apart: Tensor = out.unflatten(2, (heads // out.shape[1], -1)).flatten(1, 2)
    return apart


class _CanvasAttention(torch.autograd.Function):
    """What `attend` says, of scaled and grouped queries."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, keys: Tensor, values: Tensor, key_bias: Tensor, hidden: Tensor, open_keys: Tensor
    ) -> Tensor:
        """One matrix of scores, made in place."""
        scores = q @ keys.transpose(-1, -2)
        by_head = _by_head(scores, open_keys)
        by_head += hidden[:, :, None]
        bias = key_bias.to(q.dtype).view(1, by_head.shape[1], -1, 1, 1)
        by_head[..., -open_keys.shape[-1] :] += bias * open_keys[:, None, None]
        shares = scores.softmax(-1)
        ctx.save_for_backward(q, keys, values, shares, open_keys)
        out: Tensor = shares @ values
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of q, keys, values and key_bias."""
        (gradient,) = gradients
        q, keys, values, shares, open_keys = ctx.saved_tensors
        of_shares = gradient @ values.transpose(-1, -2)
        of_scores = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype)
        on_slots = _by_head(of_scores, open_keys)[..., -open_keys.shape[-1] :]
        of_bias = (on_slots * open_keys[:, None, None]).sum((0, 3, 4), dtype=torch.float32).flatten()
        return (
            of_scores @ keys,
            of_scores.transpose(-1, -2) @ q,
            shares.transpose(-1, -2) @ gradient,
            of_bias,
            None,
            None,
        )


def _by_head(scores: Tensor, open_keys: Tensor) -> Tensor:
    """[rows, kv_heads, groups * slots, keys] seen as [rows, kv_heads, groups, slots, keys]."""
    seen: Tensor = scores.unflatten(2, (-1, open_keys.shape[-1]))
    return seen
