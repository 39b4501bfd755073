"""The HTTP app of one engine: its routes, behind the guard.

Knows who answers what; neither how fills are made nor on which address it listens.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenon_engine.errors import EngineError
from tenon_engine.server import openapi
from tenon_engine.server.answers import JsonResponse, error_response
from tenon_engine.server.backend import Backend
from tenon_engine.server.completions import Completions
from tenon_engine.server.fills import Fills
from tenon_engine.server.guard import DEFAULT_LIMITS, Guard, Limits
from tenon_engine.server.llama_cpp import LlamaCpp
from tenon_engine.server.metrics import Metrics, RequestCounter
from tenon_engine.server.native import Infill
from tenon_engine.server.status import Events, Status


def build_app(
    backend: Backend, *, token: str | None = None, models: Sequence[str], limits: Limits = DEFAULT_LIMITS
) -> Starlette:
    """The app that serves `backend` under the names `models`; with a token, to those who send it alone.

    `app.state.client_count` says how many clients watch `/v1/events`, `client_total` how many ever did.
    """
    metrics = Metrics(backend)
    fills = Fills(backend, metrics)
    status = Status(backend, metrics, models)
    routes = [
        Route("/v1/infill", Infill(fills, models), methods=["POST"]),
        Route("/infill", LlamaCpp(fills, models[0]).infill, methods=["POST"]),
        Route("/v1/completions", Completions(fills).complete, methods=["POST"]),
        Route("/health", status.health, methods=["GET"]),
        Route("/v1/models", status.models, methods=["GET"]),
        Route("/metrics", status.metrics, methods=["GET"]),
        Route("/v1/events", Events(backend, metrics), methods=["GET"]),
        Route("/openapi.json", _description(needs_token=token is not None), methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestCounter, metrics=metrics, paths=[route.path for route in routes]),
            Middleware(Guard, token=token, limits=limits),
        ],
        exception_handlers={EngineError: _refused, HTTPException: _refused},
    )
    app.router.redirect_slashes = False
    app.state.client_count = app.state.client_total = 0
    return app


def _description(*, needs_token: bool) -> Any:
    @functools.cache
    def described() -> Response:
        return JsonResponse(openapi.document(needs_token=needs_token))

    async def answer(_: Request) -> Response:
        return described()

    return answer


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError | HTTPException)
    return error_response(error)
