"""A masked diffusion model as a model of the engine: from a checkpoint on disk to fills and scores.

Owns the way from text to a window and back, and which canvas a hole gets. Knows nothing of requests with several holes,
of fit, or of clients.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from tenon_engine.canvas import Canvas
from tenon_engine.config import EngineConfig
from tenon_engine.denoise import Network, Track, denoise
from tenon_engine.edges import Edges
from tenon_engine.fit import leaves_line_open
from tenon_engine.models.base import ContextBudget, HoleRequest, Proposal, Scores, StopCheck
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.placement import Placement
from tenon_engine.models.hub.vocabulary import check_ids, load_tokenizer
from tenon_engine.models.masked.canvas import BoundedCanvas, GrowingCanvas
from tenon_engine.models.masked.family import ControlIds, Family, Length, family_of
from tenon_engine.models.masked.lengths import find_length
from tenon_engine.models.masked.likelihood import probabilities
from tenon_engine.models.masked.network import MaskedNetwork, OwnCodeNetwork, Surroundings
from tenon_engine.models.masked.plan import MaskedPlan, MaskedRow, masked_plan
from tenon_engine.models.masked.weights import load_backbone, load_own_code, places_of, rows_of
from tenon_engine.progress import Progress
from tenon_engine.proposals import draft, encodable, slots
from tenon_engine.scoring import score_in_sections, token_scores
from tenon_engine.tokenizer import BpeTokenizer, Tokenizer
from tenon_engine.window import Window, window
from tenon_engine.wire import Cost

GROWING_SLOTS = 4  # a canvas that grows begins with (as the DreamOn model card does)
SECTION_TOKENS = 256  # of a text that is scored in one window
PREFIX_SHARE, SUFFIX_SHARE, EXTRA_SHARE = 0.5, 0.125, 0.25  # of the window a family was trained on, at most
EXTRA_CHARACTERS = 8192


class MaskedModel:
    """A network, its vocabulary and a plan: everything `propose` and `score` need, in any number of threads."""

    reads_instructions = False

    def __init__(
        self,
        *,
        name: str,
        network: Network[Surroundings],
        tokenizer: Tokenizer,
        control: ControlIds,
        length: Length,
        plan: MaskedPlan,
        budget: ContextBudget,
        device: torch.device,
    ) -> None:
        self.name = name
        self.budget = budget
        self.device = str(device)
        self.network = network
        self.tokenizer = tokenizer
        self.control = control
        self._length = length
        self._plan = plan

    def with_network(self, network: Network[Surroundings]) -> MaskedModel:
        """The same model over another network."""
        other = copy.copy(self)
        other.network = network
        return other

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """Denoise one hole; a Proposal per step, the last one is the answer."""
        started = time.perf_counter()
        cut = self._window(hole)
        around = self._around(hole, cut)
        context_ms = (time.perf_counter() - started) * 1e3
        if stop():
            return
        started = time.perf_counter()
        tracks, searches = self._tracks(hole, cut, around)
        for step in denoise(self.network, self._plan, tracks):
            yield Proposal(
                drafts=tuple(draft(track.row) for track in tracks),
                slots=slots(tracks[0].row.canvas, self.tokenizer, left=cut.left),
                cost=Cost(
                    forwards=searches + step,
                    tokens=sum(track.row.canvas.decided_count for track in tracks),
                    context_tokens=len(around.prefix_ids) + len(around.suffix_ids),
                    context_ms=context_ms,
                    denoise_ms=(time.perf_counter() - started) * 1e3,
                ),
            )
            if stop():
                return

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        """How sure the model is of `text` (see `likelihood`), a long one in sections; the text's end has no score."""
        score = functools.partial(self._score_section, stop)
        return score_in_sections(self.tokenizer, hole, text, section_tokens=SECTION_TOKENS, score=score)

    def count_tokens(self, text: str) -> int:
        """How many slots `text` takes."""
        return len(self.tokenizer.encode(encodable(text)))

    def _window(self, hole: HoleRequest) -> Window:
        return window(
            self.tokenizer,
            encodable(hole.prefix),
            encodable(hole.suffix),
            prefix_tokens=self.budget.prefix_tokens,
            suffix_tokens=self.budget.suffix_tokens,
        )

    def _around(self, hole: HoleRequest, cut: Window) -> Surroundings:
        """`[begin] other files, prefix [canvas] suffix [end]`; before no suffix, the end of text."""
        extra = "".join(f"{file.path}\n{file.text[:EXTRA_CHARACTERS]}\n" for file in hole.extra)
        extra_ids = self.tokenizer.encode(encodable(extra))[: self.budget.extra_tokens]
        return Surroundings(
            [self.control.begin, *extra_ids, *cut.prefix_ids],
            [*(() if _is_last(hole) else cut.suffix_ids), self.control.end],
        )

    def _tracks(
        self, hole: HoleRequest, cut: Window, around: Surroundings
    ) -> tuple[list[Track[Surroundings, MaskedRow]], int]:
        """One track per candidate, on surroundings of its own; and how many forwards the search for a length took."""
        edge = len(cut.left_ids) + len(self.tokenizer.encode(cut.right.decode()))
        length, searches = hole.max_tokens, 0
        if self._length is Length.SEARCH and not _is_last(hole) and length > 1:
            length, searches = find_length(self.network, around.once(), length, edge)
        tracks = [
            self._track(hole, cut, around.fork(), edge + length, index) for index in range(hole.candidates)
        ]
        return tracks, searches

    def _track(
        self, hole: HoleRequest, cut: Window, around: Surroundings, size: int, index: int
    ) -> Track[Surroundings, MaskedRow]:
        sampled = hole.temperature > 0
        canvas = self._canvas(hole, size)
        edges = Edges(
            self.tokenizer,
            left=cut.left,
            right=cut.right,
            # A canvas that shrinks has no END that a text would have to wait for; the mask is never written anyway.
            end_id=self.control.mask if isinstance(canvas, GrowingCanvas) else self.control.end,
            is_unfinished=functools.partial(leaves_line_open, prefix=hole.prefix, suffix=hole.suffix),
        )
        return Track(
            MaskedRow(canvas, edges, history=(), rank=0 if sampled else index),
            around,
            temperature=hole.temperature,
            generator=torch.Generator(self.device).manual_seed(hole.seed + index) if sampled else None,
        )

    def _canvas(self, hole: HoleRequest, size: int) -> Canvas:
        control = self.control
        if self._length is Length.EXPAND:
            assert control.expand is not None and control.delete is not None, "the family has them"
            first = size - max(0, hole.max_tokens - GROWING_SLOTS)
            return GrowingCanvas(first, size_max=size, expand_id=control.expand, delete_id=control.delete)
        return (Canvas if _is_last(hole) else BoundedCanvas)(size, end_id=control.end)

    def _score_section(self, stop: StopCheck, hole: HoleRequest, text: str, _ends: bool) -> Scores:
        started = time.perf_counter()
        cut = self._window(hole)
        around = self._around(hole, cut)
        left, right = cut.left.decode(errors="ignore"), cut.right.decode()
        ids = self.tokenizer.encode(left + text + right)
        found, forwards = probabilities(self.network, around.once(), ids, stop)
        tokens = token_scores(self.tokenizer, text, left=left, right=right, ids=ids, found=found)
        cost = Cost(
            forwards=forwards,
            context_tokens=len(around.prefix_ids) + len(around.suffix_ids),
            denoise_ms=(time.perf_counter() - started) * 1e3,
        )
        return Scores(tuple(tokens), cost, finished=len(found) == len(ids))


