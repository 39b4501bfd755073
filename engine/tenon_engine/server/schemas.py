"""The native API's request as pydantic checks and describes it, and how it becomes a FillRequest of the wire.

What is answered is described by the wire's own dataclasses. Knows nothing of routes.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from tenon_engine.engine import MAX_CANDIDATES, MAX_TEMPERATURE, MAX_TOKENS
from tenon_engine.errors import BadRequestError
from tenon_engine.wire import FillRequest, request_from_json

HOLES_MAX = 256
DEADLINE_MS_MAX = 24 * 3600 * 1000
SEED_BITS = 63
FAULTS_MAX = 20  # more are not worth a list: a body can hold a million
PLACE_CHARACTERS_MAX = 80

F = TypeVar("F", bound=BaseModel)


class Form(BaseModel):
    """A JSON object of a client."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class LooseForm(BaseModel):
    """One of another server's clients, which send more than there is a use for."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, frozen=True)


class HoleForm(Form):
    """A place to fill, and what stands there now."""

    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = Field(
        None, description="Slots of its canvas; null for what suits."
    )
    text: str = Field(
        "", description="What stands there now: a rewrite, or with strength below 1 a refinement."
    )
    strength: float = Field(1.0, ge=0, le=1, description="The share of its tokens that is opened again.")


class ExtraFileForm(Form):
    """Text of another file that may help."""

    path: str
    text: str


SegmentForm = Annotated[
    Annotated[str, Tag("text")] | Annotated[HoleForm, Tag("hole")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "hole"),
]


class FillForm(Form):
    """Fixed text and holes in turn, and the limits of the answer."""

    segments: list[SegmentForm] = Field(
        min_length=3,
        max_length=2 * HOLES_MAX + 1,
        fail_fast=True,
        description="Text and holes in turn, starting and ending with text.",
    )
    path: str | None = None
    language: str | None = Field(None, description="LSP language id.")
    extra: list[ExtraFileForm] = Field([], fail_fast=True, description="Other files that may help.")
    instruction: str | None = Field(None, description="What to write, in a sentence.")
    candidates: int = Field(1, ge=1, le=MAX_CANDIDATES)
    temperature: float = Field(0.0, ge=0, le=MAX_TEMPERATURE, description="0 is greedy.")
    seed: int = Field(0, ge=0, lt=2**SEED_BITS)
    deadline_ms: Annotated[int, Field(gt=0, le=DEADLINE_MS_MAX)] | None = Field(
        None, description="Of waiting and filling together; without one, filling ends after two minutes."
    )
    session: str = Field(
        "", description="One document of one editor: its newest request ends the older ones; '' is none."
    )
    model: str | None = Field(None, description="Refused when it is not the one that is served.")
    stream: bool = Field(False, description="Answer in JSON lines, the result in the last one.")
    steps: bool = Field(False, description="In a stream, a line per denoising step as well.")


class ErrorDetail(Form):
    """What is wrong, in one sentence."""

    code: str
    message: str
    type: str


class ErrorForm(Form):
    """The answer to a request that cannot be served."""

    error: ErrorDetail


def parse(form: type[F], body: bytes) -> F:
    """The form that `body` is; BadRequestError says what is wrong, without any of its values."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > FAULTS_MAX:
            raise BadRequestError(f"the request is wrong in {error.error_count()} places") from None
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))[:PLACE_CHARACTERS_MAX]
    raise BadRequestError(f"{place}: {fault['msg']}" if place else fault["msg"])


def to_request(form: FillForm) -> FillRequest:
    """The request on the engine's own wire."""
    return request_from_json(form.model_dump(exclude={"model", "stream", "steps"}))
