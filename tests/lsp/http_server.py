"""A real HTTP server on loopback in a thread of this process, and a part that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Json = dict[str, Any]


@contextlib.contextmanager
def serving(app: Any, *, port: int = 0, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The address of a server with this app, for as long as the context lasts; then its connections are cut."""
    listener = socket.create_server(("127.0.0.1", port))
    chain, key = certificate or (None, None)
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, ssl_certfile=chain, ssl_keyfile=key
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    try:
        scheme = "https" if certificate else "http"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        listener.close()
        assert not thread.is_alive()


def free_port() -> int:
    """A port of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclasses.dataclass(slots=True)
class Asked:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Json:
        """Its JSON."""
        message: Json = json.loads(self.body)
        return message


class Stub:
    """An app that answers every POST with what `reply` makes of its JSON, and keeps what it was asked.

    A reply that is None never comes; `gone` counts the clients that did not wait for it.
    """

    def __init__(self, reply: Callable[[Json], Response | Json | None]) -> None:
        self.reply = reply
        self.asked: list[Asked] = []
        self.gone = 0
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        asked = Asked(request.url.path, dict(request.headers), await request.body())
        self.asked.append(asked)
        reply = self.reply(asked.message)
        if reply is None:
            await self._wait_for_the_end(request)
            return Response()
        return reply if isinstance(reply, Response) else JSONResponse(reply)

    async def _wait_for_the_end(self, request: Request) -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        self.gone += 1


def refusal(status: int, sentence: str, **headers: str) -> Response:
    """An error as most servers say it."""
    return JSONResponse({"error": {"message": sentence, "type": "error", "code": None}}, status, headers)
