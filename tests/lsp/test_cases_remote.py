"""What users report about engines elsewhere and about the network, with the real server and real HTTP."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, Response
from tests.lsp import client as client_module
from tests.lsp.client import AUTOMATIC, INVOKED, Client
from tests.lsp.connection import on_loop
from tests.lsp.document import Document
from tests.lsp.document import Json as Settings
from tests.lsp.http_server import Json, Stub, free_port, refusal, serving
from tests.lsp.test_engine_http import real

KEYS = 20
TOKEN = "sk-very-secret-0123456789"
COMMAND = [sys.executable, "-m", "tenon_engine", "--log-level", "info", "lsp"]
ANSWERS: dict[str, Json] = {
    "openai": {"choices": [{"text": "1"}]},
    "chat": {"choices": [{"message": {"content": "```\n1\n```"}}]},
    "llamacpp": {"content": "1"},
}
KINDS = [*ANSWERS]

NO_NETWORK = """
import socket

def watched(call):
    def watching(self, address):
        if self.family != getattr(socket, "AF_UNIX", None):
            with open({log!r}, "a") as log:
                print(address, file=log)
            raise OSError("there is no network in this test")
        return call(self, address)
    return watching

def getaddrinfo(*names, **more):
    with open({log!r}, "a") as log:
        print(names, file=log)
    raise OSError("there is no network in this test")

