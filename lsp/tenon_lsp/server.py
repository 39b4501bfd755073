"""The server as its parts see it: one client's session, its configuration, the engine's news, the voice to the user."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from tenon_engine import __version__
from tenon_lsp import convert
from tenon_lsp.documents import Documents, Edition, path_of
from tenon_lsp.engines import engine_for
from tenon_lsp.engines.client import Engine, EngineError, EngineState
from tenon_lsp.engines.health import Listeners
from tenon_lsp.inline import Inline
from tenon_lsp.positions import Encoding
from tenon_lsp.progress import Bar
from tenon_lsp.protocol import TenonProtocol
from tenon_lsp.scheduler import Scheduler
from tenon_lsp.session import Session
from tenon_lsp.settings import SECTION, EngineSettings, Settings
from tenon_lsp.status import Activity, Level, Status

COMPLAINTS_SHOWN = 3
REFRESH_AFTER_MS = 300

_COPILOT_OPTIONS = ("editorInfo", "editorPluginInfo")  # who sends them understands didChangeStatus
_LOADING = (EngineState.STARTING, EngineState.LOADING)

_log = logging.getLogger(__name__)


class TenonServer(LanguageServer):
    """The server with its one client's session."""

    protocol: TenonProtocol
    session: Session
    inline: Inline

    def __init__(self, *, model: str | None, log_level: str) -> None:
        every_cell = types.NotebookDocumentFilterWithNotebook(notebook="*")
        super().__init__(
            "tenon",
            __version__,
            protocol_cls=TenonProtocol,
            notebook_document_sync=types.NotebookDocumentSyncOptions(notebook_selector=[every_cell]),
        )
        self._model = model  # of the command line: stronger than a setting
        self._log_level = log_level
        self._options: dict[str, Any] = {}
        self._complaints: list[str] = []  # about the settings as they are
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loading_bar: Bar | None = None
        self._has_warmed = False
        self._refreshing: dict[str, asyncio.TimerHandle] = {}
        self.wants_status = False
        self.wants_previews = False
        self._activity = Activity()

    # The session

    def begin(self, params: types.InitializeParams) -> None:
        """Set up the session for a client."""
        options = params.initialization_options
        self._options = dict(options) if isinstance(options, dict) else {}
        copilot = [self._options.pop(key, None) for key in _COPILOT_OPTIONS]
        self.wants_status = any(value is not None for value in copilot)
        experimental = params.capabilities.experimental
        self.wants_previews = isinstance(experimental, dict) and experimental.get("tenonPreview") is True
        settings, complaints = Settings.parse(self._options)
        self.session = Session(
            documents=Documents(Encoding(types.PositionEncodingKind(self.workspace.position_encoding).value)),
            engine=self._new_engine(settings),
            scheduler=Scheduler(),
            status=Status(self._show),
            settings=settings,
        )
        self.follow_folders()
        self.inline = Inline(self.session, on_latency=lambda ms: self._note(latency_ms=ms))
        self._complain(complaints)

    def follow_folders(self) -> None:
        """Take note of the workspace's folders."""
        uris = [*self.workspace.folders] or [self.workspace.root_uri]
        self.session.folders = [path for uri in uris if uri and (path := path_of(uri))]
        self.session.configure(self.session.settings)

    def configure(self, values: object) -> None:
        """Work with what the client's configuration says, on top of what it said at the start."""
        settings, complaints = Settings.parse(_merged(self._options, values))
        is_other = self._engine_settings(settings) != self._engine_settings(self.session.settings)
        self.session.configure(settings)
        self._complain(complaints)
        if is_other:
            self.in_background(self.session.engine.close())
            self.session.status.well()  # what is wrong with the other engine has not been said
            self.session.engine = self._new_engine(settings)

    async def pull_configuration(self) -> None:
        """Ask the client for its configuration. Never awaited by what can be cancelled."""
        if not get_capability(self.client_capabilities, "workspace.configuration"):
            return
        try:
            items = [types.ConfigurationItem(section=SECTION)]
            answer = await self.workspace_configuration_async(types.ConfigurationParams(items))
        except JsonRpcException as error:
            _log.warning("the client has no configuration: %s", error)
            return
        if answer and answer[0]:
            self.configure(answer[0])

    def warm(self) -> None:
        """The user has begun to type: load the engine, so that it is there when it is needed."""
        if not self._has_warmed and self.session.settings.enabled:
            self._has_warmed = True
            self.in_background(self.session.engine.warm())

    def refresh_later(self, uri: str) -> None:
        """Have a document's tree parsed, in a thread, when nothing has been typed for a while."""
        if waiting := self._refreshing.pop(uri, None):
            waiting.cancel()
        if uri and self.session.documents.syntax(uri):
            loop = asyncio.get_running_loop()
            self._refreshing[uri] = loop.call_later(REFRESH_AFTER_MS / 1e3, self._refresh, uri)

    def _refresh(self, uri: str) -> None:
        self._refreshing.pop(uri, None)
        if syntax := self.session.documents.syntax(uri):
            asyncio.get_running_loop().run_in_executor(None, syntax.refresh)

    async def end(self) -> None:
        """Stop all work and the engine."""
        await self.session.scheduler.close()
        await self.session.engine.close()

    def in_background(self, work: Any) -> None:
        """Run a coroutine that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def edition_of(self, uri: object) -> Edition | None:
        """The edition, right now, of an open document."""
        session = getattr(self, "session", None)
        return session.documents.edition(uri) if session and isinstance(uri, str) else None

    def version_of(self, uri: object) -> int | None:
        """The version, right now, of an open document."""
        edition = self.edition_of(uri)
        return None if edition is None else edition.version

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A message that could not be handled is for the log; it may hold the user's text, so only its kind."""
        _log.error("%s: %s", getattr(source, "__name__", source), type(error).__name__)

    # The engine's news

    def _new_engine(self, settings: Settings) -> Engine:
        listeners = Listeners(on_fault=self._on_fault, on_progress=self._on_progress, on_state=self._on_state)
        return engine_for(self._engine_settings(settings), listeners, log_level=self._log_level)

    def _engine_settings(self, settings: Settings) -> EngineSettings:
        engine = settings.engine
        return engine if self._model is None else dataclasses.replace(engine, model=self._model)

    def _on_fault(self, error: EngineError) -> None:
        self.session.status.fault(error.code.value, str(error))

    def _on_progress(self, text: str, percent: int | None) -> None:
        if self._loading_bar is None:
            self._loading_bar = Bar(self, "Tenon")
        self._loading_bar.report(text, percent)
        self._note(percent=percent)

    def _on_state(self, state: EngineState) -> None:
        if state not in _LOADING and self._loading_bar:
            self._loading_bar.end()
            self._loading_bar = None
        if state in _LOADING:
            self._note(state=state)
        else:
            self._note(state=state, percent=None, info=self.session.engine.info)

    def _note(self, **changes: Any) -> None:
        """Take note of what the engine is doing, and tell a client that shows it."""
        activity = dataclasses.replace(self._activity, **changes)
        if activity != self._activity:
            self._activity = activity
            if self.wants_status:
                self.protocol.notify("didChangeStatus", convert.status(activity))

    # The user

    def _show(self, level: Level, message: str) -> None:
        self.window_show_message(types.ShowMessageParams(convert.message_type(level), message))

    def _complain(self, complaints: list[str]) -> None:
        """Say what is wrong with the settings and was not before."""
        complaints, self._complaints = (
            [each for each in complaints if each not in self._complaints],
            complaints,
        )
        for complaint in complaints:
            _log.warning("settings: %s", complaint)
        if complaints:
            more = complaints[COMPLAINTS_SHOWN:]
            said = [*complaints[:COMPLAINTS_SHOWN], *([f"({len(more)} more in the log)"] if more else [])]
            self._show(Level.WARNING, f"Tenon: {' '.join(said)}")


def _merged(one: Any, other: Any) -> Any:
    """`other`'s values on top of `one`'s, object by object."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}}
