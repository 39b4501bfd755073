"""What every model offers the engine: `propose`, texts for one hole, step by step.

A diffusion model does it with tokens and a canvas (`tenon_engine.diffusion`); a scripted or remote one with text alone.
Knows nothing of requests with several holes, of fit, or of files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Protocol

from tenon_engine.wire import Cost, ExtraFile, Slot, Stopped

StopCheck = Callable[[], Stopped | None]
"""Asked between steps: None to go on, else why to stop."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HoleRequest:
    """One hole as a model sees it: line ends are LF, an instruction already is a comment line in `prefix`."""

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


class Model(Protocol):
    """A loaded model."""

    name: str

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """Yield a Proposal per step; the last one is the answer. Ends early when `stop()` gives a reason."""
        ...
