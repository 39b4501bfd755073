"""Scores an engine on infilling tasks: fill the hole, run the tests, count.

Knows nothing of files, models or screens: tasks come in, outcomes come out, one at a time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tenon_engine.evaluation import calibration, figures
from tenon_engine.evaluation.sandbox import Verdict, run_program
from tenon_engine.evaluation.tasks import Task
from tenon_engine.wire import FillRequest, FillResult

_FIRST_LINE = re.compile(r"\s*[^\n]*\n?")


class Filler(Protocol):
    """What this module needs of an engine."""

    def fill(self, request: FillRequest) -> FillResult:
        """Fill the holes of a request."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One task, filled and tested."""

    task_id: str
    fill: str
    reason: str
    confidence: float
    verdict: Verdict
    is_exact: bool
    forwards: int
    tokens: int
    total_ms: float


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run; shares are 0..1, all are 0 when no task was done."""

    task_count: int
    pass_at_1: float
    exact_match: float
    steps_per_fill: float
    tokens_per_step: float
    p50_ms: float
    p95_ms: float


def evaluate(engine: Filler, tasks: Iterable[Task], *, one_line: bool = False) -> Iterator[Outcome]:
    """Yield the outcome of each task in turn; the engine gets both sides and the language, no path.

    Each task is a session, so that the times hold no context reused from another task.
    one_line: cut fills behind their first line end, a help for a model that does not know where to end.
    """
    for task in tasks:
        result = engine.fill(
            FillRequest.single(task.prompt, task.suffix, language="python", session=task.task_id)
        )
        (hole,) = result.holes
        fill = _FIRST_LINE.match(hole.text)[0] if one_line else hole.text  # type: ignore[index]  # matches any text
        yield Outcome(
            task_id=task.task_id,
            fill=fill,
            reason=hole.reason,
            confidence=hole.confidence,
            verdict=run_program(task.program(fill)),
            is_exact=fill == task.canonical_solution,
            forwards=result.cost.forwards,
            tokens=result.cost.tokens,
            total_ms=result.cost.total_ms,
        )


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The figures of these outcomes; times are nearest-rank percentiles."""
    count = len(outcomes)
    forwards = sum(outcome.forwards for outcome in outcomes)
    times_ms = [outcome.total_ms for outcome in outcomes]
    return Summary(
        task_count=count,
        pass_at_1=figures.ratio(sum(outcome.verdict is Verdict.PASSED for outcome in outcomes), count),
        exact_match=figures.ratio(sum(outcome.is_exact for outcome in outcomes), count),
        steps_per_fill=figures.ratio(forwards, count),
        tokens_per_step=figures.ratio(sum(outcome.tokens for outcome in outcomes), forwards),
        p50_ms=figures.percentile(times_ms, 0.50),
        p95_ms=figures.percentile(times_ms, 0.95),
    )


def summary_row(summary: Summary, sampler: str) -> dict[str, object]:
    """The summary under its published names, rounded: the one JSON line of `tenon eval infilling --json`."""
    return {
        "n": summary.task_count,
        "pass@1": round(summary.pass_at_1, 4),
        "exact_match": round(summary.exact_match, 4),
        "steps_per_fill": round(summary.steps_per_fill, 3),
        "tokens_per_step": round(summary.tokens_per_step, 3),
        "p50_ms": round(summary.p50_ms, 1),
        "p95_ms": round(summary.p95_ms, 1),
        "sampler": sampler,
    }


def passed(outcomes: Iterable[Outcome]) -> list[calibration.Outcome]:
    """Which fills were right: those that passed."""
    return [
        calibration.Outcome(outcome.confidence, outcome.verdict is Verdict.PASSED) for outcome in outcomes
    ]
