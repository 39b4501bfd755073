"""What is minimised: half of each target is the true token, half what the base itself says given all text before it.

The head, by far the largest matrix, is applied to scored entries alone, a few at a time, its gradient taken at once, so
that the scores of all ids never lie in memory together. Knows tensors; no texts, no optimiser.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import Tensor

TEACHER_IDS = 16  # of the base's distribution, the most likely ones
CHUNK = 256  # entries whose scores are in memory at a time
RANKS_SHOWN = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Targets:
    """What scored entries shall say, as distributions."""

    ids: Tensor  # [scored] the true ones
    weights: Tensor  # [scored]
    teacher_ids: Tensor  # [scored, TEACHER_IDS]
    teacher_shares: (
        Tensor  # [scored, TEACHER_IDS] how much of the target each is; 0 where the base has no say
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """What the entries said instead."""

    loss: Tensor  # [] weighted mean, differentiable
    log_likelihood: Tensor  # [scored] of the true ids
    is_right: Tensor  # [scored]


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """A sum and over how many."""

    total: float = 0.0
    count: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(self.total + other.total, self.count + other.count)

    def faded(self, share: float) -> Count:
        """So much of it."""
        return Count(self.total * share, self.count * share)

    @property
    def mean(self) -> float:
        """0 of nothing."""
        return self.total / self.count if self.count else 0.0


Metrics = dict[str, Count]
"""`loss` (of the true ids, weighted as it is minimised), `slot_1` to `slot_4` (is the n-th open slot right?), `end` (is
a first open slot that ends the text?)."""


@torch.no_grad()
def teach(
    hidden: Tensor, head: Tensor, places: Tensor, *, end_id: int, share: float
) -> tuple[Tensor, Tensor]:
    """The base's say in the target of each entry: ids and shares [scored, TEACHER_IDS].

    hidden: what the base read, [tokens, hidden]; places: [scored] where in it, -1 where it has no say.
    """
    wanted, back = places.clamp_min(0).unique(return_inverse=True)
    scores = F.linear(hidden[wanted], head[:end_id]).float()  # without END, which the base never says
    top = scores.topk(min(TEACHER_IDS, end_id), -1)
    shares = top.values.softmax(-1)[back] * (share * (places >= 0))[:, None]
    return top.indices[back], shares


def judge(hidden: Tensor, head: Tensor, targets: Targets) -> Said:
    """hidden: [scored, hidden], ready for the head."""
    loss, log_likelihood, is_right = _Judgement.apply(  # type: ignore[no-untyped-call]
        hidden, head, targets.ids, targets.weights, targets.teacher_ids, targets.teacher_shares
    )
    return Said(loss, log_likelihood, is_right)


def measure(said: Said, ids: Tensor, weights: Tensor, ranks: Tensor, *, end_id: int) -> Metrics:
    """Figures of these entries."""
    metrics = {"loss": Count(-float((said.log_likelihood * weights).sum()), float(weights.sum()))}
    for rank in range(1, RANKS_SHOWN + 1):
        metrics[f"slot_{rank}"] = _count(said.is_right, ranks == rank)
    return metrics | {"end": _count(said.is_right, (ranks == 1) & (ids == end_id))}


def _count(values: Tensor, chosen: Tensor) -> Count:
    return Count(float(values[chosen].float().sum()), float(chosen.sum()))


class _Judgement(torch.autograd.Function):
    """Cross entropy through the head, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        ids: Tensor,
        weights: Tensor,
        teacher_ids: Tensor,
        teacher_shares: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gradient = torch.empty_like(hidden)
        losses, likelihoods, right = [], [], []
        relative = weights / weights.sum()
        for rows in torch.arange(len(hidden), device=hidden.device).split(CHUNK):
            own, shares, theirs = ids[rows, None], teacher_shares[rows], teacher_ids[rows]
            true_share = 1 - shares.sum(-1, keepdim=True)
            scores = F.linear(hidden[rows], head).float()
            scores -= scores.amax(-1, keepdim=True)  # in place, as every pass over so many numbers takes time
            of_own, of_theirs = scores.gather(1, own), scores.gather(1, theirs)
            total = scores.exp_().sum(-1, keepdim=True)
            likelihoods.append((of_own - total.log())[:, 0])
            losses.append(total.log()[:, 0] - (true_share * of_own)[:, 0] - (shares * of_theirs).sum(-1))
            right.append(of_own[:, 0] == 0)
            scores.scatter_add_(1, own, -true_share * total).scatter_add_(1, theirs, -shares * total)
            gradient[rows] = scores.mul_(relative[rows, None] / total).to(head.dtype) @ head
        ctx.save_for_backward(gradient)
        is_right, likelihood = torch.cat(right), torch.cat(likelihoods)
        ctx.mark_non_differentiable(is_right, likelihood)
        return (torch.cat(losses) * relative).sum(), likelihood, is_right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None, None, None, None
