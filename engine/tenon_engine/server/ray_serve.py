"""The engine's HTTP app on Ray Serve: replicas on any number of machines, as many as the fills need.

`serve run tenon_engine.server.ray_serve:app token_file=/etc/tenon/token replicas=2`; see docs/deploy.md. Owns what Ray
is told of an engine: how it is made, when it is healthy, how busy it is, and that the requests of a session, named by
the header `X-Session-Id`, meet one replica, whose caches know the document. The routes are `app`'s, the fills and the
batching of those in one replica the worker's, everything between machines Ray's.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import click
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingContext
from starlette.types import ASGIApp, Receive, Scope, Send

from tenon_engine import config
from tenon_engine.errors import BadRequestError
from tenon_engine.models import registry
from tenon_engine.server.app import build_app
from tenon_engine.server.listening import read_token
from tenon_engine.server.schemas import parse
from tenon_engine.server.status import UNHEALTHY
from tenon_engine.worker import Worker, WorkerState

STICKY_ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
NAME = "Engine"
EVENTS_ROUTE = "/v1/events"
FILLS = "fills"  # what waits or runs
# A replica ends when its requests have; an event stream has no end, so it gets one, and its client asks again.
EVENTS_S = 60.0
DRAIN_S = EVENTS_S + 15.0
# Most of them event streams of idle editors; a fill that is too much is refused by the worker.
OPEN_REQUESTS_MAX = 4096
# On average, waiting or running; with more, a replica is added. It is half of what one runs at a time.
FILLS_PER_REPLICA = 4.0
UPSCALE_DELAY_S, DOWNSCALE_DELAY_S = 15.0, 600.0
HEALTH_PERIOD_S = 5.0
LOAD_TRIES = 3

logger = logging.getLogger(__name__)


class Options(BaseModel):
    """What may be said of a deployment; the rest is the configuration of the machines it runs on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_file: Path = Field(description="Clients must send the token in this file, which every machine has.")
    model: str | None = Field(
        None, description="The model; of each machine's own configuration when left out."
    )
    replicas: int = Field(1, ge=1)
    max_replicas: int | None = Field(
        None, ge=1, description="Let the number grow up to this while many fills wait."
    )
    cpus: float = Field(1.0, gt=0, description="Of each replica, which uses as many threads.")
    gpus: float = Field(0.0, ge=0, description="Of each replica.")


def app(arguments: Mapping[str, Any]) -> serve.Application:
    """What `serve run` and a Serve config name; the arguments are Options."""
    try:
        options = parse(Options, json.dumps(dict(arguments)).encode())
        return build(options)
    except BadRequestError as error:
        raise click.ClickException(str(error)) from None  # in a terminal: one line


def build(options: Options) -> serve.Application:
    """The application for `serve.run`."""
    if options.max_replicas is not None and options.max_replicas < options.replicas:
        raise BadRequestError(f"max_replicas must be at least replicas ({options.replicas})")
    deployed = serve.deployment(
        name=NAME,
        max_ongoing_requests=OPEN_REQUESTS_MAX,
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": options.gpus},
        request_router_config={"request_router_class": STICKY_ROUTER},
        health_check_period_s=HEALTH_PERIOD_S,
        graceful_shutdown_timeout_s=DRAIN_S,
        max_constructor_retry_count=LOAD_TRIES,
        **_size(options),
    )
    return deployed(serve.ingress()(Replica)).bind(options.model, options.token_file)


def replicas_wanted(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """How many replicas suit the fills that wait or run; Ray asks now and then, and sees to limits and delays."""
    fills = (context.aggregated_metrics or {}).get(FILLS, {})
    return sum(fills.values()) / FILLS_PER_REPLICA, {}


class Replica:
    """One engine in a process that Ray starts, watches and ends. It gets requests when its weights are loaded."""

    def __init__(self, model: str | None, token_file: Path) -> None:
        settings, complaints = config.load(os.environ, {"model": model})
        for complaint in complaints:
            logger.warning("%s", complaint)
        token = read_token(token_file)
        self._worker = Worker(lambda progress: registry.load_engine(settings, progress))
        self._traffic = Traffic(build_app(self._worker, token=token, models=[settings.model]))
        _load(self._worker)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """What Ray passes requests on to; asked for once."""
        return self._traffic

    def check_health(self) -> None:
        """Raise when `/health` says that nothing is answered; Ray then replaces this replica."""
        if self._worker.state in UNHEALTHY:
            raise RuntimeError(self._worker.failure or "the engine is closed")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """How busy it is, for `replicas_wanted`. Ray itself would count the event streams of idle editors, too."""
        return {FILLS: float(self._traffic.fill_count)}


class Traffic:
    """The app, its fills counted, and its event streams ended in time."""

    def __init__(self, app: ASGIApp, *, events_s: float = EVENTS_S) -> None:
        self.fill_count = 0  # now
        self._app = app
        self._events_s = events_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "POST":
            await self._fill(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == EVENTS_ROUTE:
            await self._watch(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _fill(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.fill_count += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.fill_count -= 1

    async def _watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.move_on_after(self._events_s) as limit:
            await self._app(scope, receive, send)
        if limit.cancelled_caught:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _size(options: Options) -> dict[str, Any]:
    if options.max_replicas is None:
        return {"num_replicas": options.replicas}
    scaling = {
        "min_replicas": options.replicas,
        "max_replicas": options.max_replicas,
        "upscale_delay_s": UPSCALE_DELAY_S,
        "downscale_delay_s": DOWNSCALE_DELAY_S,
        "policy": {"policy_function": replicas_wanted},
    }
    return {"autoscaling_config": scaling}


def _load(worker: Worker) -> None:
    """Wait until the worker has loaded its weights; raise when it cannot."""
    settled = threading.Event()

    def look() -> None:
        if worker.state in (WorkerState.READY, WorkerState.FAILED):
            settled.set()

    unsubscribe = worker.subscribe(look)
    worker.warm()
    settled.wait()
    unsubscribe()
    if worker.state is WorkerState.FAILED:
        raise RuntimeError(worker.failure)
