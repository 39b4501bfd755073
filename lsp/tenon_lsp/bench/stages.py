"""Times in this process: what the server itself does for one key, stage by stage, and all of it with an instant engine.

Calls the functions that the server calls, on the documents that the benchmark on the wire has. Nothing here waits, so
it is the thread's own time that counts: what else runs on the machine disturbs it less.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from tenon_engine.wire import Candidate, EngineInfo, FillRequest, FillResult, HoleFill
from tenon_lsp import gate
from tenon_lsp.bench.documents import OTHER_DOCUMENTS, Keystroke, keystrokes, python_document, sources
from tenon_lsp.bench.figures import Stopwatch, Times
from tenon_lsp.context import window
from tenon_lsp.documents import Change, Documents, Snapshot
from tenon_lsp.engines.client import StepListener
from tenon_lsp.inline import Ask, Inline
from tenon_lsp.place import Place
from tenon_lsp.positions import Encoding
from tenon_lsp.scheduler import Scheduler
from tenon_lsp.session import Session
from tenon_lsp.settings import Settings
from tenon_lsp.status import Status
from tenon_lsp.trim import best

STAGES = ("change", "parse", "place", "gate", "recall", "window", "related", "fit")
SETTLING_S = 0.02  # for work that the last answer has started
SMALL_LINES = 2_000
SHARE_TARGETS_MS = {2_000: 15.0, 20_000: 40.0}


class InstantEngine:
    """An engine that says at once what it was told to say."""

    def __init__(self) -> None:
        self.info: EngineInfo | None = EngineInfo("instant", 480, 128, 256)
        self.answer = ""

    async def fill(self, request: FillRequest, on_step: StepListener | None = None) -> FillResult:
        """See Engine."""
        return FillResult((HoleFill((Candidate(self.answer, 1.0),)),), "instant")

    async def warm(self) -> None:
        """See Engine."""

    async def close(self) -> None:
        """See Engine."""


class Desk:
    """A session with one document that is edited, and some beside it."""

    def __init__(self, folder: Path, line_count: int) -> None:
        self.engine = InstantEngine()
        self.documents = Documents(Encoding.UTF_16)
        self.session = Session(self.documents, self.engine, Scheduler(), Status(lambda *_: None), [folder])
        self.session.configure(Settings(debounce_ms=0))
        self.uri = f"{folder.as_uri()}/main.py"
        for number, text in enumerate(sources()[:OTHER_DOCUMENTS]):
            self.documents.open(f"{folder.as_uri()}/other{number}.py", "python", 1, text)
        self.documents.open(self.uri, "python", 1, python_document(line_count))

    @property
    def snapshot(self) -> Snapshot:
        """The document now."""
        found = self.documents.snapshot(self.uri)
        assert found is not None
        return found

    def change(self, start: int, end: int, new: str) -> None:
        """Edit, as a didChange does."""
        snapshot = self.snapshot
        change = Change((snapshot.position(start), snapshot.position(end)), new)
        self.session.scheduler.cancel(self.uri)
        self.documents.change(self.uri, snapshot.version + 1, [change])

    def clear(self, stroke: Keystroke) -> str:
        """Make room for a key; what stood there. Editors ask after every edit, so the tree is there."""
        cleared = self.snapshot.text.source[stroke.start : stroke.end]
        self.change(stroke.start, stroke.end, "")
        _parse(self.snapshot)
        return cleared


def measure_stages(folder: Path, line_count: int, keys: int) -> Iterator[Times]:
    """Each stage of the answer to a key, and their sum without the change itself: the server's own share."""
    desk, watch = Desk(folder, line_count), Stopwatch(time.thread_time)
    for stroke in keystrokes(desk.snapshot.text.source, keys, seed=2):
        cleared = desk.clear(stroke)
        with watch.measure("change"):
            desk.change(stroke.start, stroke.start, stroke.key)
        cursor = stroke.start + len(stroke.key)
        with watch.measure("share"):
            _answer(desk.session, desk.snapshot, cursor, stroke.answer, watch)
        desk.change(stroke.start, cursor, cleared)
    for stage in STAGES:
        yield from watch.times(f"stage_{stage}_{line_count}", of=stage)
    target_ms = SHARE_TARGETS_MS.get(line_count)
    yield from watch.times(f"own_share_{line_count}", of="share", target_ms=target_ms)


def _answer(session: Session, snapshot: Snapshot, cursor: int, answer: str, watch: Stopwatch) -> None:
    """What `Inline.suggest` does for a key, without the engine and without looking ahead."""
    with watch.measure("parse"):
        _parse(snapshot)
    with watch.measure("place"):
        place = Place.at(snapshot, cursor)
    with watch.measure("gate"):
        excluded = session.excluded(snapshot)
        verdict = gate.judge(
            place, session.settings, is_invoked=False, has_popup=False, excluded=excluded, is_disabled=False
        )
    if verdict.refusal is not None:
        return
    with watch.measure("recall"):
        session.typed.recall(snapshot.uri, snapshot.text.source[:cursor], snapshot.text.source[cursor:])
    with watch.measure("window"):
        window(place, session.budget(), session.folders)
    with watch.measure("related"):
        session.related(place)
    with watch.measure("fit"):
        best([(answer, 1.0)], place, one_line=verdict.one_line, min_confidence=0.0)


def _parse(snapshot: Snapshot) -> None:
    assert snapshot.syntax is not None
    assert snapshot.syntax.outline is not None


def measure_suggest(folder: Path, line_count: int, keys: int) -> Iterator[Times]:
    """The whole of `Inline.suggest` with an engine that takes no time, looking ahead included."""
    watch = Stopwatch(time.thread_time)
    asyncio.run(_suggest(Desk(folder, line_count), keys, watch))
    yield from watch.times(f"suggest_with_instant_engine_{line_count}", of="suggest")


async def _suggest(desk: Desk, keys: int, watch: Stopwatch) -> None:
    inline = Inline(desk.session)
    for stroke in keystrokes(desk.snapshot.text.source, keys, seed=4):
        cleared = desk.clear(stroke)
        desk.change(stroke.start, stroke.start, stroke.key)
        cursor = stroke.start + len(stroke.key)
        desk.engine.answer = stroke.answer
        ask = Ask(desk.uri, desk.snapshot.position(cursor), is_invoked=False)
        with watch.measure("suggest"):
            await inline.suggest(ask)
        await asyncio.sleep(SETTLING_S)
        desk.change(stroke.start, cursor, cleared)
    await desk.session.scheduler.close()
