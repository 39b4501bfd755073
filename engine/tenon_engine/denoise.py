"""The loop: look, forward, predict, decide, until every canvas is finished.

One generator for every model and every sampler; to stop is not to ask for the next step. Knows no text, no threads,
no clock, and not which model it drives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from tenon_engine.plan import Plan, Row
from tenon_engine.sampler import predict
from tenon_engine.view import Constraint, View

C = TypeVar("C", contravariant=True)


class Network(Protocol[C]):
    """What the loop asks of a model: one canvas pass for several rows."""

    def forward(self, passes: Sequence[tuple[C, View]]) -> list[Tensor]:
        """Logits f32 [scored, vocabulary] per row."""
        ...


@dataclasses.dataclass(slots=True)
class Track(Generic[C]):
    """One candidate: its row, the context it stands on, and how it chooses.

    `rank` makes greedy candidates differ: the candidate's first slot takes its rank-th best id (0 = best).
    """

    row: Row
    context: C
    rank: int = 0
    temperature: float = 0.0
    generator: torch.Generator | None = None


@torch.inference_mode()
def denoise(network: Network[C], plan: Plan, tracks: Sequence[Track[C]]) -> Iterator[int]:
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
                first_rank=track.rank if step == 0 else 0,
                temperature=track.temperature,
                generator=track.generator,
            )
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
