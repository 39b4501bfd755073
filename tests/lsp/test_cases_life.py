"""Starting, loading, leaving, and what happens when a part of the conversation comes late or never."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lsp.client import Client, running
from tests.lsp.connection import (
    ABANDONED,
    CANCELLED,
    METHOD_NOT_FOUND,
    children,
    frame,
    is_alive,
    on_loop,
    run,
    until,
)

on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")

GONE_WITHIN_S = 5.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "editor"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"))


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


async def started(folder: Path) -> tuple[Client, list[int]]:
    """A server that has answered once, and the processes it has started."""
    client = await Client(folder).start()
    client.script.says("1")
    document, offset = client.open_at("x = █")
    assert len(await client.ask(document, offset)) == 1
    engines = children(client.process.pid)
    assert len(engines) == 1
    return client, engines


async def all_gone(pids: list[int]) -> None:
    await until(lambda: not any(map(is_alive, pids)), GONE_WITHIN_S)


@on_linux
@on_loop
async def test_u56_shutdown_and_exit_leave_nothing_behind(folder: Path) -> None:
    client, engines = await started(folder)
    assert await client.stop() == 0
    await all_gone(engines)


@on_linux
@on_loop
async def test_u56_an_editor_that_is_gone_takes_everything_with_it(folder: Path) -> None:
    client, engines = await started(folder)
    client.script.says("1", hang=True)
    document, offset = client.open_at("y = █")
    client.inline(document, offset)
    assert client.process.stdin is not None
    client.process.stdin.close()
    await client.ended(GONE_WITHIN_S)
    await all_gone(engines)


@on_linux
@on_loop
async def test_u56_a_server_that_was_killed_takes_its_engine_with_it(folder: Path) -> None:
    client, engines = await started(folder)
    client.process.kill()
    await client.ended()
    await all_gone(engines)


@on_linux
@on_loop
async def test_u56_an_engine_that_was_killed_is_replaced(folder: Path) -> None:
    client, engines = await started(folder)
    os.kill(engines[0], signal.SIGKILL)
    await all_gone(engines)
    document, offset = client.open_at("y = █")
    for attempt in range(100):  # the first ones may find it starting
        offset = client.type(document, offset, "a" if attempt % 2 else " + b")
        if await client.ask(document, offset):
            break
    assert len(client.messages_to_user()) <= 1
    (replacement,) = children(client.process.pid)
    assert replacement not in engines
    assert await client.stop() == 0


@on_linux
@on_loop
async def test_u22_a_model_is_loaded_once_however_often_the_first_request_is_cancelled(folder: Path) -> None:
    client = await Client(folder).start()
    client.script.says("1")
    document, offset = client.open_at("x = █")
    cancelled = [client.inline(document, offset) for _ in range(5)]
    await until(lambda: children(client.process.pid))
    for pending in cancelled:
        pending.cancel()
    assert {await pending.error_code() for pending in cancelled} <= {*ABANDONED}
    engines = children(client.process.pid)
    assert len(await client.ask(document, offset)) == 1
    assert children(client.process.pid) == engines
    assert await client.stop() == 0


@on_loop
async def test_u56_an_exit_without_a_shutdown_is_an_error(folder: Path) -> None:
    client = await Client(folder).start()
    client.notify("exit")
    assert await client.ended(GONE_WITHIN_S) == 1


@on_loop
async def test_u21_a_late_reply_of_the_editor_is_taken_as_it_comes(client: Client) -> None:
    client.script.says("1")
    client.hold.add("workspace/configuration")
    client.ask_to_reconfigure()
    await until(lambda: client.held)
    client.ask_to_reconfigure()
    await until(lambda: len(client.held) == 2)
    document, offset = client.open_at("x = █")
    assert len(await client.ask(document, offset)) == 1  # nobody waits for the settings
    client.script.says("2", hang=True)
    client.script.forget_calls()
    offset = client.type(document, offset, "4")
    pending = client.inline(document, offset)
    await until(client.script.calls)
    pending.cancel()
    client.hold.clear()
    late = [*client.held]
    client.release()
    client.send(*({"jsonrpc": "2.0", "id": message["id"], "result": [None]} for message in late))  # and twice
    client.send({"jsonrpc": "2.0", "id": "never-asked", "result": None})
    assert await pending.error_code() == CANCELLED
    client.script.says(" + 1")
    assert len(await client.ask(document, offset)) == 1


@on_loop
async def test_an_unknown_request_is_answered_and_an_unknown_notification_is_not(client: Client) -> None:
    client.notify("test/unknown", {"a": 1})
    assert await client.request("test/unknown", {"a": 1}).error_code() == METHOD_NOT_FOUND


@on_loop
async def test_a_cancellation_of_a_request_that_is_done_or_unknown_changes_nothing(client: Client) -> None:
    client.script.says("1")
    document, offset = client.open_at("x = █")
    pending = client.inline(document, offset)
    assert len(await pending.items()) == 1
    pending.cancel()
    client.notify("$/cancelRequest", {"id": "never-sent"})
    offset = client.type(document, offset, "4 + ")
    assert len(await client.ask(document, offset)) == 1


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {}}, id="no parameters"
        ),
        pytest.param({"jsonrpc": "2.0", "method": "textDocument/didChange"}, id="none at all"),
        pytest.param({"jsonrpc": "2.0", "id": None, "method": "textDocument/inlineCompletion"}, id="no id"),
    ],
)
@on_loop
async def test_a_malformed_message_does_not_end_the_server(
    client: Client, message: dict[str, object]
) -> None:
    client.send(message)
    client.script.says("1")
    document, offset = client.open_at("x = █")
    assert len(await client.ask(document, offset)) == 1


@on_loop
async def test_a_request_for_a_document_that_is_not_open_offers_nothing(client: Client) -> None:
    place = {"textDocument": {"uri": "file:///nowhere.py"}, "position": {"line": 3, "character": 1}}
    pending = client.request("textDocument/inlineCompletion", place | {"context": {"triggerKind": 2}})
    assert await pending.items() == []


@on_loop
async def test_messages_may_arrive_in_pieces(client: Client) -> None:
    client.script.says("1")
    document, offset = client.open_at("x = █")
    pending, message = client.prepare_inline(document, offset)
    assert client.process.stdin is not None
    for byte in frame(message):
        client.process.stdin.write(bytes([byte]))
        await client.process.stdin.drain()
    assert len(await pending.items()) == 1
