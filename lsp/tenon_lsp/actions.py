"""Code actions on a selection or a document: rewrite, refine, fill holes, complete.

An offer is cheap and bound to one version; carrying it out asks the engine and gives edits of that version, none of
them outside what was offered. Knows neither the protocol nor whether the document has changed meanwhile.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tenon_engine import line_ends
from tenon_engine.wire import FillRequest, FillResult, FillStep, Hole, Segment
from tenon_lsp import gate, rewriting
from tenon_lsp.context import Budget, window
from tenon_lsp.documents import Snapshot
from tenon_lsp.engines.client import Engine
from tenon_lsp.hunks import Edit, hunks
from tenon_lsp.place import Place
from tenon_lsp.session import ACTION
from tenon_lsp.settings import Settings
from tenon_lsp.syntax import Kind
from tenon_lsp.trim import best, trim

HOLES_AT_MOST = 16
SELECTION_CHARACTERS = 4000  # more than the largest canvas could hold
DEADLINE_MS = 120_000
KIND = "refactor.rewrite.tenon"

_BLOCK_FACTOR = 4  # times max_tokens
_TOKENS_AT_MOST = 256
_HALF = re.compile(r"[\ud800-\udfff]")

StepListener = Callable[[FillStep], None]


class Deed(enum.Enum):
    """What can be done."""

    REWRITE = "rewrite"
    REFINE_LIGHT = "refine.light"
    REFINE_MEDIUM = "refine.medium"
    REFINE_STRONG = "refine.strong"
    FILL_HOLES = "fillHoles"
    COMPLETE_BLOCK = "completeBlock"
    COMPLETE_DOCSTRING = "completeDocstring"

    @property
    def title(self) -> str:
        """How a menu calls it."""
        return f"Tenon: {_TITLES[self]}"


_TITLES = {
    Deed.REWRITE: "rewrite selection",
    Deed.REFINE_LIGHT: "refine selection (light)",
    Deed.REFINE_MEDIUM: "refine selection (medium)",
    Deed.REFINE_STRONG: "refine selection (strong)",
    Deed.FILL_HOLES: "fill holes",
    Deed.COMPLETE_BLOCK: "complete this block",
    Deed.COMPLETE_DOCSTRING: "complete this docstring",
}
_STRENGTHS = {Deed.REFINE_LIGHT: 0.1, Deed.REFINE_MEDIUM: 0.2, Deed.REFINE_STRONG: 0.4}


class Refused(Exception):  # noqa: N818
    """Nothing was done; one sentence for the user says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """A deed that makes sense on `[start:end]` of one version of a document."""

    deed: Deed
    uri: str
    version: int
    start: int
    end: int

    @property
    def kind(self) -> str:
        """The code action kind."""
        return f"{KIND}.{self.deed.value}"


@dataclasses.dataclass(frozen=True, slots=True)
class Means:
    """What carrying out an offer needs."""

    engine: Engine
    settings: Settings
    budget: Budget
    folders: Sequence[Path] = ()
    instruction: str | None = None
    on_step: StepListener | None = None


def offers(place: Place, settings: Settings) -> list[Offer]:
    """What can be done with a selection, or (it is empty) at a cursor."""
    snapshot = place.snapshot
    source = snapshot.text.source
    deeds: list[Deed] = []
    if source[place.start : place.end].strip():
        deeds += [Deed.REWRITE, *_STRENGTHS]
    elif place.start == place.end and (syntax := place.region.syntax) and not syntax.language.is_prose:
        is_docstring = syntax.kind_at(place.region.inside(place.start)) is Kind.DOCSTRING
        deeds.append(Deed.COMPLETE_DOCSTRING if is_docstring else Deed.COMPLETE_BLOCK)
    if _markers(snapshot, place.start, place.end, settings.hole_markers):
        deeds.append(Deed.FILL_HOLES)
    return [Offer(deed, snapshot.uri, snapshot.version, place.start, place.end) for deed in deeds]


async def carry_out(offer: Offer, snapshot: Snapshot, means: Means) -> list[Edit]:
    """The edits, in order; Refused, or the engine's EngineError, when there are none."""
    if offer.deed is Deed.FILL_HOLES:
        return await _fill_holes(offer, snapshot, means)
    if offer.deed is Deed.REWRITE:
        return await _rewrite(offer, snapshot, means)
    if offer.deed in _STRENGTHS:
        return await _refine(offer, snapshot, means, _STRENGTHS[offer.deed])
    return await _complete(offer, snapshot, means)


def replaced(offer: Offer, snapshot: Snapshot) -> Place | None:
    """What a rewrite replaces and its steps spell anew; None for what is filled in pieces. May be Refused."""
    return _selected(offer, snapshot)[0] if offer.deed is Deed.REWRITE else None


async def _rewrite(offer: Offer, snapshot: Snapshot, means: Means) -> list[Edit]:
    place, old = _selected(offer, snapshot)
    hole = Hole(text=old)
    result = await _ask(place, (hole,), (), means, candidates=means.settings.alternatives)
    texts = [rewriting.fitting(candidate.text, old, place) for candidate in result.holes[0].candidates]
    new = next((text for text in texts if text and _is_another(text, old) and _fits(text, place)), None)
    if new is None:
        raise Refused("the model has no other text for this selection that fits")
    return hunks(old, new, place.start)


