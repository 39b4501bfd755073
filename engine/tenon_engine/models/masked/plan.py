"""The plan of masked models: a parallel sampler over slots that read themselves, for canvases that may grow.

Owns what is special about candidates here: how they differ, and that a canvas that is full is not expanded.
"""

from __future__ import annotations

import dataclasses

from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError
from tenon_engine.models.masked.canvas import GrowingCanvas
from tenon_engine.plan import ParallelPlan, Row
from tenon_engine.sampler import Prediction, above_threshold
from tenon_engine.samplers import plan_named
from tenon_engine.view import Constraint, View

THRESHOLD = 0.9  # Fast-dLLM's (arXiv 2505.22618)
HELP = "frontier[:WINDOW[:THRESHOLD]], threshold|topk|margin|entropy[:VALUE[:WINDOW]]"


@dataclasses.dataclass(slots=True)
class MaskedRow(Row):
    """A candidate. `rank` makes greedy ones differ: the first slot with a choice takes its rank-th best id (0 = best).

    The loop's own ranks would not do: a slot that is not the surest may be passed over, and its id with it.
    """

    rank: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class MaskedPlan:
    """A parallel plan, decided from right to left, so that a slot that expands or goes moves none still to decide."""

    parallel: ParallelPlan

    def look(self, row: MaskedRow) -> View:
        """The whole canvas, each slot reading itself."""
        view = self.parallel.look(row)
        if not isinstance(row.canvas, GrowingCanvas) or row.canvas.can_expand:
            return view
        full = Constraint(never=row.canvas.expand_id)
        constraints = (full if each is None or each.only is None else each for each in view.constraints)
        return dataclasses.replace(view, constraints=tuple(constraints))

    def decide(self, row: MaskedRow, view: View, prediction: Prediction) -> None:
        """Accept what the parallel plan accepts; a candidate that has its rank to take, that one slot alone."""
        if row.rank and int(prediction.logits[0].isfinite().sum()) > row.rank:
            best = prediction.logits[0].softmax(-1).topk(row.rank + 1)
            row.canvas.commit(view.scored[0], int(best.indices[-1]), float(best.values[-1]))
            row.rank = 0
            return
        for index in reversed(self.parallel.accepted(prediction)):
            place = view.scored[index]
            row.canvas.commit(place, int(prediction.ids[index]), float(prediction.probability[index]))


def masked_plan(sampler: str) -> MaskedPlan:
    """The plan that a setting names, the engine's own default standing for this one's; BadRequestError for others."""
    named = plan_named(sampler)
    if sampler == EngineConfig().sampler:
        named = ParallelPlan(above_threshold, THRESHOLD)
    if not isinstance(named, ParallelPlan):
        raise BadRequestError(f"this model has no sampler {sampler!r}; there is: {HELP}")
    return MaskedPlan(dataclasses.replace(named, reads_itself=True))
