"""The server's documents: what the client opens, changes and closes. All of it is synchronous, in order of arrival."""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types

from tenon_lsp import convert, related
from tenon_lsp.server import TenonServer

_log = logging.getLogger(__name__)


def add(server: TenonServer) -> None:
    """Register what follows text documents and notebooks."""
    _add_texts(server)
    _add_notebooks(server)


def _add_texts(server: TenonServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        related.prepare(document.text)
        server.session.open(document.uri, document.language_id, document.version, document.text)
        server.refresh_later(document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        _change(server, params.text_document, params.content_changes)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.session.forget(params.text_document.uri)

    @server.feature("textDocument/didFocus")
    def did_focus(params: Any) -> None:
        uri = getattr(getattr(params, "textDocument", None), "uri", None)
        server.session.documents.focus(str(uri))

    @server.feature("textDocument/didShowCompletion")
    @server.feature("textDocument/didPartiallyAcceptCompletion")
    def did_use(_: Any) -> None:
        """What is shown and taken is seen in the document itself; the notes are taken so that none is unknown."""


def _change(server: TenonServer, document: types.VersionedTextDocumentIdentifier, events: Any) -> None:
    if not server.session.change(document.uri, document.version, convert.changes(events)):
        _log.warning("a change of a document that is not open is ignored")
    server.refresh_later(document.uri)
    server.warm()


def _add_notebooks(server: TenonServer) -> None:
    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenNotebookDocumentParams) -> None:
        cells = convert.cells(params.notebook_document.cells)
        server.session.documents.set_cells(params.notebook_document.uri, cells)
        for cell in params.cell_text_documents:
            server.session.open(cell.uri, cell.language_id, cell.version, cell.text)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeNotebookDocumentParams) -> None:
        cells = params.change.cells
        if cells is None:
            return
        if cells.structure is not None:
            _change_cells(server, params.notebook_document.uri, cells.structure)
        for text in cells.text_content or ():
            _change(server, text.document, text.changes)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseNotebookDocumentParams) -> None:
        server.session.documents.set_cells(params.notebook_document.uri, ())
        for cell in params.cell_text_documents:
            server.session.forget(cell.uri)


def _change_cells(
    server: TenonServer, uri: str, structure: types.NotebookDocumentCellChangeStructure
) -> None:
    documents, change = server.session.documents, structure.array
    cells = list(documents.cells(uri))
    cells[change.start : change.start + change.delete_count] = convert.cells(change.cells or ())
    documents.set_cells(uri, cells)
    for cell in structure.did_open or ():
        server.session.open(cell.uri, cell.language_id, cell.version, cell.text)
    for closed in structure.did_close or ():
        server.session.forget(closed.uri)