async def _refine(offer: Offer, snapshot: Snapshot, means: Means, strength: float) -> list[Edit]:
    place, old = _selected(offer, snapshot)
    result = await _ask(place, (Hole(text=old, strength=strength),), (), means)
    new = rewriting.with_line_ends(result.holes[0].text, place)
    if not new or not _is_another(new, old):
        raise Refused("the model is content with this selection")
    if not _fits(new, place) or not rewriting.parses_as_well(new, place):
        raise Refused("what the model would change does not parse")
    return hunks(old, new, place.start)


async def _complete(offer: Offer, snapshot: Snapshot, means: Means) -> list[Edit]:
    place = Place.at(snapshot, offer.start)
    hole = Hole(min(_BLOCK_FACTOR * means.settings.max_tokens, _TOKENS_AT_MOST))
    result = await _ask(place, (hole,), (), means, candidates=means.settings.alternatives)
    texts = [(candidate.text, candidate.confidence) for candidate in result.holes[0].candidates]
    found = best(texts, place, one_line=gate.goes_on(place), min_confidence=0.0)
    new = next((text for text, _ in found if _fits(text, place)), None)
    if new is None:
        raise Refused("the model has nothing that fits here")
    return [Edit(place.start, place.start, new)]


async def _fill_holes(offer: Offer, snapshot: Snapshot, means: Means) -> list[Edit]:
    spans = _markers(snapshot, offer.start, offer.end, means.settings.hole_markers)
    if not spans:
        raise Refused("there is no marker of a hole here")
    if len(spans) > HOLES_AT_MOST:
        raise Refused(
            f"there are {len(spans)} holes, {HOLES_AT_MOST} at once are the most; select some of them"
        )
    source = snapshot.text.source
    between = [source[end:start] for (_, end), (start, _) in itertools.pairwise(spans)]
    whole = Place.at(snapshot, spans[0][0], spans[-1][1])
    holes = (Hole(means.settings.max_tokens),) * len(spans)
    result = await _ask(whole, holes, between, means)
    edits = []
    for (start, end), hole in zip(spans, result.holes, strict=True):
        place = Place.at(snapshot, start, end)
        text = trim(hole.text, place, one_line=bool(place.after.strip())).text
        if text and _fits(text, place):
            edits.append(Edit(start, end, text))
    if not edits:
        raise Refused("the model has nothing that fits into these holes")
    return edits


async def _ask(
    place: Place, holes: Sequence[Hole], between: Sequence[str], means: Means, *, candidates: int = 1
) -> FillResult:
    """The engine's answer for holes in a place, with the texts between them."""
    seen = window(place, means.budget, means.folders)
    segments: list[Segment] = [seen.prefix]
    for hole, text in zip(holes, [*between, seen.suffix], strict=True):
        segments += [hole, text]
    request = FillRequest(
        segments=tuple(segments),
        path=seen.path,
        language=seen.language,
        instruction=means.instruction,
        candidates=candidates,
        deadline_ms=DEADLINE_MS,
        session=place.snapshot.uri + ACTION,
    )
    return await means.engine.fill(request, means.on_step)


def _is_another(new: str, old: str) -> bool:
    """Whether more than line ends would change."""
    return line_ends.to_lf(new) != line_ends.to_lf(old)


def _fits(new: str, place: Place) -> bool:
    """Whether `new` in the place leaves every line end around it whole."""
    source = place.snapshot.text.source
    before, after = source[max(place.start - 1, 0) : place.start], source[place.end : place.end + 1]
    return not line_ends.splits_or_joins(before, new, after)


def _selected(offer: Offer, snapshot: Snapshot) -> tuple[Place, str]:
    """The selection without the space at its start and end, which stays: indentation and line ends."""
    selected = snapshot.text.source[offer.start : offer.end]
    text = selected.strip()
    if not text:
        raise Refused("nothing is selected")
    if len(text) > SELECTION_CHARACTERS:
        raise Refused(f"the selection is too long, {SELECTION_CHARACTERS} characters are the most")
    if _HALF.search(text):
        raise Refused("the selection holds half a character, which no model can read")
    start = offer.start + len(selected) - len(selected.lstrip())
    return Place.at(snapshot, start, start + len(text)), text


def _markers(snapshot: Snapshot, start: int, end: int, markers: Sequence[str]) -> list[tuple[int, int]]:
    """Where the markers stand in a selection, or in the whole document when it is empty."""
    source = snapshot.text.source
    if start == end:
        start, end = 0, len(source)
    if not any(source.find(marker, start, end) >= 0 for marker in markers):
        return []
    pattern = re.compile("|".join(_alone(each) for each in sorted(markers, key=len, reverse=True)))
    found = (match.span() for match in pattern.finditer(source, start))
    inside = itertools.takewhile(lambda span: span[1] <= end, found)
    return [span for span in inside if not _is_rule(Place.at(snapshot, *span))]


def _alone(marker: str) -> str:
    """A pattern for `marker` where it is not part of a longer word."""
    before = r"(?<!\w)" if marker[:1].isalnum() or marker.startswith("_") else ""
    after = r"(?!\w)" if marker[-1:].isalnum() or marker.endswith("_") else ""
    return f"{before}{re.escape(marker)}{after}"


def _is_rule(place: Place) -> bool:
    """Whether a marker is markdown's horizontal line."""
    syntax = place.region.syntax
    is_prose = syntax is not None and syntax.language.is_prose
    return is_prose and not place.before.strip("> \t") and not place.after.strip()
