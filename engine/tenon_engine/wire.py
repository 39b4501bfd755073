"""The one contract between the engine and whoever asks it: FillRequest, a stream of FillSteps, one FillResult.

Text in, text out: no tokens, no tensors, no HTTP, no LSP. Importing this module imports nothing else of the engine.
Characters are Python characters (code points); times are milliseconds; confidences are probabilities in 0..1.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

DEFAULT_MAX_TOKENS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Hole:
    """A place to fill; `max_tokens` is the size of its canvas, `None` for what suits (the engine's default).

    `text` is what stands there now: a rewrite (`strength` 1, every slot open) or a refinement (`strength` below 1,
    only that share of its tokens is opened again, the least certain ones; the others are locked).
    """

    max_tokens: int | None = None
    text: str = ""
    strength: float = 1.0


Segment = str | Hole


@dataclasses.dataclass(frozen=True, slots=True)
class ExtraFile:
    """Text of another file that may help; read as context, never written."""

    path: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FillRequest:
    """Fixed text and holes in turn: `[text, hole, text, …, hole, text]`, and the limits of the answer."""

    segments: tuple[Segment, ...]
    path: str | None = None
    language: str | None = None  # LSP language id
    extra: tuple[ExtraFile, ...] = ()
    instruction: str | None = None
    candidates: int = 1
    temperature: float = 0.0  # 0 is greedy
    seed: int = 0
    deadline_ms: int | None = None
    session: str = ""  # one document of one editor: requests of a session share the context cache

    @staticmethod
    def single(prefix: str, suffix: str, *, max_tokens: int | None = None, **rest: Any) -> FillRequest:
        """The common case: one hole between `prefix` and `suffix`."""
        return FillRequest(segments=(prefix, Hole(max_tokens), suffix), **rest)


class SlotState(enum.Enum):
    """State of one canvas slot, as a client may draw it."""

    FIXED = "fixed"  # the user's own text, taken back for token healing
    OPEN = "open"
    PROVISIONAL = "provisional"  # a draft the next forward will check
    DECIDED = "decided"


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """One canvas slot after a step: its text ('' while open), state and the confidence it was decided with."""

    text: str
    state: SlotState
    confidence: float


@dataclasses.dataclass(frozen=True, slots=True)
class FillStep:
    """The canvas of one hole's best candidate after one denoising step (`step` counts from 1)."""

    hole: int
    step: int
    slots: tuple[Slot, ...]
    elapsed_ms: float


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One text for a hole, already fitted, with the product of its tokens' probabilities."""

    text: str
    confidence: float


@dataclasses.dataclass(frozen=True, slots=True)
class HoleFill:
    """The answer for one hole; `candidates` best first, empty when there is nothing worth suggesting.

    `reason` says why text was cut or withheld ('' when the model's text stands as it was).
    """

    candidates: tuple[Candidate, ...]
    reason: str = ""

    @property
    def text(self) -> str:
        """The best candidate's text, '' when there is none."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def confidence(self) -> float:
        """The best candidate's confidence, 0 when there is none."""
        return self.candidates[0].confidence if self.candidates else 0.0


class Stopped(enum.Enum):
    """Why denoising ended."""

    DONE = "done"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What a fill cost. Forwards count canvas passes; `tokens` counts decided tokens of all candidates, END included.

    The first forward of a hole also encodes the last part of its context, and counts as denoising.
    """

    forwards: int = 0
    tokens: int = 0
    context_tokens: int = 0
    reused_tokens: int = 0  # of context_tokens, how many came from the context cache
    context_ms: float = 0.0
    denoise_ms: float = 0.0
    total_ms: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """The sum, field by field: the cost of several holes or rounds."""
        return Cost(
            *(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FillResult:
    """One HoleFill per hole of the request, in order, and what they cost together."""

    holes: tuple[HoleFill, ...]
    model: str
    stopped: Stopped = Stopped.DONE
    rounds: int = 1
    cost: Cost = Cost()
