"""Denoising of uniform noise: an open slot holds a random token, and what was accepted may be open again.

Each step accepts the slots that the entropy bound allows and draws new noise for all others; when the most probable
text no longer changes and is certain, or the steps are used up, that text is decided as a whole. Touches no model.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Collection, Sequence

import numpy as np

from tenon_engine.canvas import Canvas
from tenon_engine.errors import BadRequestError
from tenon_engine.plan import Row
from tenon_engine.sampler import Prediction, entropy_bound
from tenon_engine.view import Constraint, View
from tenon_engine.wire import SlotState

TEMPERATURE_FIRST, TEMPERATURE_LAST = 0.8, 0.4
MEAN_ENTROPY_MAX = 0.005  # nats; of the open slots alone: fixed ones would make any canvas look certain
BOUND, STEPS_MAX = 0.1, 8
STEPS_LIMIT = 256
NO_END = -1
HELP = "entropy[:BOUND[:STEPS]]"


@dataclasses.dataclass(slots=True)
class Pace:
    """How far a canvas is. Its plan advances it; its network reads the temperature."""

    steps_max: int
    step: int = 0

    @property
    def temperature(self) -> float:
        """Of the step to come: linear, from the first almost down to the last (DiffusionGemma's own schedule)."""
        remaining = 1 - self.step / self.steps_max
        return TEMPERATURE_LAST + (TEMPERATURE_FIRST - TEMPERATURE_LAST) * remaining

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self.step >= self.steps_max


class UniformCanvas(Canvas):
    """Slots fixed from the start, then free ones, of which none is decided before all are.

    Until then a free slot is open or provisional by the step, and the text so far is the most probable one. `before`
    are the ids of earlier canvases of the same hole, and `confidence` theirs. There is no END: ids without bytes, as
    models fill what is left with, take room and no text.
    """

    def __init__(
        self, size: int, *, fixed: Sequence[int] = (), before: Sequence[int] = (), confidence: float = 1.0
    ) -> None:
        super().__init__(len(fixed) + size, end_id=NO_END)
        self.free = range(len(fixed), len(self))
        self._before = list(before)
        self._confidence_before = confidence
        for place, token in enumerate(fixed):
            self.ids[place], self.states[place], self.confidences[place] = token, SlotState.DECIDED, 1.0
        self._text: list[int] = list(fixed)

    @property
    def text_ids(self) -> list[int]:
        """Ids of the most probable text so far, that of earlier canvases before it."""
        return [*self._before, *self._text]

    @property
    def confidence(self) -> float:
        """Product of the probabilities of that text's tokens."""
        return self._confidence_before * math.prod(self.confidences)

    def improve(self, best: Sequence[int], confidences: Sequence[float], accepted: dict[int, int]) -> bool:
        """Take a step's most probable ids and its accepted ones (by place); True when the text stays what it was."""
        text = [*self._text[: self.free.start], *best]
        is_stable, self._text = text == self._text, text
        for place, confidence in zip(self.free, confidences, strict=True):
            self.ids[place] = accepted.get(place)
            self.states[place] = SlotState.PROVISIONAL if place in accepted else SlotState.OPEN
            self.confidences[place] = confidence
        return is_stable

    def settle(self) -> None:
        """Decide the text as it is."""
        for place in self.free:
            self.commit(place, self._text[place], self.confidences[place])
        self.ended = True


@dataclasses.dataclass(slots=True)
class UniformRow(Row):
    """A candidate and its noise. `constraint` is what the first free slot may take: it spells the left edge again."""

    canvas: UniformCanvas
    pace: Pace = dataclasses.field(kw_only=True)
    noise: Noise = dataclasses.field(kw_only=True)
    constraint: Constraint | None = dataclasses.field(kw_only=True)


class Noise:
    """A random id for every slot, from the whole vocabulary: plausible ones would be believed."""

    def __init__(self, size: int, *, vocabulary: int, seed: int) -> None:
        self._vocabulary = vocabulary
        self._random = random.Random(seed)  # noqa: S311
        self.ids = [self._draw() for _ in range(size)]

    def renew(self, places: Collection[int]) -> None:
        """Draw again for `places`."""
        for place in places:
            self.ids[place] = self._draw()

    def _draw(self) -> int:
        return self._random.randrange(self._vocabulary)


@dataclasses.dataclass(frozen=True, slots=True)
class UniformPlan:
    """DiffusionGemma's sampler, its stop measured on the hole alone; logits come with the temperature applied."""

    bound: float = BOUND
    steps_max: int = STEPS_MAX

    def look(self, row: UniformRow) -> View:
        """Every slot of the hole with what is in it, noise where nothing is; scored are those not decided."""
        canvas = row.canvas
        scored = () if canvas.finished else tuple(canvas.free)
        return whole_view(
            [row.noise.ids[place] if token is None else token for place, token in enumerate(canvas.ids)],
            scored,
            [row.constraint if place == canvas.free.start else None for place in scored],
        )

    def decide(self, row: UniformRow, view: View, prediction: Prediction) -> None:
        """Accept what the bound allows, renew the noise of the rest, and end when nothing is left to gain."""
        canvas, pace = row.canvas, row.pace
        best = prediction.logits.argmax(-1)
        untempered = (prediction.logits * pace.temperature).log_softmax(-1)
        confidences = untempered.gather(1, best[:, None])[:, 0].exp()
        accepted = {
            view.scored[index]: int(prediction.ids[index]) for index in entropy_bound(prediction, self.bound)
        }
        is_stable = canvas.improve(best.tolist(), confidences.tolist(), accepted)
        pace.step += 1
        if pace.is_over or (is_stable and float(prediction.entropy.mean()) < MEAN_ENTROPY_MAX):
            canvas.settle()
        row.noise.renew([place for place in view.scored if place not in accepted])


def whole_view(reads: Sequence[int], scored: Sequence[int], constraints: Sequence[Constraint | None]) -> View:
    """A view of slots that all see each other, each read by its own entry."""
    size = len(reads)
    return View(
        reads=tuple(reads),
        places=tuple(range(size)),
        sees=np.ones((size, size), dtype=np.bool_),
        kept=0,
        keepable=0,
        scored=tuple(scored),
        constraints=tuple(constraints),
    )


def plan_named(name: str, *, default: str) -> UniformPlan:
    """The plan that a setting describes; left at its `default`, which is another family's, it is this one's own."""
    kind, *values = name.split(":")
    if name == default:
        return UniformPlan()
    try:
        bound = float(values[0]) if values else BOUND
        steps = int(values[1]) if len(values) > 1 else STEPS_MAX
    except ValueError:
        kind = ""
    if kind != "entropy" or len(values) > 2 or not (0 <= bound < math.inf and 1 <= steps <= STEPS_LIMIT):
        raise BadRequestError(f"this model has no sampler {name!r}; there is: {HELP}")
    return UniformPlan(bound, steps)
