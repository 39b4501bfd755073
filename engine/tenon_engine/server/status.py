"""How the engine is: `/health` for machines, `/v1/models` for clients, `/metrics`, and `/v1/events` as it changes.

An event stream is one JSON line at once, one per change, and an empty one now and then so that both sides notice when
the other is gone; it ends when the engine is closed. How many are open is `app.state.client_count`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import anyio
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tenon_engine.server.answers import JsonResponse, encode
from tenon_engine.server.backend import Backend
from tenon_engine.server.metrics import Metrics
from tenon_engine.server.native import LINES_TYPE
from tenon_engine.wire import EngineInfo
from tenon_engine.worker import WorkerState

KEEP_ALIVE_SECONDS = 15.0
UNHEALTHY = frozenset({WorkerState.FAILED, WorkerState.CLOSED})


class Health(BaseModel):
    """`status` is "ok" where requests are answered, if need be after loading."""

    status: str
    state: str
    failure: str = ""


class ModelEntry(BaseModel):
    """One model."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "tenon"


class ModelList(BaseModel):
    """What is served."""

    object: str = "list"
    data: list[ModelEntry]


class ProgressForm(BaseModel):
    """What loading is busy with."""

    text: str
    percent: int | None


class StatusEvent(BaseModel):
    """A line of the event stream; `info` is null until the model was loaded once."""

    state: str
    progress: ProgressForm
    failure: str
    info: EngineInfo | None


class Status:
    """The routes that are asked and answered at once."""

    def __init__(self, backend: Backend, metrics: Metrics, models: Sequence[str]) -> None:
        self._backend = backend
        self._metrics = metrics
        self._models = ModelList(data=[ModelEntry(id=model, created=int(time.time())) for model in models])

    async def health(self, _: Request) -> Response:
        """Whether requests are answered."""
        state = self._backend.state
        if state in UNHEALTHY:
            return JsonResponse(
                Health(status="unavailable", state=state.value, failure=self._backend.failure).model_dump(),
                503,
            )
        return JsonResponse(Health(status="ok", state=state.value).model_dump(exclude_defaults=True))

    async def models(self, _: Request) -> Response:
        """Which models are served."""
        return JsonResponse(self._models.model_dump())

    async def metrics(self, _: Request) -> Response:
        """The counters."""
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


class Events:
    """The event stream, an ASGI app of its own: it is over when the client is gone."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one client until it goes, or the engine is closed."""
        if scope["method"] == "HEAD":
            raise HTTPException(405)  # it would have no end, and nothing in it
        changed, loop, state = asyncio.Event(), asyncio.get_running_loop(), scope["app"].state

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(changed.set)

        unsubscribe = self._backend.subscribe(wake)
        state.client_count += 1
        state.client_total += 1
        self._metrics.event_streams.inc()
        try:
            await StreamingResponse(self._lines(changed), media_type=LINES_TYPE)(scope, receive, send)
        finally:
            self._metrics.event_streams.dec()
            state.client_count -= 1
            unsubscribe()

    async def _lines(self, changed: asyncio.Event) -> AsyncIterator[bytes]:
        sent = None
        while True:
            changed.clear()
            state, line = self._backend.state, self._line()
            if line != sent:
                yield line
                sent = line
            if state is WorkerState.CLOSED:
                return
            with anyio.move_on_after(KEEP_ALIVE_SECONDS) as waiting:
                await changed.wait()
            if waiting.cancelled_caught:
                yield b"\n"

    def _line(self) -> bytes:
        text, percent = self._backend.progress
        event = StatusEvent(
            state=self._backend.state.value,
            progress=ProgressForm(text=text, percent=percent),
            failure=self._backend.failure,
            info=self._backend.info,
        )
        return encode(event.model_dump()) + b"\n"
