"""A model that makes do with less where the device's memory runs out: caches dropped, then smaller canvases.

Wraps a model and is one. Knows neither devices nor what the model keeps beyond that it can forget it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch

from tenon_engine import memory
from tenon_engine.errors import OutOfMemoryError
from tenon_engine.models.base import HoleRequest, Model, Proposal, Scores, StopCheck

TOKENS_MIN = 8  # of a hole; what would not fit into less is not worth the try
_COMPLAINTS = ("out of memory", "not enough memory", "can't allocate memory")  # CUDA's, and two of the CPU

logger = logging.getLogger(__name__)


@runtime_checkable
class Forgetful(Protocol):
    """A model that keeps contexts between fills."""

    def forget(self) -> None:
        """Drop every context that no fill is using."""
        ...


class FrugalModel:
    """`model`, which tries again with half the hole, and half the candidates, as often as its memory runs out.

    A fill that began anew shows steps of the smaller canvas after those of the larger one.
    """

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.budget = model.budget
        self.reads_instructions = model.reads_instructions
        self.device = model.device
        self.model = model
        self._was_told = False

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """See Model. Raises OutOfMemoryError when even the smallest hole is too large."""
        for smaller in _tries(hole):
            try:
                yield from self.model.propose(smaller, stop)
                return
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
            # Not in the handler, for the error holds the frames, and with them the tensors, of the step that failed.
            self._make_room()
        raise _nothing_left()

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        """See Model; tried a second time without the caches."""
        for _ in range(2):
            try:
                return self.model.score(hole, text, stop)
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
            self._make_room()
        raise _nothing_left()

    def count_tokens(self, text: str) -> int:
        """See Model."""
        return self.model.count_tokens(text)

    def _make_room(self) -> None:
        if not self._was_told:
            logger.warning("the device ran out of memory: caches are dropped, and holes are filled with less")
            self._was_told = True
        if isinstance(self.model, Forgetful):
            self.model.forget()
        memory.free()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _tries(hole: HoleRequest) -> Iterator[HoleRequest]:
    """The hole, then with less and less; the same once more where it is the smallest already."""
    yield hole
    while True:
        hole = dataclasses.replace(
            hole,
            max_tokens=max(min(TOKENS_MIN, hole.max_tokens), hole.max_tokens // 2),
            candidates=max(1, hole.candidates // 2),
        )
        yield hole
        if hole.max_tokens <= TOKENS_MIN and hole.candidates == 1:
            return


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(complaint in str(error) for complaint in _COMPLAINTS)


def _nothing_left() -> OutOfMemoryError:
    return OutOfMemoryError(
        f"the device has no memory left for a canvas of {TOKENS_MIN} tokens; end other programs that use it, set a "
        "smaller engine.prefix_tokens, or load the model quantised (engine.quantization)"
    )
