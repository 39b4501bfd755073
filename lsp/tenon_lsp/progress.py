"""A progress bar in the editor, where the editor has any: opened when there is something to say, cancellable."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

_numbers = itertools.count(1)


class Bar:
    """One bar. Nothing here waits for the client: what comes before it has agreed to the bar is shown afterwards."""

    def __init__(
        self, server: LanguageServer, title: str, on_cancel: Callable[[], object] | None = None
    ) -> None:
        self._server = server
        self._title = title
        self._on_cancel = on_cancel
        self._token = f"tenon-{next(_numbers)}"
        self._latest: types.WorkDoneProgressReport | None = None
        self._is_open = False
        self._has_ended = False
        self._opening: asyncio.Task[None] | None = None

    def report(self, message: str, percent: int | None = None) -> None:
        """Show a message and how much is done; the first one opens the bar."""
        self._latest = types.WorkDoneProgressReport(message=message, percentage=percent)
        if self._is_open:
            self._server.work_done_progress.report(self._token, self._latest)
        elif self._opening is None and get_capability(
            self._server.client_capabilities, "window.work_done_progress"
        ):
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def end(self) -> None:
        """Take the bar away."""
        self._has_ended = True
        if self._is_open:
            self._is_open = False
            self._server.work_done_progress.end(self._token, types.WorkDoneProgressEnd())

    async def _open(self) -> None:
        bars = self._server.work_done_progress
        try:
            await bars.create_async(self._token)
        except JsonRpcException:  # the client does not want it
            return
        if self._has_ended:
            return
        if self._on_cancel is not None:
            bars.tokens[self._token].add_done_callback(self._cancelled)
        latest = self._latest
        bars.begin(
            self._token,
            types.WorkDoneProgressBegin(
                title=self._title,
                cancellable=self._on_cancel is not None,
                message=latest.message if latest else None,
                percentage=latest.percentage if latest else None,
            ),
        )
        self._is_open = True

    def _cancelled(self, _: object) -> None:
        if self._on_cancel is not None and not self._has_ended:
            self._on_cancel()
