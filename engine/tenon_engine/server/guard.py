"""Who and what gets to the routes: the token, the Host header, size, type and pace of a body, clients that leave.

ASGI middleware. A request that gets through has its whole body in memory; a client that goes away has its request
cancelled wherever it waits; what a route raises unforeseen ends here, and nothing that a user wrote is logged.
Knows no route but the one that says whether the engine is up.
"""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import logging

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenon_engine.server.answers import error_response, internal_response

OPEN_PATHS = frozenset({"/health"})  # without a token: what asks whether a machine is alive holds no secrets

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much a client may send, and how long it may take."""

    body_bytes: int = (
        2_000_000  # a window of text and other files; more would hold up others while it is read
    )
    body_seconds: float = 20.0


DEFAULT_LIMITS = Limits()


class Guard:
    """Lets a request through to `app`, or says why not."""

    def __init__(self, app: ASGIApp, *, token: str | None, limits: Limits) -> None:
        self._app = app
        self._token = token
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._admit(scope)
            body = await self._read_body(scope, receive)
        except HTTPException as refusal:
            await error_response(refusal)(scope, receive, send)
        except ClientDisconnect:
            pass
        else:
            await self._while_connected(scope, body, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._token is not None and scope["path"] not in OPEN_PATHS:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_right = hmac.compare_digest(given.encode("latin-1"), self._token.encode())
            if scheme.lower() != "bearer" or not is_right:
                raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})
        if self._token is None and _is_loopback(scope) and not _names_loopback(headers.get("host", "")):
            raise HTTPException(403)
        if scope["method"] == "POST":
            # A page in a browser cannot send this type to another site unasked, only to itself.
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise HTTPException(415)
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:20]) > self._limits.body_bytes:
                raise HTTPException(413)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] != "POST":
            return b""
        body = bytearray()
        try:
            with anyio.fail_after(self._limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._limits.body_bytes:
                        raise HTTPException(413)
        except TimeoutError:
            raise HTTPException(408, headers={"Connection": "close"}) from None
        return bytes(body)

    async def _while_connected(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:

            async def cancel_when_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(cancel_when_gone)
            await self._without_tracebacks(scope, body, send)
            group.cancel_scope.cancel()

    async def _without_tracebacks(self, scope: Scope, body: bytes, send: Send) -> None:
        """Run the app; a server would log what it raises, with the texts that are in it."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        replay = _Replay(body)
        try:
            await self._app(scope, replay, sending)
        except Exception as error:
            logger.error("%s failed (%s)", scope["method"], type(error).__name__)
            logger.debug("the request failed", exc_info=True)
            if not started:  # else the server ends the connection, for the answer is not complete
                await internal_response()(scope, replay, send)


class _Replay:
    """A `receive` that gives a body, then nothing: who waits for the client to leave is cancelled."""

    def __init__(self, body: bytes) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def __call__(self) -> Message:
        if not self._messages:
            await anyio.sleep_forever()
        return self._messages.pop()


def _is_loopback(scope: Scope) -> bool:
    """Whether the request came in on this machine's own TCP address, where any page in a browser can reach."""
    address = scope.get("server")
    return address is not None and address[1] is not None and _is_loopback_address(address[0])


def _names_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name.lower() == "localhost" or _is_loopback_address(name.strip("[]"))


def _is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
