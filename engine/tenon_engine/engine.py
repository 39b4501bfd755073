"""The fill of a request: every hole is proposed, fitted and offered, or left empty with a reason.

Owns requests with several holes, limits of time, and the document's line ends.
Knows nothing of tokens, of how a model works, or of who asks.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from tenon_engine import line_ends
from tenon_engine.comment import with_instruction
from tenon_engine.errors import BadRequestError, EngineError, ModelFailedError
from tenon_engine.fit import fit, shorten
from tenon_engine.models.base import Draft, HoleRequest, Model, Proposal, Scores, StopCheck
from tenon_engine.refine import UNCHANGED, Score, is_refinement, keep_surer, refine
from tenon_engine.wire import (
    DEFAULT_MAX_TOKENS,
    Candidate,
    Cost,
    EngineInfo,
    FillRequest,
    FillResult,
    FillStep,
    Hole,
    HoleFill,
    Stopped,
)

MAX_ROUNDS = 2
MAX_CANDIDATES = 16
MAX_TOKENS = 1024
MAX_TEMPERATURE = 100.0
ROOM_TOKENS = 16  # of a canvas beyond the length of the text that it replaces, or half that length
REPLACING_TOKENS_MAX = 256

NO_BUDGET = "no room to write"
NO_PROPOSAL = "the model wrote nothing"
UNFINISHED = "unfinished"
UNSURE = "confidence below the threshold"
LINE_END = "would change a line end of the document"

NO_COST = Cost()

logger = logging.getLogger(__name__)


def never() -> bool:
    """Nobody cancels."""
    return False


class Engine:
    """Fills requests with one model."""

    def __init__(
        self, model: Model, *, max_tokens: int = DEFAULT_MAX_TOKENS, min_confidence: float = 0.0
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._min_confidence = min_confidence

    @property
    def info(self) -> EngineInfo:
        """Which model it is, and how much context is worth sending."""
        budget = self._model.budget
        return EngineInfo(
            self._model.name,
            budget.prefix_tokens,
            budget.suffix_tokens,
            budget.extra_tokens,
            device=self._model.device,
        )

    def fill(self, request: FillRequest, *, cancelled: Callable[[], bool] = never) -> FillResult:
        """The answer to `request`, without its steps."""
        for event in self.stream(request, cancelled=cancelled):
            if isinstance(event, FillResult):
                return event
        raise AssertionError("a stream ends with its result")

    def stream(
        self, request: FillRequest, *, cancelled: Callable[[], bool] = never
    ) -> Iterator[FillStep | FillResult]:
        """A FillStep per denoising step, then the FillResult. A BadRequestError is raised at once."""
        _check(request)
        clock = _Clock.start(request.deadline_ms, cancelled)
        if not any(is_refinement(part) for part in request.segments if isinstance(part, Hole)):
            return self._rounds(request, clock)
        score = self._scorer(request, clock)
        return refine(request, score=score, fill=lambda inner: self._rounds(inner, clock))

    def _rounds(self, request: FillRequest, clock: _Clock) -> Iterator[FillStep | FillResult]:
        """Fill each hole seeing the others as they are, then again those whose neighbours changed since."""
        work = _Work.of(request)
        stopped, rounds, cost = Stopped.DONE, 1, NO_COST
        for round_number in range(1, MAX_ROUNDS + 1):
            for index in range(len(work.holes)):
                if not work.is_stale(index):
                    continue
                reason = clock.stop()
                if reason is None:
                    rounds = round_number
                    attempt = yield from self._fill_hole(request, work, index, clock)
                    cost += attempt.cost
                    reason = attempt.stopped
                    work.settle(index, attempt)
                elif work.fills[index] is None:
                    work.fills[index] = HoleFill((), reason.value)
                stopped = reason or stopped
        if clock.stop() is Stopped.CANCELLED:
            stopped = Stopped.CANCELLED
        cost = dataclasses.replace(cost, total_ms=clock.elapsed_ms())
        yield FillResult(work.answers(stopped), self._model.name, stopped, rounds, cost)

    def _fill_hole(
        self, request: FillRequest, work: _Work, index: int, clock: _Clock
    ) -> Generator[FillStep, None, _Attempt]:
        prefix, suffix = work.sides(index)
        hole = work.holes[index]
        max_tokens = self._canvas_size(hole)
        if max_tokens == 0:
            return _Attempt(HoleFill((), NO_BUDGET))
        last: Proposal | None = None
        for last in self._proposals(
            _hole_request(self._model, request, prefix, suffix, max_tokens), clock.stop
        ):
            yield FillStep(index, work.count_step(index), last.slots, clock.elapsed_ms())
        if last is None:
            stopped = clock.stop()
            return _Attempt(HoleFill((), stopped.value if stopped else NO_PROPOSAL), stopped)
        stopped = None if all(draft.finished for draft in last.drafts) else clock.stop()
        fill = self._offer(last.drafts[: request.candidates], prefix, suffix, hole.text)
        if not is_refinement(hole) or not fill.text:
            return _Attempt(fill, stopped, last.cost)
        score = self._scorer(request, clock)
        fill, cost = keep_surer(fill, hole.text, prefix=prefix, suffix=suffix, score=score)
        return _Attempt(fill, stopped if fill.text else clock.stop(), last.cost + cost)

    def _canvas_size(self, hole: Hole) -> int:
        if hole.max_tokens is not None or not hole.text:
            return self._max_tokens if hole.max_tokens is None else hole.max_tokens
        with self._one_line_failures():
            count = self._model.count_tokens(hole.text)
        return min(count + max(ROOM_TOKENS, count // 2), REPLACING_TOKENS_MAX)

    def _proposals(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        with self._one_line_failures():
            yield from self._model.propose(hole, stop)

    def _scorer(self, request: FillRequest, clock: _Clock) -> Score:
        def score(prefix: str, suffix: str, text: str) -> Scores:
            with self._one_line_failures():
                return self._model.score(
                    _hole_request(self._model, request, prefix, suffix, 0), text, clock.stop
                )

        return score

    @contextmanager
    def _one_line_failures(self) -> Iterator[None]:
        try:
            yield
        except EngineError:
            raise
        except Exception as exc:  # whatever a model raises, its user gets one line
            logger.debug("%s failed", self._model.name, exc_info=True)
            cause = f"{type(exc).__name__}: {exc}".partition("\n")[0]
            raise ModelFailedError(f"the model {self._model.name} failed ({cause})") from exc

    def _offer(self, drafts: tuple[Draft, ...], prefix: str, suffix: str, old: str) -> HoleFill:
        """What fits of the drafts, best first, each text once, nothing that is too uncertain or there already."""
        offered: dict[str, tuple[float, str]] = {}
        reasons = [NO_PROPOSAL]
        for draft in sorted(drafts, key=lambda draft: -draft.confidence):
            text, reason = _fit_draft(draft, prefix, suffix)
            if text and draft.confidence < self._min_confidence:
                text, reason = "", UNSURE
            if text and text == old:
                text, reason = "", UNCHANGED
            if text:
                offered.setdefault(text, (draft.confidence, reason))
            reasons.append(reason)
        candidates = tuple(Candidate(text, confidence) for text, (confidence, _) in offered.items())
        if candidates:
            return HoleFill(candidates, offered[candidates[0].text][1])
        return HoleFill((), reasons[min(1, len(drafts))])


@dataclasses.dataclass(frozen=True, slots=True)
class _Clock:
    """When to stop: the deadline counts from the start of the request."""

    started: float
    deadline: float | None
    cancelled: Callable[[], bool]

    @staticmethod
    def start(deadline_ms: int | None, cancelled: Callable[[], bool]) -> _Clock:
        now = time.monotonic()
        return _Clock(now, None if deadline_ms is None else now + deadline_ms / 1e3, cancelled)

    def stop(self) -> Stopped | None:
        if self.cancelled():
            return Stopped.CANCELLED
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return Stopped.DEADLINE
        return None

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.started) * 1e3


@dataclasses.dataclass(frozen=True, slots=True)
class _Attempt:
    """One hole's answer in one round."""

    fill: HoleFill
    stopped: Stopped | None = None
    cost: Cost = NO_COST


