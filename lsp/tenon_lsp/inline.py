"""The conductor of ghost text, from a cursor to items: gate, memory, pause, window, engine, fit, once more the version.

Speaks neither the protocol's types nor with the engine's process. Everything about the document is read from one
snapshot, taken before anything is awaited.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypedDict

from tenon_engine.wire import FillRequest, FillResult, HoleFill
from tenon_lsp import gate
from tenon_lsp.context import window
from tenon_lsp.documents import Edition, LastChange, Snapshot
from tenon_lsp.engines.client import EngineError, EngineFault
from tenon_lsp.gate import Verdict
from tenon_lsp.place import Place
from tenon_lsp.positions import Position
from tenon_lsp.reuse import Shown
from tenon_lsp.scheduler import Superseded
from tenon_lsp.session import Session
from tenon_lsp.trim import best

CHANGE_WAIT_MS = 50  # for a change that the editor sends behind the request that needs it
LATE_MS = 500  # beyond its deadline, for an engine that has no answer even then
INVOKED_DEADLINE_MS = 60_000
PREFETCH_AFTER_MS = 100  # what is shown is on the screen by then
PREFETCH_CONFIDENCE = 0.5  # of a shown item, from which on what follows it is worth computing
CONTROL_ONLY_MAX = 3  # answers in a row without any text, until the engine counts as ill

_WAIT_SLICE_MS = 5
_CONTROL = "control token"  # how the engine calls what it took away

_log = logging.getLogger(__name__)

Texts = tuple[tuple[str, float], ...]


class _Circumstances(TypedDict):
    """What the gate wants to know besides the place."""

    is_invoked: bool
    has_popup: bool
    excluded: str
    is_disabled: bool


class Stale(Exception):  # noqa: N818
    """The document, or what its user wants, has changed since the question was asked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Popup:
    """The selected entry of the editor's completion list: what it would replace, and with what."""

    start: Position
    end: Position
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """A question for ghost text; `edition` is the document's when it arrived."""

    uri: str
    position: Position
    is_invoked: bool
    edition: Edition | None = None
    popup: Popup | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """A text for a range on one line."""

    text: str
    start: Position
    end: Position
    confidence: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Spot:
    """Where to fill: a place in the document (with the popup's entry in it), and the range that an item replaces."""

    place: Place
    start: Position
    end: Position
    entry: str  # what every item begins with

    @property
    def sides(self) -> tuple[str, str]:
        """The whole document before and after the place."""
        source = self.place.snapshot.text.source
        return source[: self.place.start], source[self.place.end :]