socket.socket.connect = watched(socket.socket.connect)
socket.socket.connect_ex = watched(socket.socket.connect_ex)
socket.getaddrinfo = getaddrinfo
"""


@contextlib.asynccontextmanager
async def editor(folder: Path, **engine: str) -> AsyncIterator[Client]:
    """An editor whose settings say where the engine is."""
    path = folder / "editor"
    path.mkdir()
    settings: Settings = {"engine": engine}
    client = Client(path, settings=settings)
    await client.start(COMMAND)
    yield client
    assert await client.stop() == 0
    assert "Traceback" not in client.log(), client.log()[-4000:]


async def type_keys(client: Client, document: Document, offset: int, count: int = KEYS) -> int:
    """Type, and ask after each key; nothing is offered. Where the cursor is then."""
    for _ in range(count):
        offset = client.type(document, offset, "a")
        assert await client.ask(document, offset) == []
    return offset


async def ask_until_answered(
    client: Client, document: Document, offset: int, patience_s: float = 10.0
) -> None:
    """Type on until there is an item: an engine that failed is left alone for a while."""
    end_s = time.monotonic() + patience_s
    while not await client.ask(document, offset, AUTOMATIC):
        assert time.monotonic() < end_s, client.log()[-2000:]
        offset = client.type(document, offset, "a")


@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_u50_what_a_server_complains_about_is_shown_once_and_the_next_request_is_tried(
    kind: str, tmp_path: Path
) -> None:
    stub = Stub(lambda _: refusal(400, "ctx too small"))
    with serving(stub.app) as url:
        async with editor(tmp_path, url=url, kind=kind) as client:
            document, offset = client.open_at("x = █")
            offset = await type_keys(client, document, offset)
            assert len(stub.asked) == KEYS
            (message,) = client.messages_to_user()
            assert "ctx too small" in message
            stub.reply = lambda _: ANSWERS[kind]
            assert len(await client.ask(document, client.type(document, offset, " + "))) == 1


@pytest.mark.parametrize("reply", [{}, PlainTextResponse("<html>")], ids=["an empty object", "no JSON"])
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_u50_a_malformed_reply_is_nothing_and_one_line_in_the_log(
    kind: str, reply: Response | Json, tmp_path: Path
) -> None:
    stub = Stub(lambda _: reply)
    with serving(stub.app) as url:
        async with editor(tmp_path, url=url, kind=kind) as client:
            document, offset = client.open_at("x = █")
            offset = await type_keys(client, document, offset)
            assert await client.ask(document, offset, INVOKED) == []
            assert client.log().count("is not understood") <= 2  # one for each way of asking
            stub.reply = lambda _: ANSWERS[kind]
            await ask_until_answered(client, document, client.type(document, offset, " + "))


@pytest.mark.parametrize("kind", ["tenon", *KINDS])
@on_loop
async def test_u58_a_closed_port_is_one_message_and_the_engine_is_used_when_it_is_there(
    kind: str, tmp_path: Path
) -> None:
    port = free_port()
    async with editor(tmp_path, url=f"http://127.0.0.1:{port}", kind=kind) as client:
        document, offset = client.open_at("x = █")
        offset = await type_keys(client, document, offset)
        (message,) = client.messages_to_user()
        assert f"127.0.0.1:{port} cannot be reached" in message
        stub = Stub(lambda _: ANSWERS[kind])
        client.script.says("1")
        is_ours = kind == "tenon"
        with real(client.script, port=port) if is_ours else serving(stub.app, port=port):
            await ask_until_answered(client, document, client.type(document, offset, " + "))
            assert len(client.messages_to_user()) == 1


@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_u58_the_token_goes_with_every_call_and_into_no_message_or_log(
    kind: str, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN, encoding="ascii")
    stub = Stub(lambda _: ANSWERS[kind])
    with serving(stub.app) as url:
        async with editor(tmp_path, url=url, kind=kind, tokenFile=str(token_file)) as client:
            document, offset = client.open_at("x = █")
            assert len(await client.ask(document, offset)) == 1
            stub.reply = lambda _: refusal(401, f"{TOKEN} is no key of ours")
            await type_keys(client, document, offset)
            assert {asked.headers.get("authorization") for asked in stub.asked} == {f"Bearer {TOKEN}"}
            (message,) = client.messages_to_user()
            assert "is no key of ours (status 401)" in message
            assert TOKEN not in message + client.log()


@on_loop
async def test_u58_our_own_engine_wants_its_token(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("wrong-token", encoding="ascii")
    async with editor_with_own_engine(tmp_path, token_file) as client:
        document, offset = client.open_at("x = █")
        offset = await type_keys(client, document, offset)
        (message,) = client.messages_to_user()
        assert "wants its token" in message
        assert "wrong-token" not in message + client.log()
        token_file.write_text(TOKEN, encoding="ascii")
        await ask_until_answered(client, document, client.type(document, offset, " + "))


@contextlib.asynccontextmanager
async def editor_with_own_engine(folder: Path, token_file: Path) -> AsyncIterator[Client]:
    port = free_port()
    async with editor(folder, url=f"http://127.0.0.1:{port}", tokenFile=str(token_file)) as client:
        client.script.says("1")
        with real(client.script, token=TOKEN, port=port):
            yield client


@on_loop
async def test_an_engine_elsewhere_is_used_and_left_by_a_change_of_settings(tmp_path: Path) -> None:
    stub = Stub(lambda _: ANSWERS["llamacpp"])
    with serving(stub.app) as url:
        async with editor(tmp_path, model=f"scripted:{tmp_path / 'editor.script.json'}") as client:
            client.script.says("2")
            document, offset = client.open_at("x = █")
            (item,) = await client.ask(document, offset)
            assert (item["insertText"], len(client.script.calls()), stub.asked) == ("2", 1, [])
            await client.configure({"engine": {"url": url, "kind": "llamacpp"}})
            document, offset = client.open_at("y = █")
            (item,) = await client.ask(document, offset)
            assert (item["insertText"], len(client.script.calls()), len(stub.asked)) == ("1", 1, 1)
    assert client.messages_to_user() == []


@on_loop
async def test_u49_without_an_address_nothing_is_sent_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = watch_the_network(tmp_path, monkeypatch)
    async with editor(tmp_path, model=f"scripted:{tmp_path / 'editor.script.json'}") as client:
        client.script.says("1")
        document, offset = client.open_at("x = █")
        assert len(await client.ask(document, offset)) == 1
        assert len(client.script.calls()) == 1
    assert attempts() == []


@on_loop
async def test_u49_with_an_address_it_is_what_is_asked_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = watch_the_network(tmp_path, monkeypatch)
    async with editor(tmp_path, url="http://127.0.0.1:9", kind="openai") as client:
        document, offset = client.open_at("x = █")
        await type_keys(client, document, offset)
    assert set(attempts()) == {"('127.0.0.1', 9)"}


@on_loop
async def test_u49_a_missing_model_is_one_message_that_names_the_file_and_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = watch_the_network(tmp_path, monkeypatch)
    monkeypatch.setenv("TENON_HOME", str(tmp_path / "models"))
    monkeypatch.setenv("TENON_OFFLINE", "1")
    async with editor(tmp_path) as client:
        document, offset = client.open_at("x = █")
        await type_keys(client, document, offset)
        (message,) = client.messages_to_user()
        assert "tenon model fetch" in message
    assert attempts() == []


def watch_the_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """From now on every process of an editor fails to leave the machine, and writes down that it tried."""
    log = folder / "attempts"
    code = folder / "code"
    code.mkdir()
    (code / "sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)), encoding="utf-8")
    monkeypatch.setattr(client_module, "SOURCE_FOLDERS", (code, *client_module.SOURCE_FOLDERS))
    return lambda: log.read_text(encoding="utf-8").splitlines() if log.exists() else []