@dataclasses.dataclass(slots=True)
class _Work:
    """The holes of a request and what is in them so far. Mutable; the document's own texts never change."""

    originals: tuple[str, ...]
    texts: tuple[str, ...]  # the same with LF
    holes: tuple[Hole, ...]  # their texts with LF
    line_end: str
    fills: list[HoleFill | None]
    seen: list[tuple[str, str] | None]  # what stood in the holes beside each one when it was filled
    steps: list[int]

    @staticmethod
    def of(request: FillRequest) -> _Work:
        originals = tuple(segment for segment in request.segments if isinstance(segment, str))
        holes = tuple(segment for segment in request.segments if isinstance(segment, Hole))
        line_end = line_ends.dominant([*originals, *(hole.text for hole in holes)])
        count = len(holes)
        texts = tuple(map(line_ends.to_lf, originals))
        holes = tuple(dataclasses.replace(hole, text=line_ends.to_lf(hole.text)) for hole in holes)
        return _Work(originals, texts, holes, line_end, [None] * count, [None] * count, [0] * count)

    def is_stale(self, index: int) -> bool:
        """Whether a hole is unfilled, or was filled beside other neighbours than it has now."""
        return self.seen[index] != self._beside(index)

    def settle(self, index: int, attempt: _Attempt) -> None:
        """Take a hole's answer, unless it was stopped with nothing and an earlier round had something."""
        self.seen[index] = self._beside(index)
        earlier = self.fills[index]
        if not (attempt.stopped and earlier and earlier.text and not attempt.fill.text):
            self.fills[index] = attempt.fill

    def sides(self, index: int) -> tuple[str, str]:
        """All the text before and after a hole, the other holes as they are filled now."""
        parts = [part for at, text in enumerate(self.texts) for part in (text, self._text(at))]
        return "".join(parts[: 2 * index + 1]), "".join(parts[2 * index + 2 :])

    def count_step(self, index: int) -> int:
        self.steps[index] += 1
        return self.steps[index]

    def answers(self, stopped: Stopped) -> tuple[HoleFill, ...]:
        """The answers with the document's line ends; none at all after a cancellation."""
        if stopped is Stopped.CANCELLED:
            return tuple(HoleFill((), stopped.value) for _ in self.holes)
        return tuple(
            _with_line_ends(
                fill or HoleFill(()), self.line_end, self.originals[index], self.originals[index + 1]
            )
            for index, fill in enumerate(self.fills)
        )

    def _text(self, index: int) -> str:
        """What is in a hole: what was found for it, else what stands there now."""
        if not 0 <= index < len(self.holes):
            return ""
        fill = self.fills[index]
        return (fill.text if fill else "") or self.holes[index].text

    def _beside(self, index: int) -> tuple[str, str]:
        return self._text(index - 1), self._text(index + 1)


