"""DiffusionGemma as a model of the engine: from a checkpoint on disk to fills and scores.

Owns the way from text to canvases and back, sessions, and holes longer than a canvas. A hole's suffix is fixed behind
it in the canvas, its right edge included. The left edge is spelt again: the tokens taken back from the prefix are fixed
in the first slots, but for the last of them, whose slot may take any token that begins with its bytes. So no slot
depends on what another one takes, and the text of the user stays what it is.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from tenon_engine.cache import ContextCache
from tenon_engine.config import EngineConfig
from tenon_engine.denoise import Track
from tenon_engine.edges import Edges
from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.base import ContextBudget, HoleRequest, Proposal, Scores, StopCheck
from tenon_engine.models.gemma.likelihood import score_tokens
from tenon_engine.models.gemma.network import Frame, GemmaNetwork
from tenon_engine.models.gemma.prefix_cache import PrefixCache
from tenon_engine.models.gemma.prompt import Prompt, turns
from tenon_engine.models.gemma.search import Candidate, lengths, search
from tenon_engine.models.gemma.uniform import (
    NO_END,
    Noise,
    Pace,
    UniformCanvas,
    UniformPlan,
    UniformRow,
    plan_named,
)
from tenon_engine.models.gemma.weights import load_weights
from tenon_engine.models.hub.vocabulary import check_ids, load_tokenizer, special_id
from tenon_engine.progress import Progress
from tenon_engine.proposals import draft, encodable, slots
from tenon_engine.scoring import score_in_sections
from tenon_engine.tokenizer import Tokenizer
from tenon_engine.view import Constraint
from tenon_engine.window import Window, window
from tenon_engine.wire import Cost

if TYPE_CHECKING:
    from tenon_engine.models.hub.checkpoint import Checkpoint
    from tenon_engine.models.hub.placement import Placement

ENCODE_CHUNK_TOKENS = 256  # between two chunks of a context, stop() is asked
SESSIONS_MAX = 4  # a thousand tokens take some 0.2 GB of the device's memory
SUFFIX_SHARE = 0.5  # of a canvas, at most
SECTIONS = 4  # of a canvas: a text that is scored takes one of them, or little more
EXTRA_TOKENS = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where a canvas stands: the encoded prefix, and what is written there already."""

    prefix: PrefixCache
    left_ids: list[int]
    suffix_ids: list[int]
    edges: Edges
    before: list[int] = dataclasses.field(default_factory=list)  # ids of the hole's earlier canvases
    confidence: float = 1.0  # theirs


