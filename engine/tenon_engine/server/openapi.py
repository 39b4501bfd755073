"""The OpenAPI description, generated from what requests are checked with and answers are made of.

Owns which route takes and gives what, in words; the forms themselves stand beside their routes.
"""

from __future__ import annotations

import dataclasses
import http
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

import tenon_engine
from tenon_engine.server.compat import EVENTS_TYPE
from tenon_engine.server.completions import Completion, CompletionForm
from tenon_engine.server.llama_cpp import InfillAnswer, InfillForm
from tenon_engine.server.native import LINES_TYPE, InfillLine
from tenon_engine.server.schemas import ErrorForm, FillForm
from tenon_engine.server.status import Health, ModelList, StatusEvent
from tenon_engine.wire import FillResult

JSON_TYPE = "application/json"
_REFUSALS = (401, 403)
_FILL_REFUSALS = (400, 401, 403, 408, 413, 415, 500, 503)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """One route: what it takes and gives, as types that pydantic can describe; None where that is no JSON."""

    method: str
    summary: str
    takes: Any = None
    gives: Mapping[str, Any]
    refusals: tuple[int, ...] = _REFUSALS
    also: Mapping[int, Any] = dataclasses.field(default_factory=dict)


_OPERATIONS = {
    "/v1/infill": _Operation(
        method="post",
        summary="Fill the holes of a text; with `stream`, JSON lines of `step`, then `result` or `error`",
        takes=FillForm,
        gives={JSON_TYPE: FillResult, LINES_TYPE: InfillLine},
        refusals=(*_FILL_REFUSALS, 404),
    ),
    "/infill": _Operation(
        method="post",
        summary="Fill a hole, as the server of llama.cpp does",
        takes=InfillForm,
        gives={JSON_TYPE: InfillAnswer | dict[str, Any], EVENTS_TYPE: None},
        refusals=_FILL_REFUSALS,
    ),
    "/v1/completions": _Operation(
        method="post",
        summary="Fill the hole between `prompt` and `suffix`, as OpenAI's API does",
        takes=CompletionForm,
        gives={JSON_TYPE: Completion, EVENTS_TYPE: None},
        refusals=_FILL_REFUSALS,
    ),
    "/health": _Operation(
        method="get", summary="Whether requests are answered", gives={JSON_TYPE: Health}, also={503: Health}
    ),
    "/v1/models": _Operation(method="get", summary="Which models are served", gives={JSON_TYPE: ModelList}),
    "/metrics": _Operation(method="get", summary="Counters for Prometheus", gives={"text/plain": None}),
    "/v1/events": _Operation(
        method="get", summary="How the engine is, a JSON line per change", gives={LINES_TYPE: StatusEvent}
    ),
}


def document(*, needs_token: bool) -> dict[str, Any]:
    """The whole description."""
    forms: set[Any] = {ErrorForm}
    for operation in _OPERATIONS.values():
        answers = (*operation.gives.values(), *operation.also.values())
        forms |= {form for form in (operation.takes, *answers) if form is not None}
    ordered = sorted(forms, key=str)
    found, shared = TypeAdapter.json_schemas(
        [(form, "validation", TypeAdapter(form)) for form in ordered],
        ref_template="#/components/schemas/{model}",
    )
    schemas = {form: found[form, "validation"] for form in ordered}
    security: dict[str, Any] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenon engine", "version": tenon_engine.__version__},
        "security": [{"token": []}] if needs_token else [],
        "paths": {path: {each.method: _described(each, schemas)} for path, each in _OPERATIONS.items()},
        "components": {"schemas": shared["$defs"]} | (security if needs_token else {}),
    }


def _described(operation: _Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    def content(media: str, form: Any) -> dict[str, Any]:
        return {media: {} if form is None else {"schema": schemas[form]}}

    given = {media: part for each in operation.gives.items() for media, part in content(*each).items()}
    responses = {200: {"description": "OK", "content": given}}
    for status in sorted({*operation.refusals, *operation.also}):
        form = operation.also.get(status, ErrorForm)
        phrase = http.HTTPStatus(status).phrase
        responses[status] = {"description": phrase, "content": content(JSON_TYPE, form)}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {str(status): response for status, response in responses.items()},
    }
    if operation.takes is not None:
        described["requestBody"] = {"required": True, "content": content(JSON_TYPE, operation.takes)}
    return described
