"""An engine that is somebody else's model behind HTTP: one hole after the other, text in, text out, then made to fit.

What it writes goes through the same fit as our own models' text. It has no steps, and what a refinement would lock it
may write anew. Knows no protocol: a Dialect does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable

from tenon_engine import fit, line_ends
from tenon_engine.wire import Candidate, Cost, EngineInfo, FillRequest, FillResult, Hole, HoleFill
from tenon_lsp.engines.client import EngineError, EngineFault, EngineState, StepListener
from tenon_lsp.engines.connection import Connection, Endpoint, RefusedError
from tenon_lsp.engines.health import Health, Listeners
from tenon_lsp.engines.question import Answer, Dialect, Question, size

PREFIX_TOKENS, SUFFIX_TOKENS, EXTRA_TOKENS = (
    2048,
    512,
    1024,
)  # a large model reads more than ours, but not for free
DEADLINE_MS = 60_000  # of a request that has none

_THIS_FILL = (400, 413, 422)  # statuses that say nothing about the next fill

_log = logging.getLogger(__name__)


class RemoteEngine:
    """An Engine for one of the protocols that text models are served with.

    A fault of the other side is told once, and it is left alone for a while; one of a single request is not.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        dialect: Dialect,
        listeners: Listeners,
        *,
        model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info: EngineInfo | None = None
        self._locate = locate
        self._dialect = dialect
        self._model = model
        self._health = Health(listeners, clock)
        self._clock = clock
        self._opening: asyncio.Task[Connection] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def fill(self, request: FillRequest, on_step: StepListener | None = None) -> FillResult:
        """See Engine; `on_step` is never called."""
        self._health.check()
        with self._health.filling():
            opening = self._open()
            try:
                connection = await asyncio.shield(opening)
                self.info = self.info or self._info(connection.endpoint)
                self._health.rest(EngineState.READY)
                return await self._answers(connection, request)
            except EngineError as error:
                raise self._judged(opening, error) from None

    async def warm(self) -> None:
        """See Engine; nothing is sent."""
        with contextlib.suppress(EngineError):
            await asyncio.shield(self._open())

    async def close(self) -> None:
        """See Engine."""
        self._is_closed = True
        if self._opening is not None:
            await asyncio.shield(self._give_up(self._opening))
        self._health.rest(EngineState.STOPPED)

    def _open(self) -> asyncio.Task[Connection]:
        """The connection; it stays until there is a fault."""
        if self._is_closed:
            raise EngineError(EngineFault.DIED, "the engine was closed")
        if self._opening is None:
            self._opening = asyncio.create_task(Connection.open(self._locate))
        return self._opening

    def _info(self, endpoint: Endpoint) -> EngineInfo:
        return EngineInfo(self._model or endpoint.name, PREFIX_TOKENS, SUFFIX_TOKENS, EXTRA_TOKENS)

    def _judged(self, opening: asyncio.Task[Connection], error: EngineError) -> EngineError:
        """What a fault means: for this fill alone, or for a while."""
        if isinstance(error, RefusedError) and error.status in _THIS_FILL:
            return EngineError(EngineFault.FAILED, str(error))
        if self._opening is opening:
            self._health.failed(error, error.retry_after_s if isinstance(error, RefusedError) else 0.0)
            self._give_up(opening)
        return error

    def _give_up(self, opening: asyncio.Task[Connection]) -> asyncio.Task[None]:
        """Close the connection, and with it every answer that is still awaited; the next one may have a new token."""

        async def close() -> None:
            with contextlib.suppress(EngineError):
                await (await opening).close()

        self._opening = None
        self._closing = asyncio.create_task(close())
        return self._closing

    async def _answers(self, connection: Connection, request: FillRequest) -> FillResult:
        """Hole by hole, each seeing what was found for those before it."""
        started = self._clock()
        work = _Work.of(request)
        limit_s = (request.deadline_ms or DEADLINE_MS) / 1e3
        fills, tokens = [], 0
        for index in range(len(work.holes)):
            question = work.question(index, limit_s - (self._clock() - started))
            answer = await self._ask(connection, question)
            if answer.reason:
                _log.info("no suggestion: %s", answer.reason)
            fills.append(work.settle(index, _fitted(answer, question)))
            tokens += answer.tokens
        cost = Cost(tokens=tokens, total_ms=(self._clock() - started) * 1e3)
        return FillResult(tuple(fills), self._info(connection.endpoint).model, cost=cost)

    async def _ask(self, connection: Connection, question: Question) -> Answer:
        """The answer; what the other side does not know is asked once and then left out for good."""
        dialect = self._dialect
        while True:
            try:
                return await _exchange(connection, dialect, question)
            except RefusedError as refusal:
                simpler = dialect.without(refusal.complaint) if refusal.status in _THIS_FILL else None
                if simpler is None:
                    raise
                _log.warning("asked again with less: %s", refusal)
                dialect = self._dialect = simpler