def _is_last(hole: HoleRequest) -> bool:
    """Whether nothing follows the hole: its text ends as the texts did that the model was trained on."""
    return not hole.suffix.strip()


def load(
    checkpoint: Checkpoint, placement: Placement, config: EngineConfig, progress: Progress
) -> MaskedModel:
    """The model of a checkpoint. Raises UnknownModelError, WeightsCorruptError or BadRequestError."""
    family, control = family_of(checkpoint)
    plan = masked_plan(config.sampler)
    tokenizer = load_tokenizer(checkpoint)
    window_tokens = min(family.window_tokens, places_of(checkpoint))
    network = _network(checkpoint, placement, config, family, control, tokenizer)
    return MaskedModel(
        name=checkpoint.name,
        network=network,
        tokenizer=tokenizer,
        control=control,
        length=family.length,
        plan=plan,
        budget=ContextBudget(
            min(config.prefix_tokens, int(window_tokens * PREFIX_SHARE)),
            min(config.suffix_tokens, int(window_tokens * SUFFIX_SHARE)),
            int(window_tokens * EXTRA_SHARE),
        ),
        device=network.device,
    )


def _network(
    checkpoint: Checkpoint,
    placement: Placement,
    config: EngineConfig,
    family: Family,
    control: ControlIds,
    tokenizer: BpeTokenizer,
) -> MaskedNetwork | OwnCodeNetwork:
    """The checkpoint's tensors in our blocks; in its own, for a name that the user has put on the list."""
    banned = _banned(tokenizer, control, rows_of(checkpoint))
    if checkpoint.name in config.trusted_models:
        model = load_own_code(checkpoint, placement)
        return OwnCodeNetwork(model, mask_id=control.mask, shifted=family.shifted, banned=banned)
    return MaskedNetwork(
        load_backbone(checkpoint, placement),
        mask_id=control.mask,
        shifted=family.shifted,
        banned=banned,
        backend="inductor" if placement.compiled else None,
    )


def _banned(tokenizer: BpeTokenizer, control: ControlIds, rows: int) -> Tensor:
    """bool [rows]: all but text and the control tokens that a model may write."""
    check_ids(tokenizer, rows, (*control.written, control.mask, control.begin))
    written = [*tokenizer.agreeing(b"").tolist(), *control.written]
    banned = torch.ones(rows, dtype=torch.bool)
    banned[written] = False
    return banned
