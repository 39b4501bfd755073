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
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import LanguageServerProtocol

from tenon_lsp.documents import Edition

_log = logging.getLogger(__name__)

arrived_edition: contextvars.ContextVar[Edition | None] = contextvars.ContextVar(
    "arrived_edition", default=None
)
"""The edition that a request's document had when the request arrived; its handler may begin later."""


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
        if data.get("method") == types.TEXT_DOCUMENT_DID_CHANGE and "id" not in data and "jsonrpc" in data:
            return self._structure_change(data)
        try:
            return super().structure_message(_with_capability(data))
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    def _structure_change(self, data: dict[str, Any]) -> Any:
        """Read a change; after one that cannot be read, the document is as good as closed: we do not know its text."""
        try:
            return super().structure_message({**data, "params": self._change(data.get("params"))})
        except JsonRpcException:
            match data.get("params"):
                case {"textDocument": {"uri": str(uri)}}:
                    pass
                case _:
                    raise
        _log.warning("a change cannot be read; its document is left alone until it is opened again")
        closed = {"textDocument": {"uri": uri}}
        return super().structure_message(
            {"jsonrpc": self.VERSION, "method": types.TEXT_DOCUMENT_DID_CLOSE, "params": closed}
        )

    def _change(self, params: object) -> dict[str, Any]:
        """A change's parameters without what is null; where it has no version, it has the next one."""
        match params:
            case {"textDocument": {"uri": str(uri), **rest}, "contentChanges": [*events]}:
                pass
            case _:
                raise JsonRpcInvalidParams("this is no change of a document")
        if not all(isinstance(event, dict) and isinstance(event.get("text"), str) for event in events):
            raise JsonRpcInvalidParams("a change has no text")
        version = rest.get("version")
        if version is None:
            version = (self._server.version_of(uri) or 0) + 1  # type: ignore[attr-defined]
        changes = [{name: value for name, value in event.items() if value is not None} for event in events]
        return {"textDocument": {"uri": uri, "version": version}, "contentChanges": changes}

    def handle_message(self, message: Any) -> None:
        """Handle a message that comes at its time; a request that does not is refused, anything else ignored."""
        method = getattr(message, "method", None)
        refusal = self._refusal(method) if method not in (None, types.EXIT) else None
        if refusal is None:
            super().handle_message(message)
        elif (request_id := getattr(message, "id", None)) is not None:
            self._send_response(request_id, error=refusal.to_response_error())

    def _refusal(self, method: str) -> JsonRpcException | None:
        """Why a message comes at the wrong time."""
        has_begun = hasattr(self._server, "session")
        if self.has_shut_down:
            return JsonRpcInvalidRequest("the server has shut down")
        if has_begun and method == types.INITIALIZE:
            return JsonRpcInvalidRequest("the server is initialized already")
        if not has_begun and method != types.INITIALIZE:
            return JsonRpcServerNotInitialized("the server is not initialized yet")
        return None

    def _handle_request(self, msg_id: str | int, method_name: str, params: Any) -> None:
        arrived_edition.set(self._server.edition_of(_uri_of(params)))  # type: ignore[attr-defined]
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


def _with_capability(data: dict[str, Any]) -> dict[str, Any]:
    """The message with what lsp-mode means: it has inline completion, which its `initialize` says with a null."""
    if data.get("method") == types.INITIALIZE:
        match data.get("params"):
            case {
                "clientInfo": {"name": "emacs"},
                "capabilities": {"textDocument": {"inlineCompletion": None} as document},
            }:
                document["inlineCompletion"] = {}
    return data


def _uri_of(params: object) -> object:
    """The document that a request is about."""
    return getattr(getattr(params, "text_document", None), "uri", None)