class GemmaModel:
    """A network, its vocabulary and prompt: everything `propose` and `score` need, in any number of threads."""

    reads_instructions = True

    def __init__(
        self,
        *,
        name: str,
        network: GemmaNetwork,
        tokenizer: Tokenizer,
        prompt: Prompt,
        plan: UniformPlan,
        budget: ContextBudget,
    ) -> None:
        suffix_tokens = min(budget.suffix_tokens, int(network.canvas_length * SUFFIX_SHARE))
        self.name = name
        self.budget = dataclasses.replace(budget, suffix_tokens=suffix_tokens)
        self.device = str(network.device)
        self.network = network
        self.tokenizer = tokenizer
        self._prompt = prompt
        self._plan = plan
        self._contexts = ContextCache(PrefixCache, sessions_max=SESSIONS_MAX)

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """Denoise one hole; a Proposal per forward, the last one is the answer."""
        cut = self._window(hole)
        with self._standing(hole, cut, stop) as stand:
            if stand is None:
                return
            prefix, cost = stand
            edges = Edges(self.tokenizer, left=cut.left, right=b"", end_id=NO_END)
            place: _Place | None = _Place(prefix, cut.left_ids, self._suffix_ids(cut), edges)
            started, remaining = time.perf_counter(), hole.max_tokens
            while place is not None:
                ranked: list[Candidate] = []
                for ranked in self._search(hole, place, remaining):
                    cost = dataclasses.replace(
                        cost,
                        forwards=cost.forwards + 1,
                        denoise_ms=(time.perf_counter() - started) * 1e3,
                        tokens=sum(each.row.canvas.decided_count for each in ranked),
                    )
                    yield self._proposal(hole, ranked, place, cost)
                    if stop():
                        return
                place, remaining = self._next_place(place, ranked[0].row.canvas, remaining, stop)

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        """How sure the model is of `text` (see `likelihood`), a long one in sections; its end has no score."""
        score = functools.partial(self._score_section, stop)
        return score_in_sections(
            self.tokenizer, hole, text, section_tokens=self.network.canvas_length // SECTIONS, score=score
        )

    def count_tokens(self, text: str) -> int:
        """How many slots `text` takes."""
        return len(self.tokenizer.encode(encodable(text)))

    def forget(self) -> None:
        """Drop the contexts of all sessions."""
        self._contexts = ContextCache(PrefixCache, sessions_max=SESSIONS_MAX)

    def _score_section(self, stop: StopCheck, hole: HoleRequest, text: str, _ends: bool) -> Scores:
        cut = self._window(hole)
        with self._standing(hole, cut, stop) as stand:
            if stand is None:
                return Scores((), Cost(), finished=False)
            started = time.perf_counter()
            prefix, cost = stand
            found = score_tokens(
                self.network,
                self.tokenizer,
                text,
                left=cut.left.decode(errors="ignore"),
                prefix=prefix,
                suffix_ids=self._suffix_ids(cut),
                seed=hole.seed,
            )
        denoise_ms = (time.perf_counter() - started) * 1e3
        cost = dataclasses.replace(cost, forwards=1, denoise_ms=denoise_ms)
        return Scores(tuple(found), cost, finished=True)

    def _window(self, hole: HoleRequest) -> Window:
        return window(
            self.tokenizer,
            self._prompt.prefix(hole),
            encodable(hole.suffix),
            prefix_tokens=self.budget.prefix_tokens,
            suffix_tokens=self.budget.suffix_tokens,
        )

    def _suffix_ids(self, cut: Window) -> list[int]:
        """What is fixed behind the hole, what its right edge would have spelt again included."""
        ids = [*self.tokenizer.encode(cut.right.decode()), *cut.suffix_ids]
        return ids[: int(self.network.canvas_length * SUFFIX_SHARE)]

    @contextmanager
    def _standing(
        self, hole: HoleRequest, cut: Window, stop: StopCheck
    ) -> Iterator[tuple[PrefixCache, Cost] | None]:
        """The encoded prefix, the session's own while this is entered, and its cost; None when stopped."""
        started = time.perf_counter()
        ids = self._prompt.ids(hole, cut.prefix_ids)
        prefix = self._contexts.begin(hole.session, ids)
        reused = len(prefix.ids)
        try:
            if not self._encode(prefix, ids[reused:], stop):
                yield None
                return
            context_ms = (time.perf_counter() - started) * 1e3
            yield prefix, Cost(context_tokens=len(ids), reused_tokens=reused, context_ms=context_ms)
        finally:
            self._contexts.keep(hole.session, prefix)

    def _encode(self, prefix: PrefixCache, ids: Sequence[int], stop: StopCheck) -> bool:
        """Put `ids` behind `prefix`; False when stopped between two chunks."""
        for start in range(0, len(ids), ENCODE_CHUNK_TOKENS):
            if stop():
                return False
            self.network.extend(prefix, ids[start : start + ENCODE_CHUNK_TOKENS])
        return True

    def _search(self, hole: HoleRequest, place: _Place, remaining: int) -> Iterator[list[Candidate]]:
        """The candidates after each forward: all lengths, with as many seeds as it takes for what is wanted."""
        sizes = lengths(min(remaining, self._room(place)))
        seeds = range(hole.seed, hole.seed + -(-hole.candidates // len(sizes)))
        candidates = [self._candidate(hole, place, size, seed) for seed in seeds for size in sizes]
        return search(self.network, self._plan, candidates, wanted=hole.candidates)

    def _room(self, place: _Place) -> int:
        """The most slots a hole may have here."""
        return self.network.canvas_length - len(place.left_ids) - len(place.suffix_ids)

    def _candidate(self, hole: HoleRequest, place: _Place, size: int, seed: int) -> Candidate:
        fixed, healed = place.left_ids[:-1], place.left_ids[-1:]
        canvas = UniformCanvas(
            size + len(healed), fixed=fixed, before=place.before, confidence=place.confidence
        )
        pace = Pace(self._plan.steps_max)
        row = UniformRow(
            canvas,
            place.edges,
            history=(),
            pace=pace,
            noise=Noise(len(canvas), vocabulary=self.network.vocabulary, seed=seed),
            constraint=self._beginning_with(healed[0]) if healed else None,
        )
        generator = torch.Generator(self.network.device).manual_seed(seed) if hole.temperature > 0 else None
        return Track(
            row,
            Frame(place.prefix, place.suffix_ids, pace),
            temperature=hole.temperature,
            generator=generator,
        )

    def _beginning_with(self, token: int) -> Constraint:
        """Any token that spells what `token` spells, and maybe more."""
        data = self.tokenizer.to_bytes([token])
        agreeing = self.tokenizer.agreeing(data)
        shorter = sum(len(self.tokenizer.to_bytes([each])) < len(data) for each in agreeing[-len(data) :])
        return Constraint(only=agreeing[: len(agreeing) - shorter])

    def _proposal(
        self, hole: HoleRequest, ranked: Sequence[Candidate], place: _Place, cost: Cost
    ) -> Proposal:
        left = self.tokenizer.to_bytes(place.left_ids)
        return Proposal(
            drafts=tuple(draft(each.row) for each in ranked[: hole.candidates]),
            slots=slots(ranked[0].row.canvas, self.tokenizer, left=left),
            cost=cost,
        )

    def _next_place(
        self, place: _Place, canvas: UniformCanvas, remaining: int, stop: StopCheck
    ) -> tuple[_Place | None, int]:
        """Where to go on when the longest canvas fits best and is shorter than the hole may be: behind its first half.

        None when the hole is filled, or when stopped.
        """
        room = self._room(place)
        if remaining <= room or len(canvas) < len(place.left_ids) + room:
            return None, 0
        count = len(canvas) // 2
        written = [i for i in canvas.ids[:count] if i is not None and self.tokenizer.to_bytes([i])]
        prefix = place.prefix.fork()
        if not self._encode(prefix, written, stop):
            return None, 0
        confidence = place.confidence * math.prod(canvas.confidences[:count])
        place = _Place(prefix, [], place.suffix_ids, place.edges, [*place.before, *written], confidence)
        return place, remaining - count


def load(
    checkpoint: Checkpoint, placement: Placement, config: EngineConfig, progress: Progress
) -> GemmaModel:
    """The model in `checkpoint` on the device of `placement`. Raises BadRequestError or WeightsCorruptError."""
    plan = plan_named(config.sampler, default=EngineConfig().sampler)
    tokenizer = load_tokenizer(checkpoint)
    weights = load_weights(checkpoint, placement)
    vocabulary = weights.model.decoder.embed_tokens.num_embeddings

    def control_id(name: str) -> int | None:
        found = special_id(checkpoint, name)
        check_ids(tokenizer, vocabulary, () if found is None else (found,))
        return found

    fillers = {control_id("eos_token"), control_id("pad_token")}
    unspoken = [
        token
        for token in range(vocabulary)
        if token not in fillers and (token >= tokenizer.id_count or not tokenizer.to_bytes([token]))
    ]
    begin, end = control_id("bos_token"), control_id("eos_token")
    if begin is None or end is None:
        raise WeightsCorruptError(
            f"{checkpoint.name} names no bos_token or no eos_token in its tokenizer files; get them again"
        )
    return GemmaModel(
        name=checkpoint.name,
        network=GemmaNetwork(
            weights, end_id=end, unspoken=unspoken, backend="inductor" if placement.compiled else None
        ),
        tokenizer=tokenizer,
        prompt=Prompt(
            tokenizer, begin, turns(tokenizer, control_id), EXTRA_TOKENS, path_header=config.path_header
        ),
        plan=plan,
        budget=ContextBudget(config.prefix_tokens, config.suffix_tokens, EXTRA_TOKENS),
    )
