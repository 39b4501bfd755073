"""One hole with a diffusion model: window, context cache, canvases, the loop, text again.

Owns the way from text to tokens and back. Knows nothing of requests with several holes, of fit, or of clients.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import torch

from tenon_engine.batching import BatchedNetwork, CausalNetwork
from tenon_engine.cache import Context, ContextCache
from tenon_engine.calibration import Calibration
from tenon_engine.canvas import Canvas
from tenon_engine.denoise import Track, denoise
from tenon_engine.edges import Edges
from tenon_engine.fit import leaves_line_open
from tenon_engine.models.base import (
    ContextBudget,
    Draft,
    HoleRequest,
    Proposal,
    Scores,
    StopCheck,
)
from tenon_engine.plan import ConfirmPlan, Plan, Row, SparingPlan
from tenon_engine.proposals import draft, encodable, slots
from tenon_engine.scoring import score_in_sections, score_text
from tenon_engine.tokenizer import Tokenizer
from tenon_engine.window import Window, window
from tenon_engine.wire import Cost

PATH_CHARACTERS = 200
EXTRA_TOKENS = 1024  # of all extra files together, at most
EXTRA_CHARACTERS = 8192
ENCODE_CHUNK_TOKENS = 128  # between two chunks of a context, stop() is asked
SECTION_TOKENS = 512  # of a text that is scored in one canvas
CROWD = 3  # fills at a time from which on guessing ahead costs more than it saves (measured on two cores)


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialIds:
    """Control tokens of a vocabulary."""

    prefix: int
    middle: int
    suffix: int
    file: int
    end: int


class ForkableContext(Context, Protocol):
    """A context that another candidate can start from."""

    def fork(self: C) -> C:
        """An independent copy."""
        ...


C = TypeVar("C", bound=ForkableContext)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much of a document a context may hold, and how much of other files is worth the time to read it."""

    prefix_tokens: int
    suffix_tokens: int
    path_header: bool
    extra_tokens: int = EXTRA_TOKENS


@dataclasses.dataclass(frozen=True, slots=True)
class _Stand(Generic[C]):
    """Where a canvas stands: its window, the encoded context, and what that cost."""

    cut: Window
    context: C
    cost: Cost


