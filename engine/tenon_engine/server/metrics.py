"""What the engine counts, for Prometheus to ask: requests, fills, steps, tokens, times, and what is going on now.

Every app has its own registry. No label and no value comes from a user's text.
"""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenon_engine.server.backend import Backend
from tenon_engine.wire import Cost
from tenon_engine.worker import WorkerState

OTHER_ROUTE = "other"  # of paths that nobody serves, which anybody can make up without end
FILL_SECONDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)


class Metrics:
    """The counters of one app."""

    def __init__(self, backend: Backend) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "tenon_requests", "HTTP requests answered", ("route", "status"), registry=registry
        )
        self._fills = Counter(
            "tenon_fills",
            "Fills by how they ended: done, deadline, cancelled, abandoned by the client, error, busy",
            ("outcome",),
            registry=registry,
        )
        self._seconds = Histogram(
            "tenon_fill_seconds",
            "Time from asking for a fill to its answer, in the queue too",
            buckets=FILL_SECONDS,
            registry=registry,
        )
        self._steps = Counter("tenon_denoising_steps", "Forward passes over canvases", registry=registry)
        self._tokens = Counter("tenon_tokens", "Tokens decided", registry=registry)
        self.open_fills = Gauge("tenon_open_fills", "Fills that wait or run", registry=registry)
        self.event_streams = Gauge("tenon_event_streams", "Clients that watch events", registry=registry)
        loaded = Gauge("tenon_model_loaded", "1 while the weights are in memory", registry=registry)
        loaded.set_function(lambda: backend.state is WorkerState.READY)

    def count_request(self, route: str, status: int) -> None:
        """One more request is answered."""
        self._requests.labels(route, str(status)).inc()

    def count_refusal(self) -> None:
        """A fill found the queue full."""
        self._fills.labels("busy").inc()

    def count_fill(self, outcome: str, seconds: float, cost: Cost) -> None:
        """One more fill has ended."""
        self._fills.labels(outcome).inc()
        self._seconds.observe(seconds)
        self._steps.inc(cost.forwards)
        self._tokens.inc(cost.tokens)

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        return generate_latest(self._registry)


class RequestCounter:
    """ASGI middleware that counts answers by route and status."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Collection[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope["path"] if scope["path"] in self._paths else OTHER_ROUTE
                self._metrics.count_request(route, message["status"])
            await send(message)

        await self._app(scope, receive, counting)
