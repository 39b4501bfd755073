"""The language server's features: which message goes to which part, and nothing of what the parts do.

Handlers that change documents are synchronous, so that they run in the order in which messages arrive; whatever
waits is a coroutine, which pygls cancels when the client asks for it.
"""

from __future__ import annotations

import logging

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcContentModified, JsonRpcException

from tenon_lsp import convert, features_actions, features_documents
from tenon_lsp.inline import Ask, Item, Stale
from tenon_lsp.protocol import arrived_edition
from tenon_lsp.server import TenonServer
from tenon_lsp.settings import SECTION

# What a user types before a place where text may be missing; word characters are asked for by the client itself.
TRIGGERS = tuple(" \n\t.,:;=([{<>\"'`/|-")

# Not an empty object: lsp-mode with property lists reads that as nil, and never asks.
_INLINE_OPTIONS = types.InlineCompletionOptions(work_done_progress=False)

_log = logging.getLogger(__name__)


def build(*, model: str | None, log_level: str) -> TenonServer:
    """A server with all its handlers."""
    server = TenonServer(model=model, log_level=log_level)
    _add_life(server)
    features_documents.add(server)
    features_actions.add(server)
    return server


def _add_life(server: TenonServer) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.begin(params)
        if get_capability(params.capabilities, "text_document.inline_completion") is not None:
            _add_inline_completion(server)
        else:
            _add_completion(server)

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        if get_capability(
            server.client_capabilities, "workspace.did_change_configuration.dynamic_registration"
        ):
            server.in_background(_register_configuration(server))
        server.in_background(server.pull_configuration())

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        values = params.settings
        if isinstance(values, dict) and values:
            server.configure(values.get(SECTION, values))
        else:
            server.in_background(server.pull_configuration())

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def did_change_folders(_: types.DidChangeWorkspaceFoldersParams) -> None:
        server.follow_folders()

    @server.feature(types.SHUTDOWN)
    async def shutdown(_: None) -> None:
        await server.end()


async def _register_configuration(server: TenonServer) -> None:
    change = types.Registration(id="tenon-configuration", method=types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    try:
        await server.client_register_capability_async(types.RegistrationParams([change]))
    except JsonRpcException as error:
        _log.info("changes of the configuration are not told: %s", error)


def _add_inline_completion(server: TenonServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, _INLINE_OPTIONS)
    async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList:
        return convert.inline_items(await _suggest(server, convert.ask(params, arrived_edition.get())))


def _add_completion(server: TenonServer) -> None:
    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=list(TRIGGERS))
    )
    async def completion(params: types.CompletionParams) -> types.CompletionList:
        uri = params.text_document.uri
        ask = Ask(uri, convert.position(params.position), is_invoked=False, edition=arrived_edition.get())
        items = await _suggest(server, ask)
        snapshot = server.session.documents.snapshot(uri)
        modes = get_capability(
            server.client_capabilities,
            "text_document.completion.completion_item.insert_text_mode_support.value_set",
        )
        if snapshot is None:
            return types.CompletionList(is_incomplete=True, items=[])
        return convert.completion_items(items, snapshot, modes or ())


async def _suggest(server: TenonServer, ask: Ask) -> list[Item]:
    try:
        return await server.inline.suggest(ask)
    except Stale as error:
        raise JsonRpcContentModified("the document has changed, or a newer request came") from error
