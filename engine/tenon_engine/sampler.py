"""Samplers: pure functions from logits to ids and confidences, and from those to the slots that are accepted.

No model, no canvas, no step count. Every rule takes the slots of one canvas in order and returns those that win.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What a forward says of each scored slot; all fields are [slots], on the CPU."""

    ids: Tensor  # int64
    probability: Tensor  # f32, of `ids` under the untempered distribution
    margin: Tensor  # f32, best minus second-best probability
    entropy: Tensor  # f32, nats

    def __getitem__(self, part: slice) -> Prediction:
        """The prediction of some slots."""
        return Prediction(self.ids[part], self.probability[part], self.margin[part], self.entropy[part])


def predict(
    logits: Tensor, *, first_rank: int = 0, temperature: float = 0.0, generator: torch.Generator | None = None
) -> Prediction:
    """Greedy ids at temperature 0, else sampled ones; confidences are always those of the model itself.

    logits: f32 [slots, vocabulary], -inf where an id is not allowed; every row allows at least one.
    first_rank: the first slot takes its id of that rank instead (0 = the best).
    """
    log_probability = logits.log_softmax(-1)
    top = log_probability.topk(min(max(2, first_rank + 1), logits.shape[-1]), dim=-1)
    if temperature > 0:
        weights = (logits / temperature).softmax(-1)
        ids = torch.multinomial(weights, 1, generator=generator)[:, 0]
    else:
        ids = top.indices[:, 0].clone()
        ids[0] = top.indices[0, -1 if first_rank else 0]
    probability = log_probability.exp()
    best, second = top.values[:, :2].exp().unbind(-1)
    entropy = torch.special.entr(probability).sum(-1)
    return Prediction(ids, probability.gather(1, ids[:, None])[:, 0], best - second, entropy)


def above_threshold(prediction: Prediction, threshold: float) -> list[int]:
    """Slots whose probability exceeds `threshold` (Fast-dLLM, arXiv 2505.22618)."""
    return _where(prediction.probability > threshold)


def top_k(prediction: Prediction, count: float) -> list[int]:
    """The `count` most probable slots (LLaDA's low-confidence remasking, without remasking)."""
    best = prediction.probability.argsort(descending=True, stable=True)[: int(count)]
    return sorted(best.tolist())


def above_margin(prediction: Prediction, margin: float) -> list[int]:
    """Slots whose best id leads the second by more than `margin` (Dream's margin confidence)."""
    return _where(prediction.margin > margin)


def entropy_bound(prediction: Prediction, bound: float) -> list[int]:
    """The largest set of most certain slots whose joint-dependence bound stays below `bound` nats.

    Slots in order of entropy; accepted while the sum of entropies less the largest one is at most `bound`
    (EB-sampler, arXiv 2505.24857).
    """
    order = prediction.entropy.argsort(stable=True)
    sorted_entropy = prediction.entropy[order]
    within = sorted_entropy.cumsum(0) - sorted_entropy <= bound
    return sorted(order[within].tolist())


def confirmed(drafts: Sequence[int], predicted: Sequence[int]) -> int:
    """How many leading drafts the model, reading exactly those drafts, predicts itself."""
    count = 0
    for draft, token in zip(drafts, predicted, strict=False):
        if draft != token:
            break
        count += 1
    return count


def _where(mask: Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero()[:, 0]]
