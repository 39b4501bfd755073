"""Unix sockets for the HTTP client, on asyncio's own streams.

The client's usual ones log an error whenever a read is cancelled at the moment its data arrives: at every fast key.
Knows no HTTP. Imported with the HTTP client, not before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import anyio  # whose time-outs, unlike asyncio's before Python 3.12, lose no cancellation
import httpcore
import httpx


def transport_to(path: str) -> httpx.AsyncHTTPTransport:
    """The HTTP client's way to the socket at `path`."""
    transport = httpx.AsyncHTTPTransport()
    transport._pool = httpcore.AsyncConnectionPool(uds=path, network_backend=_Backend())
    return transport


class _Backend(httpcore.AsyncNetworkBackend):
    """Opens streams; all are to the one socket."""

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """See httpcore."""
        with _errors(httpcore.ConnectError, httpcore.ConnectTimeout), anyio.fail_after(timeout):
            return _Stream(*await asyncio.open_unix_connection(path))


class _Stream(httpcore.AsyncNetworkStream):
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See httpcore."""
        with _errors(httpcore.ReadError, httpcore.ReadTimeout), anyio.fail_after(timeout):
            return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See httpcore."""
        with _errors(httpcore.WriteError, httpcore.WriteTimeout), anyio.fail_after(timeout):
            self._writer.write(buffer)
            await self._writer.drain()

    async def aclose(self) -> None:
        """See httpcore; whoever reads is told that there is no more."""
        self._writer.transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """See httpcore: an idle connection on which something has come, its end, is not used again."""
        return self._reader.at_eof() if info == "is_readable" else None


@contextlib.contextmanager
def _errors(failed: type[Exception], late: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error
