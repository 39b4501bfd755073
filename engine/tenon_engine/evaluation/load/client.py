"""A client of an engine, as an editor is one: a connection of its own, one fill after the other.

Knows the native API and nothing of what is measured.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import ssl
import time
from collections.abc import Sequence
from types import TracebackType

import httpx

from tenon_engine.errors import EngineError
from tenon_engine.evaluation.load.figures import ratio
from tenon_engine.runtime import Address
from tenon_engine.wire import Cost, FillRequest, FillResult, event_from_json, to_json

TIMEOUT_S = 600.0  # a queue of 64 fills is long on a small machine


class RefusedError(EngineError):
    """The engine has answered, and it is no result."""

    code = "refused"

    def __init__(self, status: int, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status
        self.retry_after_s = retry_after_s


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an engine answers, and its process where that is known."""

    url: str
    socket: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    pid: int | None = None

    @staticmethod
    def of(address: Address) -> Place:
        """That of a background engine."""
        return Place(address.url or "http://localhost", address.socket, address.token, address.pid)


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer, which came at `ended_s` of the monotonic clock."""

    client: int
    request: FillRequest
    result: FillResult
    latency_ms: float
    ended_s: float

    @property
    def cost(self) -> Cost:
        """What it cost."""
        return self.result.cost

    @property
    def texts(self) -> tuple[str, ...]:
        """What was suggested, best first."""
        return tuple(candidate.text for hole in self.result.holes for candidate in hole.candidates)


class Client:
    """One client; to be entered."""

    def __init__(self, place: Place, *, number: int = 0) -> None:
        self._number = number
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=place.socket, verify=_tls()),
            base_url=place.url,
            headers={"Authorization": f"Bearer {place.token}"} if place.token else {},
            timeout=TIMEOUT_S,
        )

    async def __aenter__(self) -> Client:
        """Connects with the first fill."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the connection."""
        await self._http.aclose()

    async def fill(self, request: FillRequest) -> Exchange:
        """Ask, as the language server does; RefusedError, or what httpx raises, when there is no answer.

        A cancellation closes the connection.
        """
        started = time.perf_counter()
        response = await self._http.post(
            "/v1/infill",
            content=json.dumps({**to_json(request), "stream": True}),
            headers={"Content-Type": "application/json", "X-Session-Id": _opaque(request.session)},
        )
        result = _result(response)
        latency_ms = (time.perf_counter() - started) * 1e3
        return Exchange(self._number, request, result, latency_ms, time.monotonic())


def reused_share(exchanges: Sequence[Exchange]) -> float | None:
    """How much of their contexts was there already."""
    reused = sum(exchange.cost.reused_tokens for exchange in exchanges)
    return ratio(reused, sum(exchange.cost.context_tokens for exchange in exchanges))


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading all authorities takes long enough to do it once."""
    return httpx.create_ssl_context()


def _opaque(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()[:16]


def _result(response: httpx.Response) -> FillResult:
    try:
        line = json.loads(response.content.splitlines()[-1])
        if response.is_success and isinstance(result := event_from_json(line["result"]), FillResult):
            return result
        message = str(line["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = "the answer is not understood"
    wait = response.headers.get("Retry-After", "")
    raise RefusedError(response.status_code, message, retry_after_s=float(wait) if wait.isdecimal() else 0.0)
