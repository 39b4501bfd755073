"""`POST /v1/completions` as OpenAI's API has it, with `suffix`: prompt and suffix are the two sides of one hole.

The name of the model is not looked at: clients must send one, and there is only one here. What has no meaning for a
fill (`logprobs`, `echo`, penalties) is ignored.
"""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from tenon_engine.engine import MAX_CANDIDATES, MAX_TEMPERATURE
from tenon_engine.server import compat
from tenon_engine.server.answers import JsonResponse
from tenon_engine.server.fills import Fills
from tenon_engine.server.schemas import LooseForm, parse
from tenon_engine.wire import FillRequest, FillResult, Stopped

ONE = Field(min_length=1, max_length=1)


class StreamOptions(LooseForm):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class CompletionForm(LooseForm):
    """The fields that have a meaning here; null is as good as nothing."""

    prompt: str | Annotated[list[str], ONE]
    suffix: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] | None = None
    temperature: Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class Choice(BaseModel):
    """One candidate's text; fewer than asked for where the model had no more."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """Tokens read and decided."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """The answer, or one event of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None


class Completions:
    """The route."""

    def __init__(self, fills: Fills) -> None:
        self._fills = fills

    async def complete(self, request: Request) -> Response:
        """Answer one request."""
        form = parse(CompletionForm, await request.body())
        result = await self._fills.result(_fill_request(form))
        completion = _completion(result, [form.stop] if isinstance(form.stop, str) else form.stop or [])
        if not form.stream:
            return JsonResponse(completion.model_dump())
        parts = [
            completion.model_copy(update={"choices": [choice], "usage": None})
            for choice in completion.choices
        ]
        if form.stream_options and form.stream_options.include_usage:
            parts.append(completion.model_copy(update={"choices": []}))
        return compat.events(*(part.model_dump() for part in parts), end=b"data: [DONE]\n\n")


def _fill_request(form: CompletionForm) -> FillRequest:
    return FillRequest.single(
        form.prompt if isinstance(form.prompt, str) else form.prompt[0],
        form.suffix or "",
        max_tokens=compat.canvas_size(form.max_tokens),
        candidates=form.n or 1,
        temperature=form.temperature or 0.0,
        seed=compat.seed(form.seed),
    )


def _completion(result: FillResult, stops: list[str]) -> Completion:
    texts = [candidate.text for candidate in result.holes[0].candidates] or [""]
    reason: Literal["stop", "length"] = "length" if result.stopped is Stopped.DEADLINE else "stop"
    cost = result.cost
    return Completion(
        id=f"cmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=result.model,
        choices=[
            Choice(index=index, text=compat.cut(text, stops)[0], finish_reason=reason)
            for index, text in enumerate(texts)
        ],
        usage=Usage(
            prompt_tokens=cost.context_tokens,
            completion_tokens=cost.tokens,
            total_tokens=cost.context_tokens + cost.tokens,
        ),
    )