class Inline:
    """Answers questions for ghost text."""

    def __init__(self, session: Session, on_latency: Callable[[float], object] = lambda _: None) -> None:
        self._session = session
        self._on_latency = on_latency  # told how long a suggestion took that the engine wrote, in ms
        self._control_only = 0

    async def suggest(self, ask: Ask) -> list[Item]:
        """Items for a cursor, best first; none where silence is better. Stale when the question is an old one."""
        started = time.perf_counter()
        self._session.scheduler.drop(ask.uri)
        snapshot = await self._settled(ask)
        if snapshot is None or (ask.popup and not _is_at(snapshot, ask.popup, ask.position)):
            return []
        spot = _spot(snapshot, ask)
        circumstances = self._circumstances(spot.place, is_invoked=ask.is_invoked, has_popup=bool(ask.popup))
        refusal = gate.refuse(spot.place, self._session.settings, **circumstances)
        texts = None if refusal else self._recall(spot, is_invoked=ask.is_invoked)
        source = "memory"
        if refusal is None and texts is None:  # only now is the tree of the document needed
            source = "engine"
            verdict = gate.judge(spot.place, self._session.settings, **circumstances)
            refusal = verdict.refusal
            texts = () if refusal else await self._ask(spot, verdict, is_invoked=ask.is_invoked)
        if self._session.documents.edition(ask.uri) != snapshot.edition:
            raise Stale
        if refusal is not None or texts is None:
            _log.debug("no suggestion: %s", refusal.value if refusal else "")
            return []
        if texts and source == "engine" and not ask.popup:
            self._session.scheduler.background(ask.uri, lambda: self._prefetch(spot.place, texts[0]))
        elapsed_ms = (time.perf_counter() - started) * 1e3
        if texts and source == "engine":
            self._on_latency(elapsed_ms)
        _log.info("%d suggestions from %s, %.0f ms", len(texts), source, elapsed_ms)
        return [Item(spot.entry + text, spot.start, spot.end, confidence) for text, confidence in texts]

    async def _settled(self, ask: Ask) -> Snapshot | None:
        """The document that the question is about; a change that is still on its way is waited for, shortly."""
        documents = self._session.documents
        snapshot = documents.snapshot(ask.uri)
        if snapshot is not None and ask.edition not in (None, snapshot.edition):
            raise Stale
        for _ in range(CHANGE_WAIT_MS // _WAIT_SLICE_MS):
            if snapshot is None or _is_inside(snapshot, ask.position):
                return snapshot
            await asyncio.sleep(_WAIT_SLICE_MS / 1e3)
            snapshot = documents.snapshot(ask.uri)
        return None

    def _circumstances(self, place: Place, *, is_invoked: bool, has_popup: bool) -> _Circumstances:
        return {
            "is_invoked": is_invoked,
            "has_popup": has_popup,
            "excluded": self._session.excluded(place.snapshot),
            "is_disabled": self._session.disabled(place.snapshot),
        }

    def _recall(self, spot: _Spot, *, is_invoked: bool) -> Texts | None:
        """An earlier answer that still holds; one asked for by hand is only answered by one asked for by hand."""
        session, uri = self._session, spot.place.snapshot.uri
        prefix, suffix = spot.sides
        texts = session.invoked.recall(uri, prefix, suffix)
        if is_invoked:
            return texts
        texts = session.typed.recall(uri, prefix, suffix) or texts
        return texts and texts[:1]

    async def _ask(self, spot: _Spot, verdict: Verdict, *, is_invoked: bool) -> Texts:
        """The engine's answer, after a pause; it is remembered."""
        session, uri = self._session, spot.place.snapshot.uri
        pause_ms = session.scheduler.pause_ms(fixed_ms=session.settings.debounce_ms, invoked=is_invoked)
        try:
            texts = await session.scheduler.run(
                uri, pause_ms, lambda: self._fill(spot.place, verdict, is_invoked=is_invoked)
            )
        except Superseded as error:
            raise Stale from error
        memory = session.invoked if is_invoked else session.typed
        memory.remember(uri, Shown(*spot.sides, texts))
        return texts

    async def _fill(self, place: Place, verdict: Verdict, *, is_invoked: bool) -> Texts:
        """What the engine writes at a place, as far as it fits; nothing when it fails or comes too late."""
        session = self._session
        deadline_ms = INVOKED_DEADLINE_MS if is_invoked else session.settings.deadline_ms
        was_loaded = session.engine.info is not None
        started = time.perf_counter()
        candidates = session.settings.alternatives if is_invoked else 1
        request = request_at(
            place, session, max_tokens=verdict.max_tokens, candidates=candidates, deadline_ms=deadline_ms
        )
        try:
            result = await asyncio.wait_for(session.engine.fill(request), (deadline_ms + LATE_MS) / 1e3)
        except asyncio.TimeoutError:
            _log.info("no suggestion: the engine took longer than %d ms", deadline_ms)
            return ()
        except EngineError as error:
            if error.code is EngineFault.FAILED:
                session.status.fault("fill-failed", str(error))
            elif is_invoked:
                session.status.fault(f"invoked-{error.code.value}", str(error))
            return ()
        if was_loaded:
            session.scheduler.measured((time.perf_counter() - started) * 1e3)
        self._note_health(result, is_invoked=is_invoked)
        return self._fitting(result, place, verdict, is_invoked=is_invoked)

    def _fitting(self, result: FillResult, place: Place, verdict: Verdict, *, is_invoked: bool) -> Texts:
        session, uri = self._session, place.snapshot.uri
        prefix, hole = place.snapshot.text.source[: place.start], result.holes[0]
        texts = [
            (candidate.text, candidate.confidence)
            for candidate in hole.candidates
            if not any(
                memory.was_accepted(uri, prefix, candidate.text)
                for memory in (session.typed, session.invoked)
            )
        ]
        minimum = 0.0 if is_invoked else session.settings.min_confidence
        found = best(texts, place, one_line=verdict.one_line, min_confidence=minimum)
        if not found:
            _log.info("no suggestion: %s", _why_nothing(hole, texts, minimum))
        return tuple(found if is_invoked else found[:1])

    def _note_health(self, result: FillResult, *, is_invoked: bool) -> None:
        """A model that writes nothing but control tokens is ill; say so to who asks by hand."""
        hole = result.holes[0]
        if hole.candidates or _CONTROL not in hole.reason:
            self._control_only = 0
            self._session.status.well()
            return
        self._control_only += 1
        _log.warning("the model wrote nothing but control tokens")
        if self._control_only >= CONTROL_ONLY_MAX and is_invoked:
            sentence = (
                f"the model {result.model} writes nothing but control tokens; its weights may be damaged"
            )
            self._session.status.fault("unhealthy", sentence)

    async def _prefetch(self, place: Place, shown: tuple[str, float]) -> None:
        """Compute what would be asked if the item that is shown were taken; nothing else is to do meanwhile."""
        text, confidence = shown
        if confidence < PREFETCH_CONFIDENCE or not self._session.settings.prefetch:
            return
        await asyncio.sleep(PREFETCH_AFTER_MS / 1e3)
        after = _with_text(place, text)
        spot = _Spot(after, Position(0, 0), Position(0, 0), "")
        circumstances = self._circumstances(after, is_invoked=False, has_popup=False)
        verdict = gate.judge(after, self._session.settings, **circumstances)
        if verdict.refusal is None and self._recall(spot, is_invoked=False) is None:
            texts = await self._fill(after, verdict, is_invoked=False)
            self._session.typed.remember(place.snapshot.uri, Shown(*spot.sides, texts))


def request_at(
    place: Place, session: Session, *, max_tokens: int, candidates: int, deadline_ms: int
) -> FillRequest:
    """What the engine is asked for one hole at a place."""
    seen = window(place, session.budget(), session.folders)
    return FillRequest.single(
        seen.prefix,
        seen.suffix,
        max_tokens=max_tokens,
        path=seen.path,
        language=seen.language,
        extra=session.related(place),
        candidates=candidates,
        deadline_ms=deadline_ms,
        session=place.snapshot.uri,
    )


def _why_nothing(hole: HoleFill, texts: Sequence[tuple[str, float]], minimum: float) -> str:
    if not hole.candidates:
        return hole.reason or "the model wrote nothing"
    surest = max((confidence for _, confidence in texts), default=None)
    if surest is None:
        return "the same was accepted here just now"
    return (
        f"confidence {surest:.2f} is below {minimum:.2f}"
        if surest < minimum
        else "the text does not fit here"
    )


def _is_inside(snapshot: Snapshot, position: Position) -> bool:
    """Whether the document has such a position."""
    _, line_end = snapshot.text.line_span(position.line)
    return (
        position.line < snapshot.text.line_count
        and position.character <= snapshot.position(line_end).character
    )


def _is_at(snapshot: Snapshot, popup: Popup, position: Position) -> bool:
    """Whether an entry's range is one of the cursor's line, around the cursor; an item can replace no other."""
    is_on_line = popup.start.line == popup.end.line == position.line
    return is_on_line and popup.start <= position <= popup.end and _is_inside(snapshot, popup.end)


def _spot(snapshot: Snapshot, ask: Ask) -> _Spot:
    if ask.popup is None:
        offset = snapshot.offset(ask.position)
        position = snapshot.position(offset)
        return _Spot(Place.at(snapshot, offset), position, position, "")
    popup = ask.popup
    start, end = snapshot.offset(popup.start), snapshot.offset(popup.end)
    entered = _with_text(Place.at(snapshot, start, max(start, end)), popup.text)
    return _Spot(entered, popup.start, popup.end, popup.text)


def _with_text(place: Place, text: str) -> Place:
    """The place behind `text`, in the document that has it in the place."""
    snapshot = place.snapshot
    changed = dataclasses.replace(
        snapshot,
        text=snapshot.text.edited(place.start, place.end, text),
        syntax=snapshot.syntax.edited(place.start, place.end, text) if snapshot.syntax else None,
        last_change=LastChange.GREW,
    )
    return Place.at(changed, place.start + len(text))
