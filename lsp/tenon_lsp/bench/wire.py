"""Times on the wire: a real server with a scripted model that answers at once, as an editor sees it.

One server for each size of document, with some other documents open and `debounceMs` 0. Between two measurements the
document is put back and the server has read everything.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tenon_lsp.bench.documents import (
    OTHER_DOCUMENTS,
    Keystroke,
    keystrokes,
    long_lines,
    python_document,
    sources,
)
from tenon_lsp.bench.editor import Document, Editor, Json, Reply, ServerLeft, cancellation
from tenon_lsp.bench.figures import Stopwatch, Times

INITIALIZE_TARGET_MS = 500.0
CHANGE_TARGET_MS = 10.0
TYPED_THROUGH_TARGET_MS = 5.0
CANCELLED = -32800
TYPED_THROUGH_KEYS = 8
CANCELLATIONS_AT_MOST = 20
CALL_PATIENCE_S = 10.0


def measure_starts(folder: Path, count: int) -> Times:
    """From the start of the process to the reply to `initialize`."""
    values = []
    for number in range(count + 1):
        place = folder / f"start{number}"
        place.mkdir()
        with Editor(place) as editor:
            values.append(editor.initialize())
    return Times("initialize", values[1:], INITIALIZE_TARGET_MS)  # the first one warms the disk's cache


def measure_editing(folder: Path, line_count: int, keys: int) -> Iterator[Times]:
    """What a user feels who types into a document of so many lines."""
    place = folder / f"lines{line_count}"
    place.mkdir()
    with Editor(place) as editor:
        editor.initialize(debounceMs=0)
        for number, text in enumerate(sources()[:OTHER_DOCUMENTS]):
            editor.open(f"other{number}.py", "python", text)
        document = editor.open("main.py", "python", python_document(line_count))
        _warm_up(editor, document)
        yield from _changes(editor, document, keys, line_count)
        yield from _keystrokes(editor, document, keys, line_count)
        yield from _typed_through(editor, document, keys, line_count)


def measure_cancellation(folder: Path, count: int) -> Iterator[Times]:
    """From a cancellation to its error reply, and to the answer to the next question, while the model hangs."""
    place = folder / "cancellation"
    place.mkdir()
    watch = Stopwatch()
    with Editor(place) as editor:
        editor.initialize(debounceMs=0, prefetch=False)
        document = editor.open("main.py", "python", "total = ")
        _warm_up(editor, document)
        for _ in range(min(count, CANCELLATIONS_AT_MOST)):
            _cancel(editor, document, watch)
    yield from watch.times("cancel_to_error_reply", of="reply")
    yield from watch.times("cancel_to_next_answer", of="answer")


def _warm_up(editor: Editor, document: Document) -> None:
    """Load the engine, which the first key does, and let it answer."""
    editor.says("warm")
    for _ in range(2):
        end = len(document.text.source)
        editor.ask(editor.change(document, end, end, "x"), editor.inline(document, end + 1))
    end = len(document.text.source)
    editor.ask(editor.change(document, end - 2, end, ""), editor.probe())


def _changes(editor: Editor, document: Document, keys: int, line_count: int) -> Iterator[Times]:
    probes, changes = [], []
    for stroke in keystrokes(document.text.source, keys, seed=1):
        probes.append(editor.ask(editor.probe()).elapsed_ms)
        change = editor.change(document, stroke.start, stroke.start, stroke.key)
        changes.append(editor.ask(change, editor.probe()).elapsed_ms)
        editor.ask(editor.change(document, stroke.start, stroke.start + len(stroke.key), ""), editor.probe())
    alone = Times(f"cheap_request_{line_count}", probes)
    usual = alone.percentile(0.5)
    yield alone
    yield Times(f"did_change_and_cheap_request_{line_count}", changes)
    yield Times(
        f"did_change_{line_count}", [max(0.0, change - usual) for change in changes], CHANGE_TARGET_MS
    )


def _keystrokes(editor: Editor, document: Document, keys: int, line_count: int) -> Iterator[Times]:
    values = []
    for stroke in keystrokes(document.text.source, keys, seed=2):
        reply, restore = _type(editor, document, stroke)
        values.append(reply.elapsed_ms)
        editor.ask(*restore)
    yield Times(f"keystroke_to_reply_{line_count}", values)


def _type(editor: Editor, document: Document, stroke: Keystroke) -> tuple[Reply, tuple[Json, Json]]:
    """Type a key and ask; the reply, and the messages that put the document back."""
    cleared = document.text.source[stroke.start : stroke.end]
    editor.says(stroke.answer)
    _clear(editor, document, stroke)
    change = editor.change(document, stroke.start, stroke.start, stroke.key)
    cursor = stroke.start + len(stroke.key)
    reply = editor.ask(change, editor.inline(document, cursor))
    return reply, (editor.change(document, stroke.start, cursor, cleared), editor.probe())


def _clear(editor: Editor, document: Document, stroke: Keystroke) -> None:
    """Make room for a key, and ask, as editors do after every key: nothing is suggested where text was deleted."""
    change = editor.change(document, stroke.start, stroke.end, "")
    editor.ask(change, editor.inline(document, stroke.start))


def _typed_through(editor: Editor, document: Document, keys: int, line_count: int) -> Iterator[Times]:
    """Type along what is offered: each answer must be the rest of it."""
    values = []
    for stroke in long_lines(document.text.source, max(1, keys // TYPED_THROUGH_KEYS), seed=3):
        source = document.text.source
        editor.says(stroke.answer)
        _clear(editor, document, stroke)
        change = editor.change(document, stroke.start, stroke.start, stroke.key)
        cursor = stroke.start + len(stroke.key)
        texts = editor.ask(change, editor.inline(document, cursor)).texts
        for key in texts[0][:TYPED_THROUGH_KEYS] if texts else "":
            change = editor.change(document, cursor, cursor, key)
            cursor += 1
            reply = editor.ask(change, editor.inline(document, cursor))
            texts = [text[1:] for text in texts]
            if reply.texts == texts:
                values.append(reply.elapsed_ms)
        cleared = source[stroke.start : stroke.end]
        editor.ask(editor.change(document, stroke.start, cursor, cleared), editor.probe())
    if values:
        yield Times(f"typed_through_{line_count}", values, TYPED_THROUGH_TARGET_MS)


def _cancel(editor: Editor, document: Document, watch: Stopwatch) -> None:
    end = len(document.text.source)
    called = editor.call_bytes()
    editor.says("", hang=True)
    change = editor.change(
        document, end, end, "z"
    )  # no beginning of what has been answered: memory would answer
    question = editor.inline(document, end + 1)
    editor.send(change, question)
    patience_end = time.monotonic() + CALL_PATIENCE_S
    while editor.call_bytes() == called:
        if time.monotonic() > patience_end:
            raise ServerLeft("the engine was never asked")
        time.sleep(0.001)
    editor.says("_sum")
    cancelled_s = editor.send(cancellation(question))
    arrival = editor.reply_to(question)
    if arrival.message.get("error", {}).get("code") == CANCELLED:
        watch.values_ms["reply"].append((arrival.at_s - cancelled_s) * 1e3)
    again = editor.inline(document, end + 1)
    editor.send(again)
    arrival = editor.reply_to(again)
    if arrival.message["result"]["items"]:
        watch.values_ms["answer"].append((arrival.at_s - cancelled_s) * 1e3)
