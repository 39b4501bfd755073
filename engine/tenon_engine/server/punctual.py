"""uvicorn's HTTP/1.1 with a time limit for the head of a request, and without a delay of its answers.

uvicorn waits for a head without end; here connections that stay idle or drip one do not pile up. Bodies are the
guard's to time. Knows no route.
"""

from __future__ import annotations

import asyncio
import socket

import h11
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from tenon_engine.server.answers import error_response

HEAD_SECONDS = 10.0


class PunctualProtocol(H11Protocol):
    """A connection, which ends when the head of a request takes more than `head_seconds` to arrive."""

    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        _send_at_once(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a request's head or body, or a part of them."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_head()

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if (
            self.conn.our_state is h11.IDLE
        ):  # else its last request is answered, and only the rest of it is late
            refusal = error_response(HTTPException(408))
            head = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
            self.transport.write(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(refusal.body), refusal.body))
        self.transport.close()


def _send_at_once(transport: asyncio.Transport) -> None:
    """Else the body of an answer waits 40 ms for its head to be acknowledged: they are written one by one.

    asyncio does the same, but only to sockets whose listener was made with the protocol's number.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
