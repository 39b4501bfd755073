"""What pygls's protocol does differently here: documents are ours, stale and malformed messages are answered quietly.

pygls 2.1 keeps its own copy of every document (cut into lines at separators that end no line in the protocol), logs a
traceback for every error reply, answers nothing to a request that it cannot read, and fails on a reply that comes
after its waiter was cancelled.
"""

from __future__ import annotations

import contextvars
import logging
from concurrent.futures import Future
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.protocol import LanguageServerProtocol

_log = logging.getLogger(__name__)

arrived_version: contextvars.ContextVar[int | None] = contextvars.ContextVar("arrived_version", default=None)
"""The version that a request's document had when the request arrived; its handler may begin later."""


class TenonProtocol(LanguageServerProtocol):
    """The protocol as Tenon's server speaks it."""

    lsp_text_document__did_open = None  # type: ignore[assignment]
    lsp_text_document__did_change = None  # type: ignore[assignment]
    lsp_text_document__did_close = None  # type: ignore[assignment]
    lsp_notebook_document__did_open = None  # type: ignore[assignment]
    lsp_notebook_document__did_change = None  # type: ignore[assignment]
    lsp_notebook_document__did_close = None  # type: ignore[assignment]

    @property
    def has_shut_down(self) -> bool:
        """Whether the client asked for the shutdown, as it should before it says exit."""
        return self._shutdown

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Read a message; a request that cannot be read is answered with what is wrong with it."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    def _handle_request(self, msg_id: str | int, method_name: str, params: Any) -> None:
        arrived_version.set(self._server.version_of(params))  # type: ignore[attr-defined]
        super()._handle_request(msg_id, method_name, params)

    def _send_handler_result(self, future: Future[Any], *, msg_id: str | int) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None:
            super()._send_handler_result(future, msg_id=msg_id)
            return
        self._request_futures.pop(msg_id, None)
        if not isinstance(error, JsonRpcException):
            _log.error("a request failed", exc_info=error)
            error = JsonRpcInternalError(f"{type(error).__name__} (see the server's log)")
        self._send_response(msg_id, error=error.to_response_error())

    def _handle_response(
        self, msg_id: str | int, result: Any = None, error: types.ResponseError | None = None
    ) -> None:
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            del self._request_futures[msg_id]
        else:
            super()._handle_response(msg_id, result, error)
