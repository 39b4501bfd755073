"""What editor plugins of ours have beyond the protocol: the engine's state, a rewrite as it goes, a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lsp.client import INVOKED, Client, Profile
from tests.lsp.connection import CANCELLED, RefusedError, on_loop, run, until
from tests.lsp.document import Document, Json, at_selection

from tenon_lsp import convert
from tenon_lsp.engines.client import EngineInfo, EngineState
from tenon_lsp.status import Activity

INVALID_PARAMS = -32602


@dataclasses.dataclass(frozen=True, slots=True)
class Plugin(Profile):
    """An editor with a plugin of ours, which shows rewrites as they go."""

    def capabilities(self) -> Json:
        return Profile.capabilities(self) | {"experimental": {"tenonPreview": True}}


class PluginClient(Client):
    """A client that says who it is, as one with a status bar does."""

    async def initialize(self, **more: Any) -> Json:
        names = {key: {"name": "one", "version": "1"} for key in ("editorInfo", "editorPluginInfo")}
        options = self.settings | names
        return await super().initialize(initializationOptions=options, **more)

    def told(self, method: str) -> list[Json]:
        """What the server has sent of this kind."""
        return [each["params"] for each in self.notifications if each["method"] == method]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginClient]:
    client = PluginClient(tmp_path_factory.mktemp("editor"), Plugin())
    run(client.start())
    yield client
    assert run(client.stop()) == 0
    assert "Traceback" not in client.log(), client.log()[-4000:]


@pytest.fixture
def client(shared: PluginClient) -> Iterator[PluginClient]:
    yield shared
    run(shared.tidy())


async def action_on(client: Client, marked: str, title: str) -> tuple[Document, Json]:
    """A document with a selection, and one of the actions that are offered for it."""
    text, start, end = at_selection(marked)
    document = client.open(text)
    params = {
        "textDocument": {"uri": document.uri},
        "range": document.span(start, end),
        "context": {"diagnostics": []},
    }
    actions = await client.request("textDocument/codeAction", params).result()
    return document, next(each for each in actions if each["title"] == f"Tenon: {title}")


def trace(client: Client, *arguments: object) -> Any:
    """The command that shows how a hole is denoised."""
    params = {"command": "tenon.trace", "arguments": [*arguments]}
    return client.request("workspace/executeCommand", params)


# The engine's state


@on_loop
async def test_a_client_with_a_status_bar_is_told_of_the_model_and_of_the_last_latency(
    client: PluginClient,
) -> None:
    client.script.says("set")
    document, offset = client.open_at("sun█")
    assert [item["insertText"] for item in await client.ask(document, offset, INVOKED)] == ["set"]
    await until(lambda: "latencyMs" in (client.told("didChangeStatus") or [{}])[-1])
    last = client.told("didChangeStatus")[-1]
    assert last["kind"] == "Normal"
    assert last["model"] == f"scripted:{client.script.path}"
    assert "device" not in last  # a script runs nowhere
    assert isinstance(last["latencyMs"], int)


@on_loop
async def test_what_is_remembered_is_no_measure_of_the_engine(client: PluginClient) -> None:
    client.script.says("set")
    document, offset = client.open_at("sun█")
    await client.ask(document, offset, INVOKED)
    await client.barrier()
    latencies = {each.get("latencyMs") for each in client.told("didChangeStatus")}
    await client.ask(document, offset, INVOKED)
    await client.barrier()
    assert {each.get("latencyMs") for each in client.told("didChangeStatus")} == latencies


def test_a_status_says_what_is_known_and_nothing_else() -> None:
    assert convert.status(Activity()) == {"message": "stopped", "busy": False, "kind": "Inactive"}
    loading = Activity(EngineState.LOADING, percent=0)
    assert convert.status(loading) == {"message": "loading", "busy": True, "kind": "Normal", "percent": 0}
    ready = Activity(EngineState.READY, EngineInfo("m", 1, 1, 1, device="cpu"), latency_ms=12.6)
    expected = {"message": "ready", "busy": False, "kind": "Normal"}
    assert convert.status(ready) == expected | {"model": "m", "device": "cpu", "latencyMs": 13}


# A rewrite as it goes


@on_loop
async def test_a_rewrite_is_shown_step_by_step_to_who_wants_it(client: PluginClient) -> None:
    client.script.says("three + four")
    document, action = await action_on(client, "x = ⟦1 + 2⟧⏎", "rewrite selection")
    params = {"command": "tenon.rewrite", "arguments": [action["data"], "spell it"]}
    await client.request("workspace/executeCommand", params).result()
    await until(lambda: document.text == "x = three + four\n")
    previews = client.told("tenon/preview")
    assert [each["step"] for each in previews] == [1, 2, 3]
    assert [each["text"] for each in previews] == ["three··", "three +·", "three + four"]
    assert all(each["range"] == {"start": place(0, 4), "end": place(0, 9)} for each in previews)
    assert {(each["uri"], each["version"]) for each in previews} == {(document.uri, 1)}
    assert client.script.calls()[-1]["prefix"].endswith("x = ")


@on_loop
async def test_a_refinement_is_not_shown_for_its_pieces_have_no_place(client: PluginClient) -> None:
    client.script.says("3")
    _, action = await action_on(client, "x = ⟦1 + 2⟧⏎", "refine selection (light)")
    await client.request("codeAction/resolve", action).reply()
    assert client.told("tenon/preview") == []


@on_loop
async def test_a_rewrite_can_be_cancelled_while_it_runs(client: PluginClient) -> None:
    client.script.says("3", hang=True)
    document, action = await action_on(client, "x = ⟦1 + 2⟧⏎", "rewrite selection")
    params = {"command": "tenon.rewrite", "arguments": [action["data"], ""]}
    pending = client.request("workspace/executeCommand", params)
    await until(client.script.calls)
    pending.cancel()
    assert await pending.error_code() == CANCELLED
    assert document.text == "x = 1 + 2\n"


@on_loop
async def test_who_does_not_ask_for_it_is_told_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path / "plain")
    client.folder.mkdir()
    await client.start()
    client.script.says("three")
    document, action = await action_on(client, "x = ⟦1 + 2⟧⏎", "rewrite selection")
    params = {"command": "tenon.rewrite", "arguments": [action["data"], ""]}
    await client.request("workspace/executeCommand", params).result()
    await until(lambda: document.text == "x = three\n")
    assert not {"tenon/preview", "didChangeStatus"} & {each["method"] for each in client.notifications}
    assert await client.stop() == 0


# The page of a trace


@on_loop
async def test_a_trace_is_a_page_that_loads_nothing(client: PluginClient) -> None:
    client.script.says("a + b")
    document, offset = client.open_at("x = █⏎")
    page = await trace(client, document.uri, document.position(offset)).result()
    assert page.startswith("<!doctype html>")
    assert '"texts": ["x = "' in page
    assert "http" not in page.replace("http-equiv", "")
    assert document.text == "x = \n"


@on_loop
async def test_where_nothing_may_be_filled_there_is_no_trace_and_a_message(client: PluginClient) -> None:
    client.script.says("secret")
    document, offset = client.open_at("KEY=█", uri=f"{client.folder.as_uri()}/.env")
    assert await trace(client, document.uri, document.position(offset)).result() is None
    assert client.messages_to_user() == ["Tenon: nothing is filled here (excluded)"]
    assert client.script.calls() == []


@pytest.mark.parametrize("position", [None, {}, {"line": "a", "character": 0}, [0, 0]])
@on_loop
async def test_a_trace_without_a_position_is_refused(client: PluginClient, position: object) -> None:
    document = client.open("x = \n")
    with pytest.raises(RefusedError) as refused:
        await trace(client, document.uri, position).result()
    assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize("line", [-1, 10**9])
@on_loop
async def test_a_trace_far_outside_of_the_document_fails_no_one(client: PluginClient, line: int) -> None:
    client.script.says("a")
    document = client.open("x = \n")
    await trace(client, document.uri, {"line": line, "character": line}).reply()
    assert await trace(client, document.uri, {"line": 0, "character": 4}).result()


def place(line: int, character: int) -> Json:
    return {"line": line, "character": character}
