"""What users report about typing along, accepting, deleting and waiting: cases that are a conversation."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.lsp import invariants
from tests.lsp.client import INVOKED, Client, Profile, running
from tests.lsp.connection import ABANDONED, CANCELLED, Pending, on_loop, run, until
from tests.lsp.document import at_cursor

PARALLEL = 8  # fills that an engine runs at a time


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"))


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


@pytest.fixture(scope="module")
def in_bytes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("helix"), Profile(encodings=("utf-8",)))


async def asked(client: Client, count: int = 1) -> None:
    """Return when the engine has been called."""
    await until(lambda: len(client.script.calls()) >= count)


# Accepting


@on_loop
async def test_u11_an_accepted_line_is_not_offered_again(client: Client) -> None:
    client.script.says("y = 2")
    document, offset = client.open_at("x = 1⏎█")
    (item,) = await client.ask(document, offset)
    offset = client.accept(document, item)
    offset = client.type(document, offset, "\n")
    assert document.text == "x = 1\ny = 2\n"
    assert await client.ask(document, offset) == []


@on_loop
async def test_u26_typing_along_goes_on_with_the_same_text_without_the_engine(client: Client) -> None:
    client.script.says("set")
    document, offset = client.open_at("sun█", "plaintext")
    assert len(await client.ask(document, offset)) == 1
    client.script.forget_calls()
    offset = client.type(document, offset, "s")
    items = await client.ask(document, offset)
    assert invariants.check(document, offset, items) == ["sunset"]
    assert client.script.calls() == []


@on_loop
async def test_u26_typing_something_else_asks_again(client: Client) -> None:
    client.script.says("set")
    document, offset = client.open_at("sun█", "plaintext")
    assert len(await client.ask(document, offset)) == 1
    client.script.says("ower")
    offset = client.type(document, offset, "fl")
    assert invariants.check(document, offset, await client.ask(document, offset)) == ["sunflower"]


@on_loop
async def test_u57_accepting_a_word_leaves_the_rest_of_the_item(client: Client) -> None:
    client.script.says("alpha + beta")
    document, offset = client.open_at("foo(█, z)")
    assert len(await client.ask(document, offset)) == 1
    client.script.forget_calls()
    offset = client.type(document, offset, "alpha")
    items = await client.ask(document, offset)
    assert invariants.check(document, offset, items) == ["foo(alpha + beta, z)"]
    assert client.script.calls() == []


@on_loop
async def test_u57_accepting_a_line_leaves_the_other_lines(client: Client) -> None:
    client.script.says("a = 1⏎␣␣␣␣b = 2")
    document, offset = client.open_at("def f():⏎␣␣␣␣█")
    assert len(await client.ask(document, offset)) == 1
    client.script.forget_calls()
    offset = client.type(document, offset, "a = 1\n")
    items = await client.ask(document, offset)
    assert invariants.check(document, offset, items) == ["def f():\n    a = 1\n    b = 2"]
    assert client.script.calls() == []


@on_loop
async def test_u57_alternatives_differ_and_keep_their_order(client: Client) -> None:
    client.script.says("alpha + beta")
    document, offset = client.open_at("foo(█, z)")
    first = await client.ask(document, offset, INVOKED)
    assert 1 <= len(first) <= 3
    assert client.script.calls()[0]["candidates"] == 3
    invariants.check(document, offset, first)
    assert await client.ask(document, offset, INVOKED) == first


# Deleting


@pytest.mark.parametrize(("end", "new"), [(9, ""), (9, "ab")], ids=["removed", "shorter"])
@on_loop
async def test_u32_nothing_is_offered_for_what_was_just_taken_away(
    client: Client, end: int, new: str
) -> None:
    client.script.says("later")
    document = client.open("x = stale\n")
    client.change(document, 4, end, new)
    offset = 4 + len(new)
    assert await client.ask(document, offset) == []
    assert client.script.calls() == []
    assert len(await client.ask(document, offset, INVOKED)) == 1
    client.script.says("_end")
    offset = client.type(document, offset, "q")
    assert len(await client.ask(document, offset)) == 1


# Positions


@on_loop
async def test_u16_characters_are_counted_in_bytes_where_that_was_agreed(in_bytes: Client) -> None:
    assert in_bytes.encoding == "utf-8"
    in_bytes.script.says("1")
    document = in_bytes.open("éxy", "plaintext")
    change = {
        "range": {"start": {"line": 0, "character": 2}, "end": {"line": 0, "character": 2}},
        "text": "q",
    }
    in_bytes.send(in_bytes.changed(document, change))
    document.text = "éqxy"
    assert document.position(2) == {"line": 0, "character": 3}
    await in_bytes.ask(document, 2, INVOKED)
    assert [(call["prefix"], call["suffix"]) for call in in_bytes.script.calls()] == [("éq", "xy")]


@on_loop
async def test_u17_an_emoji_before_the_cursor_shifts_nothing(client: Client) -> None:
    client.script.says("go")
    document, offset = client.open_at('t="🚀█"')
    (item,) = await client.ask(document, offset)
    invariants.check(document, offset, [item])
    assert item["range"]["start"] == {"line": 0, "character": 5}
    assert client.script.calls()[0]["prefix"].endswith('t="🚀')


@on_loop
async def test_u17_emoji_on_earlier_lines_shift_nothing(client: Client) -> None:
    client.script.says("1")
    document, offset = client.open_at("#🚀🚀⏎k = █")
    (item,) = await client.ask(document, offset)
    assert item["range"]["start"] == {"line": 1, "character": 4}
    assert client.script.calls()[0]["prefix"].endswith("k = ")


@on_loop
async def test_u19_crlf_changes_nothing_but_the_line_ends(client: Client) -> None:
    client.script.says("a = 1⏎␣␣␣␣b = 2")
    marked = "def f():⏎␣␣␣␣█⏎g()"
    results = []
    for form in (marked, marked.replace("⏎", "␍⏎")):
        document, offset = client.open_at(form)
        results += invariants.check(document, offset, await client.ask(document, offset))
    assert results[0] == "def f():\n    a = 1\n    b = 2\ng()"
    assert results[1] == results[0].replace("\n", "\r\n")
    with_lf, with_crlf = client.script.calls()
    assert (with_lf["prefix"], with_lf["suffix"]) == (with_crlf["prefix"], with_crlf["suffix"])


@on_loop
async def test_u45_of_a_large_file_the_engine_sees_whole_lines_at_the_cursor(client: Client) -> None:
    lines = [f"word{number} is followed by a dozen more words here" for number in range(12_000)]
    before, after = "\n".join(lines[:6_000]) + "\nthe middle ", "\n" + "\n".join(lines[6_000:])
    client.script.says("of it")
    document = client.open(before + after, "plaintext")
    offset = client.type(document, len(before), "part ")
    items = await client.ask(document, offset)
    assert invariants.check(document, offset, items) == [before + "part of it" + after]
    (call,) = client.script.calls()
    prefix, suffix = document.text[:offset], document.text[offset:]
    assert prefix.endswith("\n" + call["prefix"])
    assert suffix.startswith(call["suffix"])
    assert suffix[len(call["suffix"]) - 1 : len(call["suffix"]) + 1].count("\n") == 1
    assert len(call["prefix"] + call["suffix"]) < len(document.text) / 10


@on_loop
async def test_u53_a_hole_inside_a_line_is_offered_a_smaller_canvas(client: Client) -> None:
    client.script.says("1")
    for marked in ("x = █⏎", "x = foo(█, 3)⏎"):
        document, offset = client.open_at(marked)
        await client.ask(document, offset)
    whole, inside = client.script.calls()
    assert inside["max_tokens"] < whole["max_tokens"]


# Stale positions and answers


@on_loop
async def test_u23_a_request_ahead_of_its_change_is_no_error(client: Client) -> None:
    client.script.says("z")
    document = client.open("foo.ba", "javascript")
    ahead = {"textDocument": {"uri": document.uri}, "position": {"line": 0, "character": 7}}
    context = {"context": {"triggerKind": 2}}
    assert await client.request("textDocument/inlineCompletion", ahead | context).items() == []

    early = client.request("textDocument/inlineCompletion", ahead | context)
    client.type(document, 6, "r")
    reply = await early.reply()
    if "error" in reply:
        assert reply["error"]["code"] in ABANDONED
    else:
        invariants.check(document, 7, await early.items())


@on_loop
async def test_u25_a_deleted_last_line_is_never_answered(client: Client) -> None:
    client.script.says("1", hang=True)
    document, offset = client.open_at("x = 1⏎y = █")
    pending = client.inline(document, offset)
    await asked(client)
    client.change(document, 5, len(document.text), "")
    assert await pending.error_code() in ABANDONED


@on_loop
async def test_i4_a_newer_version_ends_the_request_for_the_older_one(client: Client) -> None:
    client.script.says("1", hang=True)
    document, offset = client.open_at("x = █")
    pending = client.inline(document, offset)
    await asked(client)
    offset = client.type(document, offset, "4")
    assert await pending.error_code() in ABANDONED
    client.script.says("2")
    assert len(await client.ask(document, offset)) == 1


@on_loop
async def test_i4_a_newer_request_ends_the_older_one_of_the_same_document(client: Client) -> None:
    client.script.says("1", hang=True)
    document, offset = client.open_at("x = █⏎y = ⏎")
    older = client.inline(document, offset)
    await asked(client)
    client.script.says("2")
    newer = client.inline(document, len(document.text) - 1)
    assert len(await newer.items()) == 1
    assert await older.error_code() in ABANDONED


@on_loop
async def test_i4_a_document_that_was_closed_is_not_answered(client: Client) -> None:
    client.script.says("1", hang=True)
    document, offset = client.open_at("x = █")
    pending = client.inline(document, offset)
    await asked(client)
    client.close(document)
    reply = await pending.reply()
    assert reply.get("error", {}).get("code") in ABANDONED or await pending.items() == []


@on_loop
async def test_u20_cancelled_requests_are_not_executed_one_after_the_other(client: Client) -> None:
    client.script.says("1", hang=True)
    gates = [client.open_at("x = █", uri=f"{client.folder.as_uri()}/gate{n}.py") for n in range(PARALLEL)]
    document, at = client.open_at("y = █")
    held = [client.inline(*gate) for gate in gates]
    await asked(client, PARALLEL)
    prepared = [client.prepare_inline(document, at) for _ in range(5)]
    requests: list[Pending] = [pending for pending, _ in prepared]
    client.script.says("2")
    client.script.forget_calls()
    client.send(*(message for _, message in prepared), *(pending.cancellation() for pending in requests[:4]))
    for pending in held:
        pending.cancel()
    assert {await pending.error_code() for pending in requests[:4]} <= {*ABANDONED}
    assert len(await requests[4].items()) == 1
    assert len(client.script.calls()) <= 2


@on_loop
async def test_u22_a_cancelled_request_stops_the_engine(client: Client) -> None:
    client.script.says("1", hang=True)
    document, offset = client.open_at("x = █")
    for key in "abcdefghij":
        offset = client.type(document, offset, key)
        pending = client.inline(document, offset)
        pending.cancel()
    assert await pending.error_code() == CANCELLED
    client.script.forget_calls()
    pending = client.inline(document, offset)
    await asked(client)
    pending.cancel()
    assert await pending.error_code() == CANCELLED
    client.script.says(" + 1")  # an engine that still hung could not say it
    assert len(await client.ask(document, offset)) == 1


# Waiting


@on_loop
async def test_u28_a_request_by_hand_waits_for_nothing_and_asks_afresh(client: Client) -> None:
    client.script.says("first")
    document, offset = client.open_at("x = █")
    assert len(await client.ask(document, offset)) == 1
    await client.configure({"debounceMs": 4_000})
    client.script.says("second")
    client.script.forget_calls()
    started = time.monotonic()
    items = await client.ask(document, offset, INVOKED)
    assert time.monotonic() - started < 3.0
    assert len(client.script.calls()) == 1
    assert "x = second" in invariants.check(document, offset, items)


@on_loop
async def test_u28_time_outs_disturb_nobody_and_disable_nothing(client: Client) -> None:
    await client.configure({"deadlineMs": 150})
    client.script.says("1", hang=True)
    document, offset = client.open_at("x = █")
    for _ in range(3):
        assert await client.ask(document, offset) == []
    assert client.messages_to_user() == []
    await client.configure({})
    client.script.says("2")
    assert len(await client.ask(document, offset)) == 1


@on_loop
async def test_i6_a_failing_engine_is_no_error_to_the_editor(client: Client) -> None:
    client.script.says(fail="out of memory")
    document, offset = client.open_at("x = █")
    for key in "abc":
        offset = client.type(document, offset, key)
        assert await client.ask(document, offset) == []
    client.script.says(" + 1")
    assert len(await client.ask(document, offset)) == 1
    assert len(client.messages_to_user()) <= 1


@on_loop
async def test_i6_changes_are_taken_while_the_engine_is_busy(client: Client) -> None:
    await client.configure({"deadlineMs": 60_000})
    client.script.says("1", hang=True)
    other, at = client.open_at("x = █")
    pending = client.inline(other, at)
    await asked(client)
    text, offset = at_cursor("y = █⏎")
    document = client.open(text, "plaintext")
    for _ in range(200):
        offset = client.type(document, offset, "z")
    await client.barrier()
    assert not pending.message.done()
    pending.cancel()
    assert await pending.error_code() == CANCELLED
