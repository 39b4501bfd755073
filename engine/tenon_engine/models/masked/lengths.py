"""How long a hole is, for models that cannot say so themselves: CAL (arXiv 2602.00476), a few lengths in a batch.

A masked model is surest, on average over a hole whose slots are all open, near the length that fits; but it is surer of
short holes than of long ones whatever fits. The paper fits that bias over many holes, of which it leaves out the
lengths near the true one, and uses one curve for LLaDA, Dream-Coder and DiffuCoder. It climbs from a guess, a forward a
length; here a ladder of lengths is one forward, and those between the best rung's neighbours are a second. Knows no
text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from tenon_engine.denoise import Network, require_finite
from tenon_engine.view import OPEN, View

LENGTHS_MAX = 6  # of one forward
RATIO = 0.62  # of a rung to the next longer one

C = TypeVar("C")


@torch.inference_mode()
def find_length(network: Network[C], context: C, longest: int, edge: int) -> tuple[int, int]:
    """The length up to `longest` that fits best, and how many forwards that took; `context` must keep nothing.

    edge: how many slots of a canvas come before and after the hole's own.
    """
    sureness = _sureness(network, context, ladder(longest), edge)
    between = rungs_around(_best(sureness), list(sureness))
    if between:
        sureness |= _sureness(network, context, between, edge)
    return _best(sureness), 1 + bool(between)


def ladder(longest: int) -> list[int]:
    """The lengths that are tried first, the longest in front; all there are, if they are few."""
    if longest <= LENGTHS_MAX:
        return list(range(longest, 0, -1))
    return sorted({max(1, round(longest * RATIO**rung)) for rung in range(LENGTHS_MAX)}, reverse=True)


def rungs_around(best: int, tried: Sequence[int]) -> list[int]:
    """The lengths that are tried next: those between the neighbours of the best one, evenly spaced if they are many."""
    lower = max((length for length in tried if length < best), default=0)
    upper = min((length for length in tried if length > best), default=best)
    between = [length for length in range(lower + 1, upper) if length != best]
    count = min(LENGTHS_MAX, len(between))
    return [between[index * len(between) // count] for index in range(count)]


def length_bias(length: int) -> float:
    """Mean confidence of the first step in holes of a length that does not fit (the paper's appendix A)."""
    return math.exp(-1.77 * length) + 0.56 * math.exp(-0.06 * length) + 0.24


def _best(sureness: dict[int, float]) -> int:
    return max(sureness, key=lambda length: sureness[length])


def _sureness(network: Network[C], context: C, lengths: Sequence[int], edge: int) -> dict[int, float]:
    """How sure the model is of each length, over what it is of such lengths in general, by one forward."""
    logits = network.forward([(context, _all_open(edge + length)) for length in lengths])
    confidences = torch.tensor([float(scores.softmax(-1).amax(-1).mean()) for scores in logits])
    require_finite(confidences)
    return {
        length: confidence / length_bias(edge + length)
        for length, confidence in zip(lengths, confidences.tolist(), strict=True)
    }


def _all_open(size: int) -> View:
    return View(
        reads=(OPEN,) * size,
        places=tuple(range(size)),
        sees=np.ones((size, size), dtype=np.bool_),
        kept=0,
        keepable=0,
        scored=tuple(range(size)),
        constraints=(None,) * size,
    )