class DiffusionModel(Generic[C]):
    """A network, its vocabulary and a plan: everything `propose` and `score` need, in any number of threads."""

    reads_instructions = False
    device = "cpu"

    def __init__(
        self,
        *,
        name: str,
        network: CausalNetwork[C],
        tokenizer: Tokenizer,
        special: SpecialIds,
        plan: Plan[Row],
        limits: Limits,
        calibration: Calibration | None = None,
    ) -> None:
        self.name = name
        self.budget = ContextBudget(limits.prefix_tokens, limits.suffix_tokens, limits.extra_tokens)
        self.network = BatchedNetwork(network)
        self.tokenizer = tokenizer
        self._special = special
        self._plan = plan
        self._limits = limits
        self._calibration = calibration
        self._contexts = ContextCache(network.new_context)

    def with_plan(self, plan: Plan[Row]) -> DiffusionModel[C]:
        """The same weights and caches with another sampler."""
        other = copy.copy(self)
        other._plan = plan
        return other

    def with_calibration(self, calibration: Calibration | None) -> DiffusionModel[C]:
        """The same weights and caches with other confidences: without one, products of the tokens' probabilities."""
        other = copy.copy(self)
        other._calibration = calibration
        return other

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """Denoise one hole; a Proposal per step, the last one is the answer."""
        with self._standing(hole, stop, defer=hole.candidates == 1) as stand:
            if stand is None:
                return
            encoded = time.perf_counter()
            tracks = self._tracks(hole, stand.cut, stand.context)
            for step in denoise(self.network, self._plan_for(hole), tracks):
                yield Proposal(
                    drafts=tuple(self._draft(track.row) for track in tracks),
                    slots=slots(tracks[0].row.canvas, self.tokenizer, left=stand.cut.left),
                    cost=dataclasses.replace(
                        stand.cost,
                        forwards=step,
                        tokens=sum(track.row.canvas.decided_count for track in tracks),
                        denoise_ms=(time.perf_counter() - encoded) * 1e3,
                    ),
                )
                if stop():
                    return

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        """How sure the model is of `text`; a long one in sections, each a hole between what stands beside it."""
        score = functools.partial(self._score_section, stop)
        return score_in_sections(self.tokenizer, hole, text, section_tokens=SECTION_TOKENS, score=score)

    def count_tokens(self, text: str) -> int:
        """How many slots `text` takes."""
        return len(self.tokenizer.encode(encodable(text)))

    def _draft(self, row: Row) -> Draft:
        """A candidate so far; its confidence is calibrated once nothing will be added to it."""
        made = draft(row)
        if self._calibration is None or not row.canvas.finished:
            return made
        return dataclasses.replace(made, confidence=self._calibration.probability(made.confidence))

    def _plan_for(self, hole: HoleRequest) -> Plan[Row]:
        """The plan, sparing where that changes no text: a sampled one draws for its fans, too."""
        if not isinstance(self._plan, ConfirmPlan) or hole.temperature > 0:
            return self._plan
        return SparingPlan(self._plan, lambda: self.network.fill_count >= CROWD)

    @contextmanager
    def _standing(self, hole: HoleRequest, stop: StopCheck, *, defer: bool) -> Iterator[_Stand[C] | None]:
        """The hole's window and its context, the session's own while this is entered; None when stopped.

        What is done inside ends early when the hole is stopped while it waits for its turn on the network.
        """
        started = time.perf_counter()
        limits = self._limits
        cut = window(
            self.tokenizer,
            encodable(hole.prefix),
            encodable(hole.suffix),
            prefix_tokens=limits.prefix_tokens,
            suffix_tokens=limits.suffix_tokens,
        )
        ids = self._context_ids(hole, cut)
        context = self._contexts.begin(hole.session, ids)
        reused = len(context.ids)
        try:
            with self.network.joined(stop):
                if not self._encode(context, ids[reused:], stop, defer=defer):
                    yield None
                    return
                context_ms = (time.perf_counter() - started) * 1e3
                cost = Cost(context_tokens=len(ids), reused_tokens=reused, context_ms=context_ms)
                yield _Stand(cut, context, cost)
        finally:
            self._contexts.keep(hole.session, context)

    def _encode(self, context: C, ids: list[int], stop: StopCheck, *, defer: bool) -> bool:
        """Put `ids` into the context, all or all but the last chunk; False when stopped between two.

        The first step encodes a deferred chunk; several candidates start from copies of a context that is complete.
        """
        chunks = [
            ids[start : start + ENCODE_CHUNK_TOKENS] for start in range(0, len(ids), ENCODE_CHUNK_TOKENS)
        ]
        for chunk in chunks:
            if stop():
                return False
            is_deferred = chunk is chunks[-1] and defer
            (self.network.defer if is_deferred else self.network.extend)(context, chunk)
        return True

    def _context_ids(self, hole: HoleRequest, cut: Window) -> list[int]:
        """`[FILE path \\n text]… [FILE path \\n] PREFIX prefix SUFFIX suffix` (Qwen2.5-Coder technical report, 3.2)."""
        encode, special = self.tokenizer.encode, self._special
        ids: list[int] = []
        for extra in hole.extra:
            text = f"{extra.path[-PATH_CHARACTERS:]}\n{extra.text[:EXTRA_CHARACTERS]}"
            ids += [special.file, *encode(encodable(text))]
        ids = ids[:EXTRA_TOKENS]
        if hole.path and self._limits.path_header:
            ids += [special.file, *encode(encodable(f"{hole.path[-PATH_CHARACTERS:]}\n"))]
        return [*ids, special.prefix, *cut.prefix_ids, special.suffix, *cut.suffix_ids]

    def _tracks(self, hole: HoleRequest, cut: Window, context: C) -> list[Track[C, Row]]:
        """One track per candidate; the first stands on the session's own context, the others on copies of it."""
        right_ids = self.tokenizer.encode(cut.right.decode())
        edges = Edges(
            self.tokenizer,
            left=cut.left,
            right=cut.right,
            end_id=self._special.end,
            is_unfinished=functools.partial(leaves_line_open, prefix=hole.prefix, suffix=hole.suffix),
        )
        tracks = []
        for index in range(hole.candidates):
            canvas = Canvas(len(cut.left_ids) + hole.max_tokens + len(right_ids), end_id=self._special.end)
            row = Row(canvas, edges, history=[*cut.suffix_ids, *cut.prefix_ids], drafts=cut.left_ids)
            sampled = hole.temperature > 0
            tracks.append(
                Track(
                    row,
                    context if index == 0 else context.fork(),
                    rank=0 if sampled else index,
                    temperature=hole.temperature,
                    generator=torch.Generator().manual_seed(hole.seed + index) if sampled else None,
                )
            )
        return tracks

    def _score_section(self, stop: StopCheck, hole: HoleRequest, text: str, ends: bool) -> Scores:
        """The scores of `text` on one canvas, of END behind it too where the whole text `ends`."""
        scores = Scores((), Cost(), finished=False)  # when stopped
        with self._standing(hole, stop, defer=True) as stand:
            if stand is not None:
                scores = score_text(
                    self.network,
                    stand.context,
                    self.tokenizer,
                    text,
                    left=stand.cut.left.decode(errors="ignore"),
                    right=stand.cut.right.decode(),
                    end_id=self._special.end if ends else None,
                    stop=stop,
                )
                scores = dataclasses.replace(scores, cost=scores.cost + stand.cost)
        return scores
