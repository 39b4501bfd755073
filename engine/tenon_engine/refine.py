"""Refinement: the least certain words of a text become holes, everything else of it is locked.

Owns what is opened, when a new span is better than the old one, and how the whole text is put together again. Knows
nothing of tokens' ids, of how holes are filled or text is scored, or of who asks.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from tenon_engine import line_ends
from tenon_engine.fit import unmatched_count
from tenon_engine.models.base import Scores, TokenScore
from tenon_engine.wire import (
    Candidate,
    Cost,
    FillRequest,
    FillResult,
    FillStep,
    Hole,
    HoleFill,
    Segment,
    Stopped,
)

MERGED_ATOMS = 1  # words or signs between two opened ones at most, for both to be filled as one

UNCHANGED = "nothing better found"

_ATOM = re.compile(r"\w+|[^\w\s]")

Score = Callable[[str, str, str], Scores]
"""Of the text between a prefix and a suffix: `score(prefix, suffix, text)`, line ends LF."""

Fill = Callable[[FillRequest], Iterator[FillStep | FillResult]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """A hole of the request, and where its text is opened; a hole that is no refinement is filled as it is."""

    hole: Hole
    spans: tuple[range, ...]

    @property
    def inner_count(self) -> int:
        return len(self.spans) if is_refinement(self.hole) else 1


def refine(request: FillRequest, *, score: Score, fill: Fill) -> Iterator[FillStep | FillResult]:
    """Fill `request`, of its refinements only what the model is least sure of; the events are those of `request`.

    All that is opened, and the other holes of the request, are filled together.
    """
    opened: list[_Opened] = []
    cost = Cost()
    for index, hole in enumerate(_holes(request)):
        spans: tuple[range, ...] = ()
        if is_refinement(hole):
            text = line_ends.to_lf(hole.text)
            scores = score(*_sides(request, index), text)
            cost += scores.cost
            if not scores.finished:
                yield from fill(request)  # which is over before it begins
                return
            spans = _in_original(hole.text, least_certain(text, scores.tokens, hole.strength))
        opened.append(_Opened(hole, spans))
    yield from _answers(opened, fill(_inner_request(request, opened)), cost)


def is_refinement(hole: Hole) -> bool:
    """Whether part of a hole's text is locked."""
    return bool(hole.text) and hole.strength < 1


def least_certain(text: str, tokens: Sequence[TokenScore], strength: float) -> tuple[range, ...]:
    """What to open of `text` (line ends LF): the words and signs that the share `strength` of its tokens touches, the
    least likely ones; those next to each other, or with one word between them, together, but never across lines.
    """
    written = [token for token in tokens if text[token.start : token.end].strip()]
    count = max(1, round(strength * len(written))) if strength > 0 else 0
    chosen = sorted(written, key=lambda token: token.probability)[:count]
    touched = {position for token in chosen for position in range(token.start, token.end)}
    spans: list[range] = []
    last = -math.inf
    for index, atom in enumerate(_ATOM.finditer(text)):
        if touched.isdisjoint(range(*atom.span())):
            continue
        if index - last <= MERGED_ATOMS + 1 and "\n" not in text[spans[-1].stop : atom.start()]:
            spans[-1] = range(spans[-1].start, atom.end())
        else:
            spans.append(range(*atom.span()))
        last = index
    return tuple(spans)


def keep_surer(fill: HoleFill, old: str, *, prefix: str, suffix: str, score: Score) -> tuple[HoleFill, Cost]:
    """Of `fill`, the candidates that may stand for `old` and that the model is surer of, the surest first."""
    before = score(prefix, suffix, old)
    cost = before.cost
    unmatched = unmatched_count(old, prefix=prefix, suffix=suffix)
    better: list[tuple[float, Candidate]] = []
    for candidate in fill.candidates:
        new = candidate.text
        if "\n" in new or unmatched_count(new, prefix=prefix, suffix=suffix) > unmatched:
            continue  # it would not leave the lines, or what is locked, as they are
        after = score(prefix, suffix, new)
        cost += after.cost
        if after.finished and after.mean_log_probability > before.mean_log_probability:
            better.append((after.mean_log_probability, candidate))
    better.sort(key=lambda pair: -pair[0])
    kept = tuple(candidate for _, candidate in better)
    return HoleFill(kept, fill.reason if kept else UNCHANGED), cost


def _holes(request: FillRequest) -> list[Hole]:
    return [segment for segment in request.segments if isinstance(segment, Hole)]


def _sides(request: FillRequest, index: int) -> tuple[str, str]:
    """All the text before and after a hole, the other holes with what stands in them."""
    texts = [
        line_ends.to_lf(segment.text if isinstance(segment, Hole) else segment)
        for segment in request.segments
    ]
    return "".join(texts[: 2 * index + 1]), "".join(texts[2 * index + 2 :])


def _in_original(original: str, spans: Iterable[range]) -> tuple[range, ...]:
    """Spans of `original` with LF, none with a line end in it, as spans of `original`."""
    offsets = line_ends.offsets(original)
    return tuple(range(offsets[span.start], offsets[span.stop]) for span in spans)


def _inner_request(request: FillRequest, opened: Iterable[_Opened]) -> FillRequest:
    """`request` with a hole for every opened span; what is locked is part of the text around."""
    first, *texts = (segment for segment in request.segments if isinstance(segment, str))
    segments: list[Segment] = []
    text = first
    for each, following in zip(opened, texts, strict=True):
        old, position = each.hole.text, 0
        for span in each.spans:
            inner = dataclasses.replace(each.hole, text=old[span.start : span.stop])
            segments += [text + old[position : span.start], inner]
            text, position = "", span.stop
        if is_refinement(each.hole):
            text += old[position:] + following
        else:
            segments += [text, each.hole]
            text = following
    return dataclasses.replace(request, segments=(*segments, text))


def _answers(
    opened: Sequence[_Opened], events: Iterable[FillStep | FillResult], cost: Cost
) -> Iterator[FillStep | FillResult]:
    """The events of an inner request as those of the request; `cost` was spent before."""
    owners = [index for index, each in enumerate(opened) for _ in range(each.inner_count)]
    steps = [0] * len(opened)
    for event in events:
        if isinstance(event, FillStep):
            index = owners[event.hole]
            steps[index] += 1
            yield dataclasses.replace(event, hole=index, step=steps[index])
            continue
        fills = iter(event.holes)
        holes = tuple(
            _whole(each, [next(fills) for _ in each.spans], event.stopped)
            if is_refinement(each.hole)
            else next(fills)
            for each in opened
        )
        yield dataclasses.replace(event, holes=holes, cost=event.cost + cost)


def _whole(opened: _Opened, fills: Sequence[HoleFill], stopped: Stopped) -> HoleFill:
    """The hole's whole text with what was found for its spans."""
    taken = [fill for fill in fills if fill.text]
    if not taken:
        return HoleFill((), UNCHANGED if stopped is Stopped.DONE else stopped.value)
    old, position, text = opened.hole.text, 0, ""
    for span, fill in zip(opened.spans, fills, strict=True):
        text += old[position : span.start] + (fill.text or old[span.start : span.stop])
        position = span.stop
    confidence = math.prod(fill.confidence for fill in taken)
    reasons = dict.fromkeys(fill.reason for fill in taken if fill.reason)
    return HoleFill((Candidate(text + old[position:], confidence),), ", ".join(reasons))
