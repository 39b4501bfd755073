"""From texts to what one forward is trained on: holes cut as the engine cuts them, canvases packed behind contexts.

Everything follows from the seed and the step, so that a run that goes on after a stop sees what it would have seen.
Knows tokens and holes; no tensors, no model, no files but the corpus.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tenon_engine.diffusion import PATH_CHARACTERS, SpecialIds
from tenon_engine.errors import BadRequestError
from tenon_engine.tokenizer import Tokenizer
from tenon_engine.training import holes
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.options import SLOTS_MAX, ExampleOptions
from tenon_engine.training.views import CanvasView, Floats, canvas_size, confirm_view, whole_view
from tenon_engine.view import START, BoolMatrix, IdArray
from tenon_engine.window import CHARACTERS_PER_TOKEN, Window, window

TEXT_TOKENS_MAX = SLOTS_MAX - 2
HEADER_SHARE = 0.7  # of the contexts say which file it is
END_SHARE = 0.15  # of the holes with next to nothing behind them: where the model is most tempted to run on
SHORT_SHARE = 0.25  # of the contexts that are shorter than they could be, as in new files
SHORTEST_SHARE = 0.25  # of the tokens of a context, for the shortest
BRIEF_TOKENS, BRIEF_SHARE = 4, 0.4  # of the texts of fewer tokens, which have few views, that are kept
CONFIRM_VIEWS_MAX = 3  # of one hole: each shows all its places, where it can
TRIES = 10_000  # texts without a hole that fits, one after the other, before a corpus is given up
PREFIX_TOKENS_MIN, SUFFIX_TOKENS_MIN = 16, 8
SUFFIX_SHARE_MAX = 0.5

Booleans = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class Hole:
    """A hole as the model meets it: the ids of its context, and of the text that belongs on its canvas."""

    context_ids: list[int]
    text_ids: list[int]
    healed_count: int  # of the text's ids, those that lie within the left edge; fewer than all


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward. A row's ids are a context and, behind it, MIDDLE and the true text, for the base to read."""

    ids: IdArray  # [rows, context tokens]
    context_counts: IdArray  # [rows] how many of them are the context
    reads: IdArray  # [rows, slots] ids, or OPEN
    positions: IdArray  # [rows, slots]
    sees: BoolMatrix  # [rows, slots, slots]
    scored: IdArray  # [scored] entries, counted through all rows
    targets: IdArray  # [scored]
    weights: Floats  # [scored]
    ranks: IdArray  # [scored] see CanvasView
    teacher: IdArray  # [scored] where the base read all text before the target, through all rows; -1: nowhere
    filled: float  # share of the row's ids and slots that is no padding


class ExampleMaker:
    """Batches of one half of a corpus: what is trained on, or what is held out."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        special: SpecialIds,
        options: ExampleOptions,
        *,
        held_out: bool = False,
    ) -> None:
        """Raises BadRequestError when the corpus has none of the languages that are trained on."""
        self._corpus = corpus
        self._tokenizer = tokenizer
        self._special = special
        self._options = options
        self._name = f"{options.seed} {'held-out' if held_out else 'train'}"
        chosen = held_out_texts(corpus, options.held_out)
        weights = corpus.weights() * (chosen if held_out else ~chosen)
        self._ends = np.cumsum(weights).tolist()  # of the share of each text, one after the other

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in this half."""
        return not self._ends or self._ends[-1] <= 0

    def batch(self, number: int) -> Batch:
        """The batch of this number: the next `rows` of one series of examples, whatever `rows` is."""
        count = self._options.rows
        rows = [self._row(index) for index in range(number * count, (number + 1) * count)]
        return assemble(rows, self._options, self._special)

    def _row(self, index: int) -> tuple[Hole, list[CanvasView]]:
        """The example of this index. Raises BadRequestError."""
        rng = random.Random(f"{self._name} {index}")  # noqa: S311  # nothing is kept secret here
        for _ in range(TRIES):
            hole = self._hole(rng)
            if hole is None or (len(hole.text_ids) < BRIEF_TOKENS and rng.random() >= BRIEF_SHARE):
                continue
            if views := self._views(hole, rng):
                return hole, views
        raise BadRequestError(
            "no text has a hole that fits: allow more --context-tokens or --canvas-slots, or add texts"
        )

    def _hole(self, rng: random.Random) -> Hole | None:
        """A hole of a text drawn at random, if it has one that fits."""
        source = self._corpus[bisect.bisect(self._ends, rng.random() * self._ends[-1])]
        span = holes.sample(source.text, source.language, rng, end_share=END_SHARE)
        if span is None:
            return None
        tokens = self._options.context_tokens
        if rng.random() < SHORT_SHARE:
            tokens = rng.randint(round(SHORTEST_SHARE * tokens), tokens)
        return cut_hole(
            self._tokenizer,
            self._special,
            source.text[: span.text_end],
            (span.start, span.end),
            path=source.path if rng.random() < HEADER_SHARE else None,
            tokens=tokens,
            suffix_share=rng.random() * SUFFIX_SHARE_MAX,
        )

    def _views(self, hole: Hole, rng: random.Random) -> list[CanvasView]:
        """Canvases of one hole, as many as a row has room for."""
        options, end = self._options, self._special.end
        text_ids, healed_count = hole.text_ids, hole.healed_count
        left = options.canvas_slots
        found: list[CanvasView] = []
        confirm_room = round(options.views.confirm * left)
        for _ in range(CONFIRM_VIEWS_MAX):
            size = canvas_size(len(text_ids), rng)
            view = confirm_view(text_ids, size, rng, healed_count=healed_count, end_id=end, room=confirm_room)
            if view is None:
                break
            found.append(view)
            confirm_room -= len(view.reads)
            left -= len(view.reads)
        while options.views.confirm < 1 and left > len(text_ids):
            size = min(canvas_size(len(text_ids), rng), left)
            view = whole_view(
                text_ids,
                size,
                rng,
                healed_count=healed_count,
                end_id=end,
                views=options.views,
                vocabulary=end,
            )
            found.append(view)
            left -= size
        return found


