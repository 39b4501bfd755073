"""The whole way with the embedded model: a real server, a real engine process, real weights."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.lsp.client import INVOKED, Client
from tests.lsp.connection import on_loop, run
from tests.lsp.document import at_cursor

from tenon_engine.diffusion import DiffusionModel
from tenon_engine.models.qwen2 import KeyValues

pytestmark = pytest.mark.weights

COMMAND = [sys.executable, "-m", "tenon_engine", "--log-level", "info", "lsp"]
TEMPERATURES = '''def mean(values: list[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def to_celsius(fahrenheit: float) -> float:
    """Convert a temperature."""
    return █ * 5 / 9


def to_fahrenheit(celsius: float) -> float:
    return celsius * 9 / 5 + 32
'''


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory, embedded: DiffusionModel[KeyValues]) -> Iterator[Client]:
    """A server with the model that a user gets; the fixture before it has fetched the weights."""
    client = Client(tmp_path_factory.mktemp("editor"), settings={"deadlineMs": 60_000})
    run(client.start(COMMAND))
    yield client
    assert run(client.stop()) == 0
    assert "Traceback" not in client.log()


@on_loop
async def test_the_middle_of_a_line_is_filled(editor: Client) -> None:
    document, offset = editor.open_at(TEMPERATURES)
    items = await editor.ask(document, offset, INVOKED)
    assert items
    assert all(item["range"]["start"] == item["range"]["end"] for item in items)
    editor.accept(document, items[0])
    compile(document.text, "temperatures.py", "exec")
    assert "fahrenheit - 32" in document.text


@on_loop
async def test_typing_along_needs_no_engine(editor: Client) -> None:
    document, offset = editor.open_at(TEMPERATURES)
    (item,) = await editor.ask(document, offset)
    first = item["insertText"][:3]
    offset = editor.type(document, offset, first)
    (rest,) = await editor.ask(document, offset)
    assert first + rest["insertText"] == item["insertText"]


@on_loop
async def test_marked_holes_are_filled_together(editor: Client) -> None:
    text, _ = at_cursor("█def area(width, height):\n    return ___ * ___\n\n\nprint(area(2, 3))\n")
    document = editor.open(text)
    span = document.span(0, len(text))
    params = {"textDocument": {"uri": document.uri}, "range": span, "context": {"diagnostics": []}}
    actions = await editor.request("textDocument/codeAction", params).result()
    (action,) = [each for each in actions if each["title"] == "Tenon: fill holes"]
    resolved = await editor.request("codeAction/resolve", action).result()
    filled = document.with_workspace_edit(resolved["edit"])
    assert "___" not in filled
    compile(filled, "area.py", "exec")
