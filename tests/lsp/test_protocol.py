"""Messages that come at the wrong time or in a wrong form, sent to the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lsp.client import INVOKED, Client, running
from tests.lsp.connection import on_loop, run
from tests.lsp.document import Document, Json

NOT_INITIALIZED, INVALID_REQUEST = -32002, -32600


class Late(Client):
    """An editor that does not introduce itself when it starts."""

    async def initialize(self, **_: object) -> Json:
        return {}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"))


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


def span(start: object, end: object) -> Json:
    """A range of the first line."""
    return {"start": {"line": 0, "character": start}, "end": {"line": 0, "character": end}}


def changed(client: Client, document: Document, changes: object, **head: object) -> None:
    document.version += 1
    identifier = {"uri": document.uri, "version": document.version} | head
    client.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})


@on_loop
async def test_a_request_before_the_beginning_and_one_after_the_end_is_refused_in_its_own_words(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "editor"
    folder.mkdir()
    client = await Late(folder).start()
    place = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 0}}
    ask = place | {"context": {"triggerKind": INVOKED}}
    assert await client.request("textDocument/inlineCompletion", ask).error_code() == NOT_INITIALIZED
    assert await client.request("shutdown").error_code() == NOT_INITIALIZED
    item = {"uri": "file:///a.py", "languageId": "python", "version": 1, "text": ""}
    client.notify("textDocument/didOpen", {"textDocument": item})
    await Client.initialize(client)
    assert await client.request("initialize", {"capabilities": {}}).error_code() == INVALID_REQUEST
    assert await client.request("shutdown").result() is None
    assert await client.request("textDocument/inlineCompletion", ask).error_code() == INVALID_REQUEST
    assert await client.request("shutdown").error_code() == INVALID_REQUEST
    client.notify("exit")
    assert await client.ended() == 0
    assert "Traceback" not in client.log()


@pytest.mark.parametrize("head", [{}, {"version": None}], ids=["a version", "no version"])
@on_loop
async def test_what_is_null_in_a_change_is_as_good_as_left_out(client: Client, head: Json) -> None:
    client.script.says("1")
    document = client.open("old\n")
    changed(client, document, [{"range": None, "rangeLength": None, "text": "x = "}], **head)
    document.text = "x = "
    assert len(await client.ask(document, 4, INVOKED)) == 1
    (call,) = client.script.calls()
    assert call["prefix"] == "x = "


@pytest.mark.parametrize(
    "changes",
    [
        [{"text": None}],
        [{"text": 5}],
        [{"range": span(0, 1)}],
        [{"text": "y = "}, {"range": span(0, "z"), "text": "y"}],
        [{"range": {}, "text": "y"}],
        [5],
        None,
        {},
    ],
)
@on_loop
async def test_after_a_change_that_cannot_be_read_a_document_is_left_alone_until_it_is_opened_again(
    client: Client, changes: object
) -> None:
    client.script.says("1")
    document = client.open("x = ")
    assert len(await client.ask(document, 4, INVOKED)) == 1
    changed(client, document, changes)
    client.type(document, 4, "2 + ")
    client.script.forget_calls()
    assert await client.ask(document, 8, INVOKED) == []
    assert client.script.calls() == []
    again = client.open(document.text, uri=document.uri)
    assert len(await client.ask(again, 8, INVOKED)) == 1
    assert client.messages_to_user() == []


@on_loop
async def test_every_bad_address_of_an_engine_is_told(client: Client) -> None:
    urls = ["http://[::1", "http://user:secret@/"]
    for url in urls:
        await client.configure({"engine": {"url": url}})
        document = client.open("x = ")
        await client.inline(document, 4, INVOKED).reply()
    said = [message for message in client.messages_to_user() if "engine.url" in message]
    assert len(said) == len(urls)
    assert not any("secret" in message for message in said)
