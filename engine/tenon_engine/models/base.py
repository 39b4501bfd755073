"""What every model offers the engine: `propose`, texts for one hole, step by step, and `score`, how sure it is of one.

A diffusion model does it with tokens and a canvas (`tenon_engine.diffusion`); a scripted or remote one with text alone.
Knows nothing of requests with several holes, of fit, or of files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Protocol

from tenon_engine.wire import Cost, ExtraFile, Slot, Stopped

PROBABILITY_MIN = 1e-12  # of one token; less is less than the numbers behind it can tell

StopCheck = Callable[[], Stopped | None]
"""Asked between steps: None to go on, else why to stop."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HoleRequest:
    """One hole as a model sees it: line ends are LF.

    An instruction is a comment line in `prefix` already, or in `instruction` for a model that reads instructions.
    """

    prefix: str
    suffix: str
    path: str | None
    language: str | None
    extra: tuple[ExtraFile, ...]
    max_tokens: int
    candidates: int
    temperature: float
    seed: int
    session: str
    instruction: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """One candidate's raw text; `finished` is False while slots before its end are open."""

    text: str
    confidence: float
    finished: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Proposal:
    """State after one step: every candidate's text so far, the best one's slots, and the cost up to here."""

    drafts: tuple[Draft, ...]
    slots: tuple[Slot, ...]
    cost: Cost


@dataclasses.dataclass(frozen=True, slots=True)
class TokenScore:
    """How likely a model finds `text[start:end]` after all that stands before it; an empty span is the text's end."""

    start: int
    end: int
    probability: float


@dataclasses.dataclass(frozen=True, slots=True)
class Scores:
    """The tokens of a text in order and what it cost to score them; not `finished` when it was stopped on the way."""

    tokens: tuple[TokenScore, ...]
    cost: Cost
    finished: bool

    @property
    def mean_log_probability(self) -> float:
        """Per token; -inf for no tokens."""
        if not self.tokens:
            return -math.inf
        return sum(math.log(max(token.probability, PROBABILITY_MIN)) for token in self.tokens) / len(
            self.tokens
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ContextBudget:
    """How many tokens of context a model has a use for: more is cut, or takes longer than it helps."""

    prefix_tokens: int
    suffix_tokens: int
    extra_tokens: int  # of all extra files together


class Model(Protocol):
    """A loaded model."""

    name: str
    budget: ContextBudget
    device: str  # where it runs; '' where that means nothing
    reads_instructions: bool  # apart from the text, as a model that chats does

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """Yield a Proposal per step; the last one is the answer. Ends early when `stop()` gives a reason."""
        ...

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        """How sure the model is of `text` in the hole: of each token, given both sides and the text to its left."""
        ...

    def count_tokens(self, text: str) -> int:
        """How many slots `text` takes."""
        ...
