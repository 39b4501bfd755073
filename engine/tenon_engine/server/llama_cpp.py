"""`POST /infill` as the server of llama.cpp has it, for llama.vim, llama.vscode and their like.

`prompt` is the text right before the cursor and goes behind `input_prefix`; sampling parameters but the temperature
are ignored; both time limits together are the deadline, for ours counts from the start.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenon_engine.engine import MAX_TEMPERATURE
from tenon_engine.server import compat
from tenon_engine.server.answers import JsonResponse
from tenon_engine.server.fills import Fills
from tenon_engine.server.schemas import DEADLINE_MS_MAX, LooseForm, parse
from tenon_engine.wire import Cost, ExtraFile, FillRequest, FillResult, Stopped


class Chunk(LooseForm):
    """Text of another file."""

    text: str
    filename: str | None = None


class InfillForm(LooseForm):
    """The fields that have a meaning here; null is as good as nothing."""

    input_prefix: str
    input_suffix: str
    prompt: str | None = None
    input_extra: Annotated[list[Chunk], Field(fail_fast=True)] | None = None
    n_predict: int | None = Field(None, description="0 loads the model and fills nothing; below 0: no limit.")
    t_max_prompt_ms: int | None = None
    t_max_predict_ms: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    stream: bool | None = None
    response_fields: list[str] | None = Field(
        None, description="Answer with these alone, `timings/predicted_ms` by that name."
    )


class Timings(LooseForm):
    """What it cost; the prompt is what was not in the cache."""

    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class InfillAnswer(LooseForm):
    """The answer, and the last event of a stream."""

    index: int = 0
    content: str
    stop: bool = True
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    has_new_line: bool
    truncated: bool = False
    stop_type: str  # eos, limit, word or none
    stopping_word: str
    generation_settings: dict[str, Any] = Field(default_factory=dict)
    timings: Timings


class LlamaCpp:
    """The route."""

    def __init__(self, fills: Fills, model: str) -> None:
        self._fills = fills
        self._model = model

    async def infill(self, request: Request) -> Response:
        """Answer one request; with nothing to predict, only have the model loaded."""
        form = parse(InfillForm, await request.body())
        if form.n_predict == 0:
            self._fills.warm()
            result = FillResult((), self._model)
        else:
            result = await self._fills.result(_fill_request(form))
        answer = _answer(result, form.stop or []).model_dump()
        if form.stream:
            piece = {"index": 0, "content": answer["content"], "stop": False}
            return compat.events(piece, answer | {"content": ""})
        return JsonResponse(_selected(answer, form.response_fields) if form.response_fields else answer)


def _fill_request(form: InfillForm) -> FillRequest:
    deadline_ms = 0
    if form.t_max_predict_ms is not None and form.t_max_predict_ms > 0:
        deadline_ms = min(form.t_max_predict_ms + max(0, form.t_max_prompt_ms or 0), DEADLINE_MS_MAX)
    return FillRequest.single(
        form.input_prefix + (form.prompt or ""),
        form.input_suffix,
        max_tokens=compat.canvas_size(form.n_predict),
        extra=tuple(ExtraFile(chunk.filename or "", chunk.text) for chunk in form.input_extra or ()),
        temperature=min(max(0.0, form.temperature or 0.0), MAX_TEMPERATURE),
        seed=compat.seed(form.seed),
        deadline_ms=deadline_ms or None,
    )


def _answer(result: FillResult, stops: list[str]) -> InfillAnswer:
    content, word = compat.cut(result.holes[0].text if result.holes else "", stops)
    endings = {Stopped.DONE: "eos", Stopped.DEADLINE: "limit", Stopped.CANCELLED: "none"}
    return InfillAnswer(
        content=content,
        model=result.model,
        tokens_predicted=result.cost.tokens,
        tokens_evaluated=result.cost.context_tokens,
        tokens_cached=result.cost.reused_tokens,
        has_new_line="\n" in content,
        stop_type="word" if word else endings[result.stopped],
        stopping_word=word,
        timings=_timings(result.cost),
    )


def _timings(cost: Cost) -> Timings:
    prompt_n = cost.context_tokens - cost.reused_tokens
    return Timings(
        prompt_n=prompt_n,
        prompt_ms=cost.context_ms,
        prompt_per_token_ms=_ratio(cost.context_ms, prompt_n),
        prompt_per_second=_ratio(1e3 * prompt_n, cost.context_ms),
        predicted_n=cost.tokens,
        predicted_ms=cost.denoise_ms,
        predicted_per_token_ms=_ratio(cost.denoise_ms, cost.tokens),
        predicted_per_second=_ratio(1e3 * cost.tokens, cost.denoise_ms),
    )


def _ratio(amount: float, of: float) -> float:
    return amount / of if of else 0.0


def _selected(answer: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """The fields that were asked for, each by the path it was asked for with."""
    flat = answer | {f"timings/{name}": value for name, value in answer["timings"].items()}
    return {path: flat[path] for path in paths if path in flat}
