"""The loop: look, forward, predict, decide, until every canvas is finished.

One generator for every model and every sampler; to stop is not to ask for the next step. Knows no text, no threads,
no clock, and not which model it drives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from tenon_engine.errors import ModelFailedError
from tenon_engine.plan import Plan, Row
from tenon_engine.sampler import predict
from tenon_engine.view import Constraint, View

C = TypeVar("C", contravariant=True)
R = TypeVar("R", bound=Row)


class Network(Protocol[C]):
    """What the loop asks of a model: one canvas pass for several rows."""

    def forward(self, passes: Sequence[tuple[C, View]]) -> list[Tensor]:
        """Logits f32 [scored, vocabulary] per row."""
        ...


@dataclasses.dataclass(slots=True)
class Track(Generic[C, R]):
    """One candidate: its row, the context it stands on, and how it chooses.

    `rank` makes greedy candidates differ: the first slot with a choice takes its rank-th best id (0 = best).
    """

    row: R
    context: C
    rank: int = 0
    temperature: float = 0.0
    generator: torch.Generator | None = None

    def take_rank(self, scores: Tensor) -> int:
        """The rank, once, as soon as the first scored slot allows that many ids; 0 before and after."""
        if not self.rank or int(scores[0].isfinite().sum()) <= self.rank:
            return 0
        rank, self.rank = self.rank, 0
        return rank


@torch.inference_mode()
def denoise(network: Network[C], plan: Plan[R], tracks: Sequence[Track[C, R]]) -> Generator[int, None, None]:
    """Denoise all tracks in place; yields the number of the step just made, counting from 1."""
    step = 0
    while running := [track for track in tracks if not track.row.canvas.finished]:
        # 1. What to look at: which token every entry reads, and who sees whom.
        views = [plan.look(track.row) for track in running]
        # 2. One forward for all candidates.
        logits = network.forward([(track.context, view) for track, view in zip(running, views, strict=True)])
        # 3. What the model says, within what the edges of the hole allow; 4. what is decided.
        for track, view, scores in zip(running, views, logits, strict=True):
            constrain(scores, view.constraints)
            prediction = predict(
                scores,
                first_rank=track.take_rank(scores),
                temperature=track.temperature,
                generator=track.generator,
            )
            require_finite(prediction.probability)
            plan.decide(track.row, view, prediction)
        step += 1
        yield step


def constrain(logits: Tensor, constraints: Sequence[Constraint | None]) -> None:
    """Set what a slot may not take to -inf, in place. logits: [scored, vocabulary]."""
    for row, constraint in zip(logits, constraints, strict=True):
        if constraint is None:
            continue
        if constraint.only is not None:
            ids = torch.from_numpy(constraint.only)
            allowed = row[ids]
            row.fill_(-torch.inf)
            row[ids] = allowed
        if constraint.never is not None:
            row[constraint.never] = -torch.inf


def require_finite(probability: Tensor) -> None:
    """A ModelFailedError for numbers that mean nothing."""
    if not bool(probability.isfinite().all()):
        raise ModelFailedError("the model's numbers are not finite; its weights or this device are at fault")
