"""Plans: which slots the next forward looks at, and what becomes of them. A plan is a sampler with its view.

`ParallelPlan` looks at the whole canvas in both directions and accepts what its rule says. `ConfirmPlan` checks
drafts from left to right. Neither touches a model; both leave the canvas's invariants to the canvas.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from tenon_engine.canvas import Canvas
from tenon_engine.drafts import ngram_drafts
from tenon_engine.edges import Edges
from tenon_engine.sampler import Prediction, confirmed
from tenon_engine.view import OPEN, START, BoolMatrix, View
from tenon_engine.wire import SlotState

DRAFT_PROBABILITY_MIN = (
    0.3  # below it a draft costs more than it saves (measured: acceptance follows probability)
)

Rule = Callable[[Prediction, float], list[int]]


@dataclasses.dataclass(slots=True)
class Row:
    """One candidate on its way: its canvas, the edges of its hole, and the drafts its last forward left behind."""

    canvas: Canvas
    edges: Edges
    history: Sequence[int]  # ids that n-gram drafts may be copied from, the hole's left text last
    drafts: list[int] = dataclasses.field(default_factory=list)


R = TypeVar("R", bound=Row, contravariant=True)


class Plan(Protocol[R]):
    """Decides what a forward looks at and what follows from it."""

    def look(self, row: R) -> View:
        """What the next forward of an unfinished canvas shall see."""
        ...

    def decide(self, row: R, view: View, prediction: Prediction) -> None:
        """Commit one slot or more; `prediction` belongs to the scored entries of `view`, in order."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class ParallelPlan:
    """Every slot sees every other; `rule` accepts among the open slots within `window` of the frontier.

    With a window the frontier slot is accepted whatever the rule says, so text grows from the left; without one
    (None) the most probable slot is. While the left edge is being spelt again, only the frontier is in reach.
    An entry reads the token before its slot, as models do that were made from one that writes left to right; or, where
    it `reads_itself`, its own slot, as masked models do.
    """

    rule: Rule
    value: float
    window: int | None = None
    reads_itself: bool = False

    def look(self, row: Row) -> View:
        """The whole canvas; scored are the open slots in reach."""
        canvas = row.canvas
        size, frontier = len(canvas), canvas.frontier
        reach = 1 if row.edges.healing(canvas.text_ids) else self.window or size
        scored = [
            p for p in range(frontier, min(size, frontier + reach)) if canvas.states[p] is SlotState.OPEN
        ]
        here, ahead = row.edges.constraint(canvas.text_ids), row.edges.constraint_ahead()
        return View(
            reads=tuple(map(self._read(canvas), range(size))),
            places=tuple(range(size)),
            sees=np.ones((size, size), dtype=np.bool_),
            kept=0,
            keepable=0,
            scored=tuple(scored),
            constraints=tuple(here if place == frontier else ahead for place in scored),
        )

    def _read(self, canvas: Canvas) -> Callable[[int], int]:
        return functools.partial(_read_itself if self.reads_itself else _read, canvas)

    def decide(self, row: Row, view: View, prediction: Prediction) -> None:
        """Accept the rule's slots, and one slot in any case."""
        for index in self.accepted(prediction):
            if view.places[view.scored[index]] < len(row.canvas):  # END may have shortened it meanwhile
                place = view.scored[index]
                row.canvas.commit(place, int(prediction.ids[index]), float(prediction.probability[index]))

    def accepted(self, prediction: Prediction) -> list[int]:
        """Which of the scored slots are accepted, in order; one at least."""
        surest = 0 if self.window is not None else int(prediction.probability.argmax())
        return sorted({surest, *self.rule(prediction, self.value)})


