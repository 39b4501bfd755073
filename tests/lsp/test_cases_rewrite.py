"""What users report about rewriting a selection, replayed through the code actions of the real server.

`⟦…⟧` is the selection; the rest of the notation is that of `test_cases`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lsp.client import Client, running
from tests.lsp.connection import ABANDONED, CANCELLED, RefusedError, on_loop, run, until
from tests.lsp.document import Document, Json, StaleEditError, at_selection, show

REWRITE, REFINE, FILL = "Tenon: rewrite selection", "Tenon: refine selection", "Tenon: fill holes"
FENCE = "```"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"))


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


async def offered(client: Client, document: Document, start: int, end: int, *only: str) -> list[Json]:
    """The code actions of ours for a selection."""
    context: Json = {"diagnostics": [], "triggerKind": 1} | ({"only": [*only]} if only else {})
    place = {"textDocument": {"uri": document.uri}, "range": document.span(start, end)}
    actions = await client.request("textDocument/codeAction", place | {"context": context}).result()
    return [action for action in actions or [] if action["title"].startswith("Tenon:")]


async def open_with_action(client: Client, marked: str, title: str, language: str) -> tuple[Document, Json]:
    """A document with a selection, and the first action of that title."""
    text, start, end = at_selection(marked)
    document = client.open(text, language)
    actions = await offered(client, document, start, end)
    return document, next(action for action in actions if action["title"].startswith(title))


async def resolve(client: Client, action: Json) -> Json:
    """The resolved action."""
    return dict(await client.request("codeAction/resolve", action).result())


async def rewritten(client: Client, marked: str, title: str = REWRITE, language: str = "python") -> str:
    """The text after an action on a selection; what is outside must be as it was."""
    document, action = await open_with_action(client, marked, title, language)
    edit = (await resolve(client, action))["edit"]
    _, start, end = at_selection(marked)
    for change in edit["documentChanges"][0]["edits"]:
        first, last = document.offsets(change["range"])
        assert start <= first <= last <= end
    return document.with_workspace_edit(edit)


NESTED = "def f(a):⏎␣␣␣␣⟦if a:⏎␣␣␣␣␣␣␣␣b()⟧⏎␣␣␣␣d()⏎"
NESTED_AFTER = "def f(a):⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()⏎␣␣␣␣d()⏎"
GUIDE = f"# Guide⏎⏎⟦Run:⏎⏎{FENCE}sh⏎npm test⏎{FENCE}⏎⏎Done⟧⏎"
GUIDE_NEW = f"First run:⏎⏎{FENCE}sh⏎npm ci⏎{FENCE}⏎⏎and then:⏎⏎{FENCE}sh⏎npm test⏎{FENCE}⏎⏎Done"

REWRITES = [
    ("U37", "markdown", GUIDE, f"{FENCE}markdown⏎{GUIDE_NEW}⏎{FENCE}", f"# Guide⏎⏎{GUIDE_NEW}⏎"),
    ("U37b", "markdown", GUIDE, GUIDE_NEW, f"# Guide⏎⏎{GUIDE_NEW}⏎"),
    ("U59a", "go", "⟦func f() {⏎⇥a()⏎}⟧", "func f() {⏎␣␣␣␣b()⏎}", "func f() {⏎⇥b()⏎}"),
    ("U59b", "python", NESTED, "if a:⏎␣␣␣␣c()", NESTED_AFTER),
    ("U59b2", "python", NESTED, "if a:⏎␣␣␣␣␣␣␣␣c()", NESTED_AFTER),
    (
        *("U59b3", "plaintext", "␣␣␣␣⟦if a:⏎␣␣␣␣␣␣␣␣b()⟧"),
        *("if a:⏎␣␣␣␣c()", "␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()"),
    ),
    ("U59c", "python", "x = ⟦1 + 2⟧  # keep", "3", "x = 3  # keep"),
    (
        *("U59d", "python", "⟦def f():⏎␣␣␣␣a()⟧⏎", "def f():⏎␣␣␣␣a()⏎␣␣␣␣⏎␣␣␣␣b()"),
        "def f():⏎␣␣␣␣a()⏎⏎␣␣␣␣b()⏎",
    ),
    ("whole lines", "python", "a = 1⏎⟦b = 2⏎⟧c = 3⏎", "b = 4⏎", "a = 1⏎b = 4⏎c = 3⏎"),
    ("emoji", "python", "s = '🚀'; x = ⟦1⟧ # 🚀⏎", "2", "s = '🚀'; x = 2 # 🚀⏎"),
]


@pytest.mark.parametrize(
    ("language", "marked", "raw", "after"),
    [each[1:] for each in REWRITES],
    ids=[each[0] for each in REWRITES],
)
@on_loop
async def test_case(client: Client, language: str, marked: str, raw: str, after: str) -> None:
    client.script.says(raw)
    assert await rewritten(client, marked, language=language) == show(after)


@pytest.mark.parametrize(
    ("language", "marked", "raw", "after"),
    [each[1:] for each in REWRITES if "⏎" in each[2]],
    ids=[each[0] for each in REWRITES if "⏎" in each[2]],
)
@on_loop
async def test_case_with_crlf(client: Client, language: str, marked: str, raw: str, after: str) -> None:
    client.script.says(raw)
    result = await rewritten(client, marked.replace("⏎", "␍⏎"), language=language)
    assert result == show(after.replace("⏎", "␍⏎"))


@pytest.mark.parametrize(
    ("language", "marked"),
    [
        ("html", "<p>␍⏎<script>let q = ⟦1⟧</script>␍⏎"),
        ("html", "<script>let q = ⟦1⟧</script>␍⏎"),
        ("markdown", f"# a␍⏎␍⏎{FENCE}python␍⏎q = ⟦1⟧"),
    ],
)
@on_loop
async def test_in_a_region_without_a_line_end_a_text_has_the_documents(
    client: Client, language: str, marked: str
) -> None:
    client.script.says("2⏎b = 3")
    document, action = await open_with_action(client, marked, REWRITE, language)
    edit = (await resolve(client, action))["edit"]
    after = document.with_workspace_edit(edit)
    assert "\r\n" in edit["documentChanges"][0]["edits"][0]["newText"]
    assert "\n" not in after.replace("\r\n", "")


@on_loop
async def test_the_engine_sees_what_is_around_the_selection_and_only_when_an_action_is_chosen(
    client: Client,
) -> None:
    client.script.says("3")
    _, action = await open_with_action(client, "x = ⟦1 + 2⟧  # keep", REWRITE, "python")
    assert "edit" not in action
    assert client.script.calls() == []
    await resolve(client, action)
    (call,) = client.script.calls()
    assert (call["prefix"], call["suffix"]) == ("x = ", "  # keep")


@on_loop
async def test_u60_a_rewrite_is_one_edit_of_one_version_and_touches_only_the_lines_that_change(
    client: Client,
) -> None:
    client.script.says("a = 1⏎b = 5⏎c = 3")
    document, action = await open_with_action(client, "⟦a = 1⏎b = 2⏎c = 3⟧⏎", REWRITE, "python")
    edit = (await resolve(client, action))["edit"]
    (change,) = edit["documentChanges"]
    assert change["textDocument"] == {"uri": document.uri, "version": document.version}
    assert {each["range"][side]["line"] for each in change["edits"] for side in ("start", "end")} <= {1, 2}
    assert document.with_workspace_edit(edit) == "a = 1\nb = 5\nc = 3\n"


# Which actions, and when


@on_loop
async def test_the_actions_for_a_selection_and_their_kinds(client: Client) -> None:
    document = client.open("x = 1 + 2\n")
    actions = await offered(client, document, 4, 9)
    titles = [action["title"] for action in actions]
    assert REWRITE in titles
    assert {"light", "medium", "strong"} <= {
        word
        for title in titles
        if title.startswith(REFINE)
        for word in title.replace("(", " ").replace(")", " ").split()
    }
    assert FILL not in titles
    assert all(action["kind"].startswith("refactor.rewrite.tenon") for action in actions)
    assert await offered(client, document, 4, 9, "quickfix") == []
    assert await offered(client, document, 4, 9, "refactor.rewrite") == actions
    assert client.script.calls() == []


@on_loop
async def test_without_a_selection_nothing_is_rewritten(client: Client) -> None:
    document = client.open("x = 1 + 2\n")
    titles = [action["title"] for action in await offered(client, document, 4, 4)]
    assert [title for title in titles if title.startswith((REWRITE, REFINE, FILL))] == []


@on_loop
async def test_u47_nothing_of_an_excluded_file_is_rewritten(client: Client) -> None:
    document = client.open("TOKEN=abc\n", "dotenv", f"{client.folder.as_uri()}/.env")
    assert await offered(client, document, 0, 9) == []


@pytest.mark.parametrize("strength", ["light", "medium", "strong"])
@on_loop
async def test_a_refinement_stays_inside_the_selection(client: Client, strength: str) -> None:
    client.script.says("3")
    document = client.open("x = 1 + 2  # keep\n")
    actions = await offered(client, document, 4, 9)
    action = next(each for each in actions if each["title"].startswith(REFINE) and strength in each["title"])
    edit = (await resolve(client, action)).get("edit")
    after = document.with_workspace_edit(edit) if edit else document.text
    assert after.startswith("x = ")
    assert after.endswith("  # keep\n")


# Holes


HOLES = [
    ("x = ___⏎y = TODO_FILL⏎", "x = 1⏎y = 1⏎", {}),
    ("def __init__(self):⏎␣␣␣␣self.a = ___⏎", "def __init__(self):⏎␣␣␣␣self.a = 1⏎", {}),
    ("# 🚀⏎s = '🚀'; x = ___; y = ___ # 🚀⏎", "# 🚀⏎s = '🚀'; x = 1; y = 1 # 🚀⏎", {}),
    ("x = ???⏎y = TODO_FILL⏎", "x = 1⏎y = TODO_FILL⏎", {"holeMarkers": ["???"]}),
    ("x = ___␍⏎y = ___␍⏎", "x = 1␍⏎y = 1␍⏎", {}),
]


@pytest.mark.parametrize(("before", "after", "settings"), HOLES)
@on_loop
async def test_every_hole_of_the_document_is_filled_without_a_selection(
    client: Client, before: str, after: str, settings: Json
) -> None:
    await client.configure(settings)
    client.script.says("1")
    document, action = await open_with_action(client, f"⟦⟧{before}", FILL, "python")
    assert document.with_workspace_edit((await resolve(client, action))["edit"]) == show(after)


@on_loop
async def test_of_a_selection_only_its_own_holes_are_filled(client: Client) -> None:
    client.script.says("1")
    assert await rewritten(client, "⟦x = ___⟧⏎y = ___⏎", FILL) == "x = 1\ny = ___\n"


@on_loop
async def test_a_hole_the_model_has_nothing_for_keeps_its_marker(client: Client) -> None:
    client.script.says("")
    document, action = await open_with_action(client, "⟦⟧x = ___⏎", FILL, "python")
    edit = await edit_or_none(client, action)
    assert edit is None or document.with_workspace_edit(edit) == document.text


# What does not go as planned


async def edit_or_none(client: Client, action: Json) -> Json | None:
    """The edit of an action, None when there is none or the request is refused."""
    try:
        edit: Json | None = (await resolve(client, action)).get("edit")
    except RefusedError:
        return None
    return edit


@on_loop
async def test_u59e_an_action_from_before_a_change_edits_nothing(client: Client) -> None:
    client.script.says("3")
    document, action = await open_with_action(client, "x = ⟦1 + 2⟧⏎", REWRITE, "python")
    client.type(document, 0, "# new\n")
    await refuses(client, document, action)


@on_loop
async def test_u59e_a_change_while_the_model_writes_ends_the_rewrite(client: Client) -> None:
    client.script.says("3", hang=True)
    document, action = await open_with_action(client, "x = ⟦1 + 2⟧⏎", REWRITE, "python")
    pending = client.request("codeAction/resolve", action)
    await until(client.script.calls)
    client.type(document, 0, "# new\n")
    reply = await pending.reply()
    assert "error" in reply or not reply["result"].get("edit")


@on_loop
async def test_u59e_an_edit_that_comes_too_late_is_refused_by_its_version(client: Client) -> None:
    client.script.says("3")
    document, action = await open_with_action(client, "x = ⟦1 + 2⟧⏎", REWRITE, "python")
    edit = (await resolve(client, action))["edit"]
    client.type(document, 0, "# new\n")
    with pytest.raises(StaleEditError):
        document.with_workspace_edit(edit)


async def refuses(client: Client, document: Document, action: Json) -> None:
    edit = await edit_or_none(client, action)
    if edit is not None:
        with pytest.raises(StaleEditError):
            document.with_workspace_edit(edit)


@on_loop
async def test_a_cancelled_rewrite_stops_the_engine(client: Client) -> None:
    client.script.says("3", hang=True)
    document, action = await open_with_action(client, "x = ⟦1 + 2⟧⏎", REWRITE, "python")
    pending = client.request("codeAction/resolve", action)
    await until(client.script.calls)
    pending.cancel()
    assert await pending.error_code() == CANCELLED
    client.script.says("3")
    edit = (await resolve(client, action))["edit"]
    assert document.with_workspace_edit(edit) == "x = 3\n"


@on_loop
async def test_the_progress_of_a_rewrite_has_an_end_and_can_be_cancelled(client: Client) -> None:
    client.script.says("3", hang=True)
    _, action = await open_with_action(client, "x = ⟦1 + 2⟧⏎", REWRITE, "python")
    pending = client.request("codeAction/resolve", action)
    await until(client.script.calls)
    await until(lambda: progress(client, "begin"))
    (begin,) = progress(client, "begin")
    assert begin["value"]["cancellable"] is True
    client.notify("window/workDoneProgress/cancel", {"token": begin["token"]})
    reply = await pending.reply()
    assert reply.get("error", {}).get("code") in ABANDONED or not reply["result"].get("edit")
    await until(lambda: progress(client, "end"))
    assert [each["token"] for each in progress(client, "end")] == [begin["token"]]


def progress(client: Client, kind: str) -> list[Json]:
    """The progress notifications of one kind."""
    sent = [message["params"] for message in client.notifications if message["method"] == "$/progress"]
    return [params for params in sent if params["value"]["kind"] == kind]


@on_loop
async def test_a_failure_of_the_model_edits_nothing_and_is_told(client: Client) -> None:
    client.script.says(fail="out of memory")
    _, action = await open_with_action(client, "x = ⟦1 + 2⟧⏎", REWRITE, "python")
    reply = await client.request("codeAction/resolve", action).reply()
    assert not (reply.get("result") or {}).get("edit")
    said = reply.get("error", {}).get("message", "") + " ".join(client.messages_to_user())
    assert "out of memory" in said
    client.script.says("3")
    assert "edit" in await resolve(client, action)
