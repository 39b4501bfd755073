"""How likely a masked model finds a text that is there already: tokens are masked in groups and read back.

A token is scored on everything else, but for those masked with it: every GROUPS-th one, a long way off. Knows no
windows and no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from tenon_engine.denoise import Network, require_finite
from tenon_engine.models.base import StopCheck
from tenon_engine.view import OPEN, View

GROUPS = 8  # and as many forwards, for a text that has so many tokens

C = TypeVar("C")


@torch.inference_mode()
def probabilities(
    network: Network[C], context: C, ids: Sequence[int], stop: StopCheck
) -> tuple[list[float], int]:
    """Of each of `ids`, and the forwards that took; none, when stopped between two. `context` must keep nothing."""
    found = [0.0] * len(ids)
    groups = min(GROUPS, len(ids))
    for first in range(groups):
        if stop():
            return [], first
        masked = range(first, len(ids), groups)
        (logits,) = network.forward([(context, _view(ids, masked))])
        wanted = torch.tensor([ids[place] for place in masked], device=logits.device)
        log_probability = logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(-1)
        probability = log_probability.exp()
        require_finite(probability)
        for place, each in zip(masked, probability.tolist(), strict=True):
            found[place] = each
    return found, groups


def _view(ids: Sequence[int], masked: range) -> View:
    size = len(ids)
    return View(
        reads=tuple(OPEN if place in masked else token for place, token in enumerate(ids)),
        places=tuple(range(size)),
        sees=np.ones((size, size), dtype=np.bool_),
        kept=0,
        keepable=0,
        scored=tuple(masked),
        constraints=(None,) * len(masked),
    )
