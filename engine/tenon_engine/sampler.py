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
    """What a forward says of each scored slot; what few rules need is computed when it is asked for."""

    ids: Tensor  # int64 [slots]
    probability: Tensor  # f32 [slots], of `ids` under the untempered distribution
    logits: Tensor  # f32 [slots, vocabulary]

    @property
    def margin(self) -> Tensor:
        """Best minus second-best probability, f32 [slots]."""
        top = self.logits.softmax(-1).topk(2, dim=-1).values
        return top[:, 0] - top[:, 1]

    @property
    def entropy(self) -> Tensor:
        """In nats, f32 [slots]."""
        entropy: Tensor = torch.special.entr(self.logits.softmax(-1)).sum(-1)
        return entropy


def predict(
    logits: Tensor, *, first_rank: int = 0, temperature: float = 0.0, generator: torch.Generator | None = None
) -> Prediction:
    """Greedy ids at temperature 0, else sampled ones; confidences are always those of the model itself.

    logits: f32 [slots, vocabulary], -inf where an id is not allowed; every row allows at least one.
    first_rank: the first slot takes its id of that rank instead (0 = the best).
    """
    if temperature > 0:
        weights = (logits / temperature).softmax(-1)
        ids = torch.multinomial(weights, 1, generator=generator)[:, 0]
    else:
        ids = logits.argmax(-1)
        if first_rank:
            ids[0] = logits[0].topk(first_rank + 1).indices[-1]
    log_probability = logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)
    return Prediction(ids, log_probability.exp(), logits)


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
    entropy = prediction.entropy
    order = entropy.argsort(stable=True)
    sorted_entropy = entropy[order]
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