@dataclasses.dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """Draft and check: decided and provisional slots look left only, so a slot is decided on exactly the text before
    it, and its keys and values hold from then on.

    One forward reads the *chain* (the last decided token, then the drafts) and behind every link of it a *fan* of
    open slots: what the model expects further right if the chain is confirmed up to there. The fan behind the last
    confirmed link gives the next drafts, so that a rejected draft never spoils them (compare the draft heads made of
    mask tokens in PaSS, arXiv 2311.13581, and BiTA, arXiv 2401.12522). Drafts copied from the text around replace
    them where they say the same and more, or where there are none. `fan_size` 0 is left to right, one token a step.
    """

    fan_size: int
    ngram_length: int = 0  # copy drafts behind a repeated n-gram of this length; 0: never
    ngram_count: int = 0
    least: float = (
        DRAFT_PROBABILITY_MIN  # drafts less likely to be confirmed than this are not worth their slots
    )
    adapted: bool = True
    one_line: bool = False  # stop behind the first line end: the base alone does not know END

    @property
    def lean(self) -> ConfirmPlan:
        """The plan for the same text with the fewest entries: no fans, so more steps, each of less work."""
        return dataclasses.replace(self, fan_size=0)

    def look(self, row: Row) -> View:
        """Chain, then fans; all of it is scored, the chain under the constraints of the edges."""
        canvas, start = row.canvas, row.canvas.frontier
        canvas.suggest(self._drafts(row))
        chain, fans = self._layout(canvas)
        left = canvas.text_ids + canvas.drafts
        fan_places = [place for fan in fans for place in fan]
        return View(
            reads=(*(_read(canvas, place) for place in chain), *(OPEN for _ in fan_places)),
            places=(*chain, *fan_places),
            sees=_chain_and_fans(len(chain), [len(fan) for fan in fans]),
            kept=start,
            keepable=len(chain),
            scored=tuple(range(len(chain) + len(fan_places))),
            constraints=(
                *(row.edges.constraint(left[:place]) for place in chain),
                *(None for _ in fan_places),
            ),
            adapted=self.adapted,
        )

    def decide(self, row: Row, view: View, prediction: Prediction) -> None:
        """Commit the confirmed drafts and one token more; the fan behind it becomes the next drafts.

        The view need not be this plan's own: one with other fans, or with none, says as much as it says.
        """
        canvas, start = row.canvas, row.canvas.frontier
        ids = [int(i) for i in prediction.ids]
        count = min(confirmed(canvas.drafts, ids), view.keepable - 1)
        for link in range(count + 1):
            if start + link < len(canvas):
                canvas.commit(start + link, ids[link], float(prediction.probability[link]))
        fan = _fan_behind(view, count)
        row.drafts = ids[fan][: int((prediction.probability[fan].cumprod(0) >= self.least).sum())]
        if self.one_line and row.edges.fills_line(canvas.text_ids):
            canvas.close()
        canvas.suggest(self._drafts(row))

    def _drafts(self, row: Row) -> list[int]:
        history = [*row.history, *row.canvas.text_ids]
        copied = ngram_drafts(history, length=self.ngram_length, count=self.ngram_count)
        return copied if copied[:1] == row.drafts[:1] or not row.drafts else row.drafts

    def _layout(self, canvas: Canvas) -> tuple[list[int], list[list[int]]]:
        """Places of the chain, and of the fan behind each link of it; links far inside a long chain have none."""
        size, start = len(canvas), canvas.frontier
        chain = list(range(start, min(size, start + len(canvas.drafts) + 1)))
        fanned = {*chain[: self.fan_size + 1], chain[-1]}
        ends = [min(size, place + 1 + self.fan_size) if place in fanned else 0 for place in chain]
        return chain, [list(range(place + 1, end)) for place, end in zip(chain, ends, strict=True)]


@dataclasses.dataclass(frozen=True, slots=True)
class SparingPlan:
    """A plan that looks without fans while `is_crowded`: a device that many share has no entry to spare for a guess."""

    plan: ConfirmPlan
    is_crowded: Callable[[], bool]

    def look(self, row: Row) -> View:
        """Chain and fans, or the chain alone."""
        return (self.plan.lean if self.is_crowded() else self.plan).look(row)

    def decide(self, row: Row, view: View, prediction: Prediction) -> None:
        """As the plan does, whichever it looked with."""
        self.plan.decide(row, view, prediction)


def _read(canvas: Canvas, place: int) -> int:
    """What the entry of `place` reads: the token before it."""
    if place == 0:
        return START
    token = canvas.ids[place - 1]
    return OPEN if token is None else token


def _read_itself(canvas: Canvas, place: int) -> int:
    """What is in the slot."""
    token = canvas.ids[place]
    return OPEN if token is None else token


def _fan_behind(view: View, link: int) -> slice:
    """The entries of the fan behind a link of the chain: those that see the links up to it."""
    links_seen = view.sees[view.keepable :, : view.keepable].sum(1)
    first, last = np.searchsorted(links_seen, [link + 1, link + 2])
    return slice(view.keepable + int(first), view.keepable + int(last))


def _chain_and_fans(chain: int, fans: Sequence[int]) -> BoolMatrix:
    """Links see the links before them; a fan sees the chain up to its link, and itself in both directions."""
    size = chain + sum(fans)
    sees = np.zeros((size, size), dtype=np.bool_)
    sees[:chain, :chain] = np.tri(chain, dtype=np.bool_)
    start = chain
    for link, fan in enumerate(fans):
        sees[start : start + fan, : link + 1] = True
        sees[start : start + fan, start : start + fan] = True
        start += fan
    return sees