def _check(request: FillRequest) -> None:
    segments = request.segments
    if not isinstance(segments, (tuple, list)):
        raise BadRequestError("segments must be text and holes in turn, starting and ending with text")
    alternate = all(isinstance(part, (str, Hole)[index % 2]) for index, part in enumerate(segments))
    if len(segments) < 3 or len(segments) % 2 == 0 or not alternate:
        raise BadRequestError("segments must be text and holes in turn, starting and ending with text")
    holes = [part for part in segments if isinstance(part, Hole)]
    sizes = [hole.max_tokens for hole in holes if hole.max_tokens is not None]
    if not all(isinstance(size, int) and 0 <= size <= MAX_TOKENS for size in sizes):
        raise BadRequestError(f"max_tokens must be a whole number from 0 to {MAX_TOKENS}")
    if not all(isinstance(hole.text, str) and 0.0 <= hole.strength <= 1.0 for hole in holes):
        raise BadRequestError("a hole's text must be text, and its strength from 0 to 1")
    if not isinstance(request.candidates, int) or not 1 <= request.candidates <= MAX_CANDIDATES:
        raise BadRequestError(f"candidates must be 1 to {MAX_CANDIDATES}, not {request.candidates}")
    if not 0.0 <= request.temperature <= MAX_TEMPERATURE:
        raise BadRequestError(f"temperature must be 0 to {MAX_TEMPERATURE:g}, not {request.temperature}")
    if not 0 <= request.seed < 2**63:
        raise BadRequestError("seed must be 0 or more, and fit into 63 bits")
    if request.deadline_ms is not None and not 0 < request.deadline_ms < math.inf:
        raise BadRequestError(f"deadline_ms must be more than 0, not {request.deadline_ms}")


def _hole_request(
    model: Model, request: FillRequest, prefix: str, suffix: str, max_tokens: int
) -> HoleRequest:
    instruction = (request.instruction or "").strip()
    if instruction and not model.reads_instructions:
        prefix, instruction = with_instruction(prefix, instruction, request.language), ""
    return HoleRequest(
        prefix=prefix,
        suffix=suffix,
        path=request.path,
        language=request.language,
        extra=tuple(dataclasses.replace(file, text=line_ends.to_lf(file.text)) for file in request.extra),
        max_tokens=max_tokens,
        candidates=request.candidates,
        temperature=request.temperature,
        seed=request.seed,
        session=request.session,
        instruction=instruction,
    )


def _fit_draft(draft: Draft, prefix: str, suffix: str) -> tuple[str, str]:
    raw = line_ends.to_lf(draft.text)
    if not draft.finished:
        raw = shorten(raw, prefix=prefix, suffix=suffix)
    fitted = fit(raw, prefix=prefix, suffix=suffix)
    reason = fitted.reason if draft.finished else ", ".join(filter(None, (UNFINISHED, fitted.reason)))
    return fitted.text, reason


def _with_line_ends(fill: HoleFill, kind: str, before: str, after: str) -> HoleFill:
    texts = [(candidate.text.replace("\n", kind), candidate.confidence) for candidate in fill.candidates]
    kept = [Candidate(*each) for each in texts if not line_ends.splits_or_joins(before, each[0], after)]
    return HoleFill(tuple(kept), fill.reason if len(kept) == len(texts) else LINE_END)