async def _exchange(connection: Connection, dialect: Dialect, question: Question) -> Answer:
    limit_s = question.deadline_ms / 1e3
    async with connection.answer(
        "POST", dialect.route, dialect.message(question), limit_s=limit_s
    ) as response:
        form = await connection.document(response)
    try:
        return dialect.answer(form)
    except ValueError as error:
        raise connection.malformed(str(error)) from None


def _fitted(answer: Answer, question: Question) -> HoleFill:
    """What of the texts fits, best first, each once, and nothing that is there already."""
    offered: dict[str, Candidate] = {}
    reasons = [answer.reason]
    for candidate in sorted(answer.candidates, key=lambda candidate: -candidate.confidence):
        fitted = fit.fit(line_ends.to_lf(candidate.text), prefix=question.prefix, suffix=question.suffix)
        if fitted.text and fitted.text != question.old:
            offered.setdefault(fitted.text, Candidate(fitted.text, candidate.confidence))
        reasons.append(fitted.reason)
    return HoleFill(tuple(offered.values()), next(filter(None, reasons), ""))


@dataclasses.dataclass(slots=True)
class _Work:
    """A request in LF, what its holes hold by now, and the document's line end."""

    request: FillRequest
    holes: tuple[Hole, ...]
    between: tuple[str, ...]  # the fixed texts, as the document has them
    texts: list[str]
    line_end: str

    @staticmethod
    def of(request: FillRequest) -> _Work:
        holes = tuple(each for each in request.segments if isinstance(each, Hole))
        between = tuple(each for each in request.segments if isinstance(each, str))
        texts = [line_ends.to_lf(hole.text) for hole in holes]
        return _Work(request, holes, between, texts, line_ends.dominant(between))

    def question(self, index: int, left_s: float) -> Question:
        """What to ask for a hole, for which so much time is left."""
        request, fixed = self.request, [*map(line_ends.to_lf, self.between)]
        before = zip(fixed, [*self.texts[:index], ""], strict=False)
        after = zip(["", *self.texts[index + 1 :]], fixed[index + 1 :], strict=True)
        return Question(
            prefix="".join(text for pair in before for text in pair),
            suffix="".join(text for pair in after for text in pair),
            old=self.texts[index],
            max_tokens=size(self.holes[index].max_tokens, self.texts[index]),
            candidates=request.candidates,
            temperature=request.temperature,
            seed=request.seed,
            deadline_ms=max(1, int(left_s * 1e3)),
            path=request.path,
            language=request.language,
            extra=request.extra,
            instruction=request.instruction,
        )

    def settle(self, index: int, fill: HoleFill) -> HoleFill:
        """Take note of a hole's answer; the same with the document's line ends, as far as that tears none apart."""
        self.texts[index] = fill.text or self.texts[index]
        left, right = self.between[index], self.between[index + 1]
        texts = [(each.text.replace("\n", self.line_end), each.confidence) for each in fill.candidates]
        whole = [Candidate(*each) for each in texts if not line_ends.splits_or_joins(left, each[0], right)]
        return HoleFill(tuple(whole), fill.reason)
