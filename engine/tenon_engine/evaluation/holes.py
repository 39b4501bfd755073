"""Scores an engine on holes in real files: is the fill what stood there, or begins with it, and does it parse?

Knows no models and no screens: tasks come from a directory, outcomes come out one at a time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from tenon_engine.engine import UNFINISHED
from tenon_engine.errors import InputFileError
from tenon_engine.evaluation import calibration, figures
from tenon_engine.evaluation.infilling import Filler
from tenon_engine.training import filters, grammars, holes, sources
from tenon_engine.training.archives import Member
from tenon_engine.wire import FillRequest

HOLES_PER_FILE = 8  # at most


@dataclasses.dataclass(frozen=True, slots=True)
class HoleTask:
    """A hole in a file; `path` is within the directory."""

    path: str
    language: str
    text: str
    span: holes.HoleSpan

    @property
    def task_id(self) -> str:
        """The same for the same hole of the same text."""
        digest = hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{self.path}@{digest}:{self.span.start}:{self.span.end}"

    @property
    def prefix(self) -> str:
        """All that stands before the hole."""
        return self.text[: self.span.start]

    @property
    def truth(self) -> str:
        """What stood in it."""
        return self.text[self.span.start : self.span.end]

    @property
    def suffix(self) -> str:
        """What stands behind it."""
        return self.text[self.span.end : self.span.text_end]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One hole, filled and compared; `is_valid` is None where no grammar can tell."""

    task_id: str
    path: str
    language: str
    shape: str
    truth: str
    fill: str
    reason: str
    confidence: float  # 0 when nothing was offered
    is_exact: bool
    is_first_line: bool
    edit_similarity: float
    is_valid: bool | None
    is_run_on: bool
    forwards: int
    tokens: int
    total_ms: float


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """The figures of some holes; shares are 0..1, of nothing 0."""

    hole_count: int
    exact_match: float
    first_line: float
    edit_similarity: float
    syntax_valid: float  # of the holes whose language has a grammar
    run_on: float
    steps_per_fill: float
    tokens_per_step: float
    p50_ms: float


def find(folder: Path, languages: Collection[str] = (), *, seed: int = 0) -> Iterator[HoleTask]:
    """Holes of the files worth training on, the same ones on every machine: one of each file, then the next of each.

    languages: only these; none for all.
    """
    if not folder.is_dir():
        raise InputFileError(f"{folder} is not a directory")
    others: list[list[HoleTask]] = []
    for member in sorted(sources.read_files(folder), key=lambda each: _shuffled(str(each.path))):
        tasks = _tasks(member, languages, seed)
        yield from tasks[:1]
        others.append(tasks[1:])
    for layer in itertools.zip_longest(*others):
        yield from filter(None, layer)


def evaluate(engine: Filler, tasks: Iterable[HoleTask]) -> Iterator[Outcome]:
    """Yield the outcome of each task in turn. Each is a session: the times hold no context reused from another one."""
    for task in tasks:
        result = engine.fill(
            FillRequest.single(
                task.prefix, task.suffix, path=task.path, language=task.language, session=task.task_id
            )
        )
        (hole,) = result.holes
        yield Outcome(
            task_id=task.task_id,
            path=task.path,
            language=task.language,
            shape=task.span.shape,
            truth=task.truth,
            fill=hole.text,
            reason=hole.reason,
            confidence=hole.confidence,
            is_exact=hole.text.rstrip() == task.truth.rstrip(),
            is_first_line=_first_line(hole.text) == _first_line(task.truth),
            edit_similarity=edit_similarity(hole.text.rstrip(), task.truth.rstrip()),
            is_valid=_is_valid(task, hole.text),
            is_run_on=hole.reason.startswith(UNFINISHED),
            forwards=result.cost.forwards,
            tokens=result.cost.tokens,
            total_ms=result.cost.total_ms,
        )


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The figures of these outcomes."""
    forwards = [outcome.forwards for outcome in outcomes]
    return Summary(
        hole_count=len(outcomes),
        exact_match=figures.mean([outcome.is_exact for outcome in outcomes]),
        first_line=figures.mean([outcome.is_first_line for outcome in outcomes]),
        edit_similarity=figures.mean([outcome.edit_similarity for outcome in outcomes]),
        syntax_valid=figures.mean([o.is_valid for o in outcomes if o.is_valid is not None]),
        run_on=figures.mean([outcome.is_run_on for outcome in outcomes]),
        steps_per_fill=figures.mean(forwards),
        tokens_per_step=figures.ratio(sum(outcome.tokens for outcome in outcomes), sum(forwards)),
        p50_ms=figures.percentile([outcome.total_ms for outcome in outcomes], 0.5),
    )


def grouped(outcomes: Sequence[Outcome], name: Callable[[Outcome], str]) -> dict[str, Summary]:
    """The figures by what `name` says of an outcome, the largest group first."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(name(outcome), []).append(outcome)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return {key: summarise(group) for key, group in ordered}


def summary_row(summary: Summary) -> dict[str, float]:
    """The summary under its published names, rounded."""
    row = {"n": summary.hole_count, **dataclasses.asdict(summary)}
    del row["hole_count"]
    return {name: round(value, 1 if name.endswith("_ms") else 4) for name, value in row.items()}


def taken(outcomes: Iterable[Outcome]) -> list[calibration.Outcome]:
    """Which fills a user would take: those that are right up to the end of their first line at least."""
    return [
        calibration.Outcome(outcome.confidence, outcome.is_exact or outcome.is_first_line)
        for outcome in outcomes
    ]


def edit_similarity(one: str, other: str) -> float:
    """1 minus the Levenshtein distance over the longer length: 1 for the same text, 0 for nothing in common."""
    row = list(range(len(other) + 1))
    for number, char in enumerate(one, 1):
        diagonal, row[0] = row[0], number
        for at, against in enumerate(other, 1):
            diagonal, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, diagonal + (char != against))
    return 1 - row[-1] / max(len(one), len(other), 1)


def _tasks(member: Member, languages: Collection[str], seed: int) -> list[HoleTask]:
    """The holes of a file; none of one that is generated, vendored, data or not in these languages."""
    language = filters.language_of(member.path)
    if language is None or (languages and language not in languages):
        return []
    if filters.reason_by_path(member.path) or filters.reason_by_size(member.size_bytes, language):
        return []
    try:
        text = filters.decode(member.read())
    except InputFileError:
        return []
    if text is None or filters.reason_by_text(text, language):
        return []
    spans = holes.deterministic(text, language, seed, HOLES_PER_FILE)
    return [HoleTask(str(member.path), language, text, span) for span in spans]


def _shuffled(path: str) -> bytes:
    """A key that puts paths into an order in which the first ones are as good as any."""
    return hashlib.sha256(path.encode("utf-8", "replace")).digest()


def _first_line(text: str) -> str:
    """The first line that says something, without the blanks around it."""
    return text.strip().partition("\n")[0].rstrip()


def _is_valid(task: HoleTask, fill: str) -> bool | None:
    """Whether the file has no more errors with the fill than with what stood there."""
    filled, original = (
        grammars.parse(task.prefix + text + task.suffix, task.language) for text in (fill, task.truth)
    )
    if filled is None or original is None:
        return None
    return grammars.error_count(filled) <= grammars.error_count(original)