def held_out_texts(corpus: Corpus, share: float) -> Booleans:
    """Which texts are held out, [texts]: whole packages, or whole files where there is one package."""
    names = corpus.packages
    if len(names) == 1:
        names = {corpus[index].path: [index] for index in range(len(corpus))}
    chosen = np.zeros(len(corpus), dtype=np.bool_)
    count = max(1, round(share * len(names))) if share > 0 and len(names) > 1 else 0
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:count]:
        chosen[list(names[name])] = True
    return chosen


def cut_hole(
    tokenizer: Tokenizer,
    special: SpecialIds,
    text: str,
    span: tuple[int, int],
    *,
    path: str | None,
    tokens: int,
    suffix_share: float,
) -> Hole | None:
    """The hole `span` of `text` within so many tokens, cut as at run time; None when it does not fit in.

    The tokens hold the context and the text once more; `suffix_share` of them at most go to what follows the hole.
    """
    start, end = span
    if end - start > TEXT_TOKENS_MAX * CHARACTERS_PER_TOKEN:
        return None
    header = [] if path is None else [special.file, *tokenizer.encode(f"{path[-PATH_CHARACTERS:]}\n")]
    suffix_tokens = max(SUFFIX_TOKENS_MIN, round(suffix_share * tokens))
    line = text.rfind("\n", 0, start) + 1
    probe = window(tokenizer, text[line:start], text[end:], prefix_tokens=tokens, suffix_tokens=suffix_tokens)
    text_ids = _text_ids(tokenizer, probe, text[start:end])
    if text_ids is None:
        return None
    prefix_tokens = tokens - len(header) - 2 - len(probe.suffix_ids) - len(text_ids)
    if prefix_tokens < PREFIX_TOKENS_MIN:
        return None
    begin = _prefix_start(tokenizer, text[:start], prefix_tokens)
    cut = window(
        tokenizer, text[begin:start], text[end:], prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens
    )
    text_ids = _text_ids(tokenizer, cut, text[start:end])
    if text_ids is None:
        return None
    context_ids = [*header, special.prefix, *cut.prefix_ids, special.suffix, *cut.suffix_ids]
    if len(context_ids) + len(text_ids) > tokens:
        return None
    return Hole(context_ids, text_ids, _healed_count(tokenizer, text_ids, cut.left))


def _text_ids(tokenizer: Tokenizer, cut: Window, fill: str) -> list[int] | None:
    """What the slots shall hold: the fill between the edges that it has to spell again."""
    try:
        left, right = cut.left.decode(), cut.right.decode()
    except UnicodeDecodeError:  # the edge is within a character
        return None
    ids = tokenizer.encode(left + fill + right)
    return ids if 0 < len(ids) <= TEXT_TOKENS_MAX else None


def _healed_count(tokenizer: Tokenizer, text_ids: Sequence[int], left: bytes) -> int:
    """How many of the first ids spell nothing but the left edge."""
    ends = itertools.accumulate(len(tokenizer.to_bytes([token])) for token in text_ids)
    return sum(end <= len(left) for end in ends)


def _prefix_start(tokenizer: Tokenizer, prefix: str, tokens: int) -> int:
    """Where the prefix begins: with the earliest line from which on it fits into so many tokens."""
    start = prefix.rfind("\n") + 1
    left = tokens - len(tokenizer.encode(prefix[start:]))
    while start > 0:
        line_start = prefix.rfind("\n", 0, start - 1) + 1
        left -= len(tokenizer.encode(prefix[line_start:start]))
        if left < 0:
            break
        start = line_start
    return start


def assemble(
    rows: Sequence[tuple[Hole, Sequence[CanvasView]]], options: ExampleOptions, special: SpecialIds
) -> Batch:
    """Holes and their canvases side by side; what stays empty sees itself alone and is not scored."""
    count, width, slots = len(rows), options.context_tokens, options.canvas_slots
    ids, context_counts = np.zeros((count, width), np.int64), np.zeros(count, np.int64)
    reads, positions = np.zeros((count, slots), np.int64), np.zeros((count, slots), np.int64)
    sees = np.tile(np.eye(slots, dtype=np.bool_), (count, 1, 1))
    scored, teacher, used = [], [], 0
    for row, (hole, views) in enumerate(rows):
        known = [*hole.context_ids, special.middle, *hole.text_ids[:-1]]
        context_count = len(hole.context_ids)
        ids[row, : len(known)], context_counts[row] = known, context_count
        start = 0
        for view in views:
            entries = slice(start, start + len(view.reads))
            reads[row, entries] = np.where(view.reads == START, special.middle, view.reads)
            positions[row, entries] = context_count + view.places
            sees[row, entries, entries] = view.sees
            scored.append(row * slots + start + view.scored)
            places = view.places[view.scored]
            is_text = places < len(hole.text_ids)
            teacher.append(np.where(is_text, row * width + context_count + places, -1))
            start += len(view.reads)
        used += start + len(known)
    every = [view for _, views in rows for view in views]
    return Batch(
        ids=ids,
        context_counts=context_counts,
        reads=reads,
        positions=positions,
        sees=sees,
        scored=np.concatenate(scored),
        targets=np.concatenate([view.targets for view in every]),
        weights=np.concatenate([view.weights for view in every]),
        ranks=np.concatenate([view.ranks for view in every]),
        teacher=np.concatenate(teacher),
        filled=used / (count * (width + slots)),
    )
