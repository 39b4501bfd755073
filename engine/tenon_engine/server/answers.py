"""What answers have in common: JSON in ASCII, and one form for everything that is wrong.

An error is `{"error": {"code", "message", "type"}}`, its message one sentence; a superset of what OpenAI's and
llama.cpp's clients read. Knows no route.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import Response

from tenon_engine import excerpt
from tenon_engine.errors import BadRequestError, BusyError, EngineError, UnknownModelError

INTERNAL_ERROR = "internal_error"
INTERNAL_SENTENCE = "the engine failed on this request"
MESSAGE_CHARACTERS_MAX = 500

# Of refusals that come from HTTP itself, whoever makes them: what Starlette says of them is no sentence.
_REFUSALS = {
    401: ("unauthorized", "this engine wants its token as `Authorization: Bearer TOKEN`"),
    403: ("forbidden_host", "the Host header names another machine than this one"),
    404: ("not_found", "there is nothing at this path"),
    405: ("method_not_allowed", "this path does not take this method"),
    408: ("too_slow", "the request did not arrive in time"),
    413: ("too_large", "the request is too large"),
    415: ("unsupported_media_type", "the request must be `Content-Type: application/json`"),
}


class JsonResponse(Response):
    """`content` as JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Its bytes."""
        return encode(content)


def encode(value: object) -> bytes:
    """JSON in ASCII: not every Python text is valid UTF-8."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def error_form(code: str, message: str, *, status: int = 500) -> dict[str, object]:
    """The body that says what is wrong."""
    sentence = excerpt.one_line(message)[:MESSAGE_CHARACTERS_MAX]
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"code": code, "message": sentence, "type": kind}}


def error_response(error: EngineError | HTTPException) -> Response:
    """The answer to a request that cannot be served."""
    headers: Mapping[str, str] | None = None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
        code, sentence = _REFUSALS.get(status, ("bad_request", error.detail))
    else:
        status, code, sentence = _status(error), error.code, str(error)
    if isinstance(error, BusyError):
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    return JsonResponse(error_form(code, sentence, status=status), status, headers)


def internal_response() -> Response:
    """The answer when it is our own fault."""
    return JsonResponse(error_form(INTERNAL_ERROR, INTERNAL_SENTENCE), 500)


def _status(error: EngineError) -> int:
    match error:
        case BadRequestError():
            return 400
        case UnknownModelError():
            return 404
        case BusyError():
            return 503
    return 500
