"""How a hole whose text is known is shown to the model, and what it shall say: one canvas, seen in one of two ways.

`confirm_view` is what the default sampler looks at (`plan.ConfirmPlan`): the true text as a chain that looks left only,
and behind links of it fans of open slots. `whole_view` is what the parallel samplers look at: every slot sees every
other, some are open. Pure functions of ids and a random generator; no texts, no tensors of a model.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tenon_engine.training.options import SLOTS_MAX, Views
from tenon_engine.view import OPEN, START, BoolMatrix, IdArray

SIZES = (4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, SLOTS_MAX)
LARGER_SIZES = (12, 16, 24, 32, SLOTS_MAX)  # as at run time, where the length is not known
LARGER_SHARE = 0.25
FAN_SIZES = (2, 2, 3, 4)  # most often that of the default sampler
LINK_WEIGHT = 0.5  # of a link: there are many, and the base knows them already
HEALED_WEIGHT = 0.1  # of a link within the left edge: at run time few tokens agree with what stands there
NEAR, FAR = 0.85, 0.15  # an open slot weighs FAR + NEAR * FADING ** (open slots before it)
FADING = 0.8
END_TAIL_SHARE, END_TAIL_WEIGHT = 0.12, 0.2  # of the slots behind the first END
FAR_GAP, FAR_GAP_SHARE = 14, 0.4  # slots with so many open ones before them are hopeless: few are scored
REPLACED_WEIGHT = 0.5
VISIBLE_SHARE = 0.15  # of the true visible slots, scored where others are wrong
UNRANKED = 0

Floats = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CanvasView:
    """Entries as in `view.View`, and what is expected of the scored ones."""

    reads: IdArray  # [entries] id, OPEN or START
    places: IdArray  # [entries]
    sees: BoolMatrix  # [entries, entries]
    scored: IdArray  # [scored] entries
    targets: IdArray  # [scored]
    weights: Floats  # [scored]
    ranks: IdArray  # [scored] the how manieth open slot it is, from 1; UNRANKED within the left edge or behind the end


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What one entry shall say."""

    entry: int
    target: int
    weight: float
    rank: int


def canvas_size(text_count: int, rng: random.Random) -> int:
    """Slots for a text of so many tokens and END, often more than it needs."""
    size = next(size for size in SIZES if size > text_count)
    if size < SLOTS_MAX and rng.random() < LARGER_SHARE:
        size = rng.choice([larger for larger in LARGER_SIZES if larger > size])
    return size


def confirm_view(
    ids: Sequence[int], size: int, rng: random.Random, *, healed_count: int, end_id: int, room: int
) -> CanvasView | None:
    """Chain and fans in at most `room` entries; None when there is none for a single fan.

    The first `healed_count` ids are given away by the left edge; there are more than these.
    """
    links = len(ids) + 1  # the last one says END
    fan_size = rng.choice(FAN_SIZES)
    fan_count = min((room - links) // fan_size, len(ids) - healed_count)
    if fan_count < 1:
        return None
    fanned = sorted(rng.sample(range(healed_count, len(ids)), fan_count))
    fans = [range(link + 1, min(size, link + 1 + fan_size)) for link in fanned]
    content = _content(ids, size, end_id)
    expected = [Expected(place, ids[place], HEALED_WEIGHT, UNRANKED) for place in range(healed_count)]
    expected += [Expected(place, ids[place], LINK_WEIGHT, 1) for place in range(healed_count, len(ids))]
    expected.append(Expected(len(ids), end_id, 1.0, 1))
    places, entry = list(range(links)), links
    for fan in fans:
        for rank, place in enumerate(fan, 2):
            expected += _expected(entry, place, rank, len(ids), content, rng)
            entry += 1
        places += fan
    reads = [*(content[place - 1] if place else START for place in range(links)), *[OPEN] * (entry - links)]
    return _view(reads, places, _chain_and_fans(links, fanned, fans), expected)


def whole_view(
    ids: Sequence[int],
    size: int,
    rng: random.Random,
    *,
    healed_count: int,
    end_id: int,
    views: Views,
    vocabulary: int,
) -> CanvasView:
    """All slots, each seeing all; those of the first `healed_count` ids are not open."""
    content = _content(ids, size, end_id)
    is_open = _open_slots(healed_count, min(len(ids), size - 1), size, rng, views)
    shown = [
        rng.randrange(vocabulary) if views.replaced and rng.random() < views.replaced else token
        for token in content
    ]
    expected, rank = [], 0
    for place in range(size):
        if is_open[place]:
            rank += 1
            expected += _expected(place, place, rank, len(ids), content, rng)
        elif shown[place] != content[place] or (views.replaced and rng.random() < VISIBLE_SHARE):
            expected.append(Expected(place, content[place], REPLACED_WEIGHT, UNRANKED))
    reads = [START, *(OPEN if is_open[place] else shown[place] for place in range(size - 1))]
    return _view(reads, range(size), np.ones((size, size), dtype=np.bool_), expected)


def _content(ids: Sequence[int], size: int, end_id: int) -> list[int]:
    return [*ids, *[end_id] * (size - len(ids))]


def _open_slots(begin: int, last: int, size: int, rng: random.Random, views: Views) -> list[bool]:
    """Which slots are open: none before `begin`, one up to `last` at least."""
    kinds = ("left", "open", "gapped", "random")
    (kind,) = rng.choices(kinds, [getattr(views, name) for name in kinds])
    if kind == "open":
        return [place >= begin for place in range(size)]
    if kind == "random":
        share = rng.random()
        chosen = [place >= begin and rng.random() < share for place in range(size)]
        chosen[rng.randint(begin, last)] |= not any(chosen[: last + 1])
        return chosen
    if kind == "left":
        first = begin + int((last + 1 - begin) * rng.random() ** 1.3)  # early more often: more is open then
        return [place >= first for place in range(size)]
    first, known = rng.randint(begin, last), rng.random() / 2
    return [place == first or (place > first and rng.random() >= known) for place in range(size)]


def _expected(
    entry: int, place: int, rank: int, text_count: int, content: Sequence[int], rng: random.Random
) -> list[Expected]:
    """What is expected of an open slot, if anything."""
    if place > text_count:
        scored = rng.random() < END_TAIL_SHARE
        return [Expected(entry, content[place], END_TAIL_WEIGHT, UNRANKED)] if scored else []
    before = rank - 1
    if before > FAR_GAP and rng.random() >= FAR_GAP_SHARE:
        return []
    return [Expected(entry, content[place], FAR + NEAR * FADING**before, rank)]


def _chain_and_fans(links: int, fanned: Sequence[int], fans: Sequence[range]) -> BoolMatrix:
    """Links see the links before them; a fan sees the chain up to its link, and itself in both directions."""
    size = links + sum(map(len, fans))
    sees = np.zeros((size, size), dtype=np.bool_)
    sees[:links, :links] = np.tri(links, dtype=np.bool_)
    start = links
    for link, fan in zip(fanned, fans, strict=True):
        end = start + len(fan)
        sees[start:end, : link + 1] = True
        sees[start:end, start:end] = True
        start = end
    return sees


def _view(
    reads: Sequence[int], places: Sequence[int], sees: BoolMatrix, expected: Sequence[Expected]
) -> CanvasView:
    return CanvasView(
        reads=np.array(reads, np.int64),
        places=np.array(places, np.int64),
        sees=sees,
        scored=np.array([each.entry for each in expected], np.int64),
        targets=np.array([each.target for each in expected], np.int64),
        weights=np.array([each.weight for each in expected], np.float32),
        ranks=np.array([each.rank for each in expected], np.int64),
    )
