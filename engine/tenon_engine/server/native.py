"""`POST /v1/infill`: a FillRequest as JSON, answered with its FillResult, or in JSON lines as it is worked out.

A line is `{"step": FillStep}`, or the last one: `{"result": FillResult}` or `{"error": …}`. What goes wrong before the
first line is answered with an HTTP status, as without a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tenon_engine.errors import EngineError, UnknownModelError
from tenon_engine.server.answers import JsonResponse, encode, error_form
from tenon_engine.server.fills import Fills, Inbox
from tenon_engine.server.schemas import ErrorDetail, FillForm, Form, parse, to_request
from tenon_engine.wire import FillResult, FillStep, to_json

LINES_TYPE = "application/x-ndjson"


class InfillLine(Form):
    """One line of a stream; the last one is a result or an error."""

    step: FillStep | None = None
    result: FillResult | None = None
    error: ErrorDetail | None = None


class Infill:
    """The route, an ASGI app of its own: a fill ends with its answer, however that ends."""

    def __init__(self, fills: Fills, models: Collection[str]) -> None:
        self._fills = fills
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        form = parse(FillForm, await Request(scope, receive).body())
        if form.model is not None and form.model not in self._models:
            raise UnknownModelError(f"this engine serves {', '.join(self._models)}, not the model asked for")
        with self._fills.open(to_request(form), with_steps=form.stream and form.steps) as inbox:
            event = await inbox.next()
            if form.stream:
                lines = StreamingResponse(_lines(event, inbox), media_type=LINES_TYPE)
                await lines(scope, receive, send)
            else:
                await JsonResponse(to_json(event))(scope, receive, send)


async def _lines(event: FillStep | FillResult, inbox: Inbox) -> AsyncIterator[bytes]:
    while isinstance(event, FillStep):
        yield _line({"step": to_json(event)})
        try:
            event = await inbox.next()
        except EngineError as error:
            yield _line(error_form(error.code, str(error)))
            return
    yield _line({"result": to_json(event)})


def _line(value: object) -> bytes:
    return encode(value) + b"\n"
