"""What users report about settings, secrets, notebooks and editors without inline completion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lsp import invariants
from tests.lsp.client import AUTOMATIC, INVOKED, Client, Profile, running
from tests.lsp.connection import on_loop, run
from tests.lsp.document import Document, Json, show

SECRET = "abc123secret"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("editor")
    (folder / ".gitignore").write_text("build/\n*.generated.py\n", encoding="utf-8")
    yield from running(folder)


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


@pytest.fixture(scope="module")
def with_list(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """An editor that only knows completion lists, and indents inserted lines unless told not to."""
    yield from running(tmp_path_factory.mktemp("list"), Profile(inline=False))


@pytest.fixture(scope="module")
def reindenting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """An editor that only knows completion lists, and always indents inserted lines."""
    yield from running(tmp_path_factory.mktemp("reindenting"), Profile(inline=False, insert_text_modes=(2,)))


def file_uri(client: Client, name: str) -> str:
    return f"{client.folder.as_uri()}/{name}"


async def offered(client: Client, name: str, trigger: int = AUTOMATIC, language: str = "python") -> bool:
    """Whether anything is offered in a file of that name."""
    uri = name if ":" in name else file_uri(client, name)
    client.script.says("1")
    document, offset = client.open_at("x = █", language, uri)
    items = await client.ask(document, offset, trigger)
    client.close(document)
    return bool(items)


# Where


@pytest.mark.parametrize("uri", ["vscode-scm:git/scm0/input", "output:x", "git:/a.py"])
@on_loop
async def test_u34_no_suggestion_in_what_is_no_file_to_write(client: Client, uri: str) -> None:
    assert not await offered(client, uri, language="plaintext")
    assert client.script.calls() == []


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "a.py"])
@on_loop
async def test_u34_suggestions_in_files_saved_or_not(client: Client, uri: str) -> None:
    assert await offered(client, uri)


@on_loop
async def test_u36_off_by_language_and_by_glob_and_on_by_hand_without_a_restart(client: Client) -> None:
    assert await offered(client, "notes.md", language="markdown")
    await client.configure({"disabled": {"languages": ["markdown"], "globs": ["**/*.cfg"]}})
    client.script.forget_calls()
    assert not await offered(client, "notes.md", language="markdown")
    assert not await offered(client, "setup.cfg", language="ini")
    assert client.script.calls() == []
    assert await offered(client, "notes.md", INVOKED, language="markdown")
    assert await offered(client, "setup.cfg", INVOKED, language="ini")
    await client.configure({})
    assert await offered(client, "setup.cfg", language="ini")


@on_loop
async def test_u36_an_editor_may_also_send_its_settings(client: Client) -> None:
    for languages, expected in ((["markdown"], False), ([], True)):
        settings: Json = client.settings | {"disabled": {"languages": languages}}
        client.notify("workspace/didChangeConfiguration", {"settings": {"tenon": settings}})
        assert await offered(client, "notes.md", language="markdown") is expected


@on_loop
async def test_everything_automatic_can_be_off(client: Client) -> None:
    await client.configure({"enabled": False})
    assert not await offered(client, "a.py")
    assert await offered(client, "a.py", INVOKED)


@on_loop
async def test_a_wrong_setting_is_named_and_its_default_holds(client: Client) -> None:
    await client.configure({"multiline": "sometimes", "debunceMs": 3})
    assert await offered(client, "a.py")
    assert any("multiline" in message for message in client.messages_to_user())
    assert "debunceMs" in client.log()


@on_loop
async def test_what_is_wrong_with_settings_is_said_once_until_it_was_right_again(client: Client) -> None:
    for debounce_ms, said in ((-1, 1), (-1, 1), (300, 1), (-1, 2)):
        await client.configure({"debounceMs": debounce_ms})
        assert await offered(client, "a.py")
        assert sum("debounceMs" in message for message in client.messages_to_user()) == said


@on_loop
async def test_why_an_answer_was_not_shown_is_in_the_log_without_the_text(client: Client) -> None:
    await client.configure({"minConfidence": 0.3})
    for answer, why in (
        ({"raw": "secretive(1)", "confidence": 0.2}, "no suggestion: confidence 0.20 is below 0.30"),
        ({"raw": ""}, "no suggestion: blank"),
    ):
        client.script.says(**answer)
        document, offset = client.open_at("x = █", "python", file_uri(client, "a.py"))
        assert not await client.ask(document, offset)
        client.close(document)
        assert why in client.log()
    assert "secretive" not in client.log()


PARAGRAPHS = [
    "",
    "We met on a fine day.",
    "Kill the process, then drop the table.",
    "a | b",
    "It costs 3 < 4.",
]


@pytest.mark.parametrize("earlier", PARAGRAPHS)
@on_loop
async def test_u38_an_earlier_paragraph_silences_nothing(client: Client, earlier: str) -> None:
    client.script.says("fills holes.")
    document, offset = client.open_at(f"# Title⏎⏎{earlier}⏎⏎The tool █⏎", "markdown")
    (item,) = await client.ask(document, offset)
    assert invariants.check(document, offset, [item]) == [show(f"# Title⏎⏎{earlier}⏎⏎The tool fills holes.⏎")]


# Secrets


@on_loop
async def test_u47_secrets_and_ignored_files_are_never_context(client: Client) -> None:
    client.open(f"TOKEN={SECRET}\ndef connect(token): ...\n", "dotenv", file_uri(client, ".env"))
    client.open(f"def connect(token):\n    return '{SECRET}'\n", uri=file_uri(client, "build/made.py"))
    client.open("def connect(token):\n    return plain_helper\n", uri=file_uri(client, "helper.py"))
    client.script.says("(token)")
    document, offset = client.open_at("token = 1⏎x = connect█⏎")
    await client.ask(document, offset)
    (call,) = client.script.calls()
    assert "x = connect" in call["prefix"]
    assert SECRET not in json.dumps(call)
    assert [
        file["path"] for file in call["extra"] if "made.py" in file["path"] or ".env" in file["path"]
    ] == []
    assert "plain_helper" in json.dumps(call["extra"])  # the reason is not that nothing is ever read


@pytest.mark.parametrize(
    "name", [".env", "build/made.py", "a.generated.py", ".env.local", "id_rsa", "server.pem"]
)
@on_loop
async def test_u47_nothing_is_offered_in_an_excluded_file(client: Client, name: str) -> None:
    assert not await offered(client, name)
    assert not await offered(client, name, INVOKED)
    assert client.script.calls() == []


@on_loop
async def test_u48_ones_own_list_adds_to_the_built_in_one(client: Client) -> None:
    await client.configure({"exclude": []})
    assert not await offered(client, ".env")
    await client.configure({"exclude": ["*.draft.py"]})
    assert not await offered(client, ".env")
    assert not await offered(client, "a.draft.py", INVOKED)
    await client.configure({"exclude": ["!**/.env.example"]})
    assert await offered(client, ".env.example")
    assert not await offered(client, ".env")


# Notebooks


@on_loop
async def test_u41_earlier_cells_of_a_notebook_are_context(client: Client) -> None:
    texts = [("markdown", 1, "Load the table"), ("python", 2, "df = load()"), ("python", 2, "df.")]
    cells = [
        Document(f"vscode-notebook-cell:/n.ipynb#W{n}", t[0], t[2], client.encoding)
        for n, t in enumerate(texts)
    ]
    notebook: Json = {
        "uri": file_uri(client, "n.ipynb"),
        "notebookType": "jupyter-notebook",
        "version": 1,
        "cells": [
            {"kind": kind, "document": cell.uri} for cell, (_, kind, _) in zip(cells, texts, strict=True)
        ],
    }
    items = [{"uri": c.uri, "languageId": c.language, "version": 1, "text": c.text} for c in cells]
    client.notify("notebookDocument/didOpen", {"notebookDocument": notebook, "cellTextDocuments": items})
    client.script.says("head()")
    last = cells[-1]
    offers = await client.ask(last, len("df."))
    assert invariants.check(last, len("df."), offers) == ["df.head()"]
    (call,) = client.script.calls()
    assert "df = load()" in call["prefix"]
    assert call["prefix"].endswith("df.")
    assert call["language"] == "python"
    about = [line for line in call["prefix"].splitlines() if "Load the table" in line]
    assert all(line.startswith("#") for line in about)

    change: Json = {"document": {"uri": cells[1].uri, "version": 2}, "changes": [{"text": "df = read_all()"}]}
    event = {
        "notebookDocument": {"uri": notebook["uri"], "version": 2},
        "change": {"cells": {"textContent": [change]}},
    }
    client.notify("notebookDocument/didChange", event)
    client.script.forget_calls()
    await client.ask(last, len("df."), INVOKED)
    assert ["df = read_all()" in call["prefix"] for call in client.script.calls()] == [True]
    closing = {
        "notebookDocument": {"uri": notebook["uri"]},
        "cellTextDocuments": [{"uri": c.uri} for c in cells],
    }
    client.notify("notebookDocument/didClose", closing)


# Editors without inline completion


def test_u44_u60_an_editor_gets_one_of_the_two_ways(client: Client, with_list: Client) -> None:
    assert "inlineCompletionProvider" in client.capabilities
    assert not client.capabilities.get("completionProvider")
    assert not with_list.capabilities.get("inlineCompletionProvider")
    assert "completionProvider" in with_list.capabilities


async def complete(client: Client, document: Document, offset: int) -> Json:
    context: Json = {"context": {"triggerKind": 1}}
    result: Any = await client.request(
        "textDocument/completion", client.place(document, offset) | context
    ).result()
    assert result["isIncomplete"] is True
    assert len(result["items"]) <= 1
    return dict(result)


LISTED = [
    ("total = █ + tax", "price * qty"),
    ("def f():⏎␣␣␣␣█⏎g()", "a = 1"),
    ("say('B█')", "ye"),
    ("int█ x", "␣"),
]


@pytest.mark.parametrize(("marked", "raw"), LISTED)
@on_loop
async def test_u60_the_item_of_the_list_is_the_inline_item(
    client: Client, with_list: Client, marked: str, raw: str
) -> None:
    for each in (client, with_list):
        each.script.says(raw)
    document, offset = client.open_at(marked)
    inline = await client.ask(document, offset)
    listed_document, _ = with_list.open_at(marked)
    listed = (await complete(with_list, listed_document, offset))["items"]
    with_list.close(listed_document)
    edits = [(item["textEdit"]["range"], item["textEdit"]["newText"]) for item in listed]
    assert edits == [(item["range"], item["insertText"]) for item in inline]
    invariants.check(listed_document, offset, listed)


def inserted_by_an_editor_that_indents(item: Json, document: Document, default: int | None) -> str:
    """What accepting gives: in mode 2 every line after the first gets the indentation of the line at the cursor."""
    edit = item["textEdit"]
    new: str = edit["newText"]
    if item.get("insertTextMode", default) == 2:
        line = document.text[: document.offset(edit["range"]["start"])].rpartition("\n")[2]
        new = new.replace("\n", "\n" + line[: len(line) - len(line.lstrip())])
    return document.with_item({"range": edit["range"], "insertText": new})


@pytest.mark.parametrize("profile", ["with_list", "reindenting"])
@on_loop
async def test_u04_a_line_is_indented_once_whoever_indents_it(
    with_list: Client, reindenting: Client, profile: str
) -> None:
    editor = {"with_list": with_list, "reindenting": reindenting}[profile]
    editor.script.says("m = a[0]⏎␣␣␣␣return m")
    document, offset = editor.open_at("def top(a):⏎␣␣␣␣█")
    (item,) = (await complete(editor, document, offset))["items"]
    assert item.get("insertTextMode", 2) in editor.profile.insert_text_modes
    applied = inserted_by_an_editor_that_indents(item, document, editor.profile.default_insert_text_mode)
    assert applied == "def top(a):\n    m = a[0]\n    return m"


@on_loop
async def test_u51_a_model_of_nothing_but_control_tokens_is_reported_to_who_asks_by_hand(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "editor"
    folder.mkdir()
    client = await Client(folder).start()
    client.script.says("<|fim_pad|><|fim_pad|>")
    document, offset = client.open_at("x = █")
    for key in "abc":
        offset = client.type(document, offset, key)
        assert await client.ask(document, offset) == []
    before = len(client.messages_to_user())
    assert before <= 1
    assert await client.ask(document, offset, INVOKED) == []
    assert 1 <= len(client.messages_to_user()) <= 2
    assert await client.stop() == 0
