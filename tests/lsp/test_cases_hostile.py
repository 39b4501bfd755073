"""What no well-meaning client sends: it breaks nothing, shows nothing that is excluded, applies to no other text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from tests.lsp.client import AUTOMATIC, INVOKED, Client, running
from tests.lsp.connection import CONTENT_MODIFIED, on_loop, run
from tests.lsp.document import Document, Json

INVALID_PARAMS = -32602
TEXT, OTHER_TEXT = "a = 1\nb = 2\n", "# quite another text\nimport os\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("editor")
    (folder / ".gitignore").write_text("[z-a]\nignored.ipynb\n", encoding="utf-8")
    yield from running(folder)


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


async def is_answered(client: Client, document: Document, trigger: int = AUTOMATIC) -> bool:
    """Whether anything is offered at the end of a document."""
    return bool(await client.ask(document, len(document.text), trigger))


def open_notebook(client: Client, name: str) -> Document:
    """A notebook of one cell, which is what is given back."""
    path = client.folder / name
    cell = Document(f"vscode-notebook-cell:{path}#W1", "python", "x = ", client.encoding)
    client.documents[cell.uri] = cell
    notebook = {"uri": path.as_uri(), "notebookType": "jupyter-notebook", "version": 1}
    item = {"uri": cell.uri, "languageId": "python", "version": 1, "text": cell.text}
    client.notify(
        "notebookDocument/didOpen",
        {
            "notebookDocument": notebook | {"cells": [{"kind": 2, "document": cell.uri}]},
            "cellTextDocuments": [item],
        },
    )
    return cell


async def rewrite(client: Client, document: Document) -> Json:
    """The offer to rewrite the first line."""
    place = {"textDocument": {"uri": document.uri}, "range": document.span(0, 5)}
    actions = await client.request(
        "textDocument/codeAction", place | {"context": {"diagnostics": []}}
    ).result()
    return dict(actions[0])


async def error_of(client: Client, method: str, params: Any) -> int | None:
    """The code of the error that answers a request."""
    code: int | None = (await client.request(method, params).reply()).get("error", {}).get("code")
    return code


# Patterns


@on_loop
async def test_a_setting_that_is_no_pattern_is_told_once_and_the_others_hold(client: Client) -> None:
    client.script.says("1")
    patterns = ["private/", "[z-a]"]
    await client.configure({"exclude": patterns, "disabled": {"globs": ["[b-a]", "*.cfg"]}})
    await client.configure({"exclude": patterns, "disabled": {"globs": ["[b-a]", "*.cfg"]}, "maxTokens": 20})
    (message,) = client.messages_to_user()
    assert '"[z-a]", "[b-a]"' in message
    folder = client.folder.as_uri()
    assert not await is_answered(client, client.open("x = ", uri=f"{folder}/private/a.py"), INVOKED)
    assert not await is_answered(client, client.open("x = ", uri=f"{folder}/a.cfg"))
    assert await is_answered(client, client.open("x = "))


# Names


@pytest.mark.parametrize("settings", [{}, {"exclude": ["*.ipynb"]}, {"disabled": {"globs": ["*.ipynb"]}}])
@on_loop
async def test_what_holds_for_a_notebook_holds_for_its_cells(client: Client, settings: Json) -> None:
    await client.configure(settings)
    client.script.says("1")
    name = "n.ipynb" if settings else "ignored.ipynb"
    assert not await is_answered(client, open_notebook(client, name))
    assert client.script.calls() == []


@on_loop
async def test_the_cells_of_an_ordinary_notebook_are_filled(client: Client) -> None:
    client.script.says("1")
    assert await is_answered(client, open_notebook(client, "n.ipynb"))


@pytest.mark.parametrize("uri", ["untitled:/work/.env", "vscode-remote://ssh/work/.env", "/work/.env"])
@on_loop
async def test_a_secret_is_known_by_its_name_wherever_it_lies(client: Client, uri: str) -> None:
    client.script.says("1")
    assert not await is_answered(client, client.open("TOKEN=abc\nX=", uri=uri), INVOKED)
    assert client.script.calls() == []


@pytest.mark.parametrize("uri", ["file:///work/a%00b.py", "file://[bad", "file:///%00"])
@on_loop
async def test_a_uri_that_no_file_has_disturbs_nothing(client: Client, uri: str) -> None:
    client.script.says("1")
    folders = {"added": [{"uri": uri, "name": "odd"}], "removed": []}
    client.notify("workspace/didChangeWorkspaceFolders", {"event": folders})
    assert await is_answered(client, client.open("x = ", uri=uri))
    assert await is_answered(client, client.open("x = "))
    client.notify(
        "workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": folders["added"]}}
    )


# Freshness


@pytest.mark.parametrize("is_closed", [True, False])
@on_loop
async def test_an_offer_does_not_outlive_the_opening_of_its_document(client: Client, is_closed: bool) -> None:
    document = client.open(TEXT)
    action = await rewrite(client, document)
    if is_closed:
        client.close(document)
    client.open(OTHER_TEXT, uri=document.uri)
    assert await error_of(client, "codeAction/resolve", action) == CONTENT_MODIFIED


@pytest.mark.parametrize("is_closed", [True, False])
@on_loop
async def test_work_does_not_outlive_the_opening_of_its_document(client: Client, is_closed: bool) -> None:
    client.script.says("b = 3", delay_ms=300)
    document = client.open(TEXT)
    action = await rewrite(client, document)
    resolving = client.request("codeAction/resolve", action)
    asking = client.inline(document, len(TEXT), INVOKED)
    await client.barrier()
    if is_closed:
        client.close(document)
    client.open(OTHER_TEXT, uri=document.uri)
    for pending in (resolving, asking):
        assert (await pending.reply())["error"]["code"] == CONTENT_MODIFIED


@on_loop
async def test_a_question_that_a_new_opening_overtakes_is_not_answered(client: Client) -> None:
    client.script.says("1")
    document = client.open("x = ")
    await client.barrier()
    pending, message = client.prepare_inline(document, 4)
    item = {"uri": document.uri, "languageId": "python", "version": 1, "text": "yy = "}
    opening = {"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": item}}
    client.send(message, opening)
    assert (await pending.reply())["error"]["code"] == CONTENT_MODIFIED


@on_loop
async def test_an_answer_is_not_remembered_for_a_document_that_is_opened_anew(client: Client) -> None:
    client.script.says("1")
    document = client.open("x = ")
    assert await is_answered(client, document)
    client.script.says("2")
    (item,) = await client.ask(client.open("x = ", uri=document.uri), 4)
    assert item["insertText"] == "2"


# Requests


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ((0, 6), (0, 4)),
        ((0, 4), (0, 99)),
        ((1, 0), (1, 3)),
        ((99, 0), (99, 3)),
        ((0, 4), (1, 0)),
        ((0, 0), (0, 3)),
    ],
)
@on_loop
async def test_an_entry_that_is_not_at_the_cursor_offers_nothing(
    client: Client, first: tuple[int, int], last: tuple[int, int]
) -> None:
    client.script.says(" > 0")
    document = client.open("arr.le\nfoo\n", "javascript")
    start, end = ({"line": line, "character": character} for line, character in (first, last))
    selected = {"range": {"start": start, "end": end}, "text": "length"}
    assert await client.ask(document, 6, INVOKED, selected) == []
    assert client.script.calls() == []


@pytest.mark.parametrize("name", ["start", "end", "version", "generation"])
@on_loop
async def test_an_offer_with_an_endless_number_is_refused(client: Client, name: str) -> None:
    action = await rewrite(client, client.open(TEXT))
    action["data"][name] = math.inf
    assert await error_of(client, "codeAction/resolve", action) == INVALID_PARAMS


@pytest.mark.parametrize("place", [{"start": -5}, {"end": 10**9}, {"start": 5, "end": 4}])
@on_loop
async def test_an_offer_for_a_place_that_is_not_there_is_refused(client: Client, place: Json) -> None:
    action = await rewrite(client, client.open(TEXT))
    action["data"] |= place
    assert await error_of(client, "codeAction/resolve", action) == INVALID_PARAMS


@pytest.mark.parametrize("command", ["tenon.carryOut", "tenon.rewrite", "tenon.trace"])
@on_loop
async def test_a_command_without_arguments_is_refused(client: Client, command: str) -> None:
    params = {"command": command, "arguments": None}
    assert await error_of(client, "workspace/executeCommand", params) == INVALID_PARAMS
