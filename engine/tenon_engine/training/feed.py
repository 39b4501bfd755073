"""Batches made ahead of their use, in a thread or in processes of their own, so that no core waits for one.

Every batch follows from its number, so it does not matter who makes it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tenon_engine.base_weights import BaseFiles
from tenon_engine.diffusion import SpecialIds
from tenon_engine.models.embedded import load_tokenizer
from tenon_engine.training import processes
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.examples import Batch, ExampleMaker
from tenon_engine.training.options import ExampleOptions

AHEAD = 2  # batches per worker


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """All that a worker needs to make batches."""

    corpus: Path
    files: BaseFiles
    special: SpecialIds
    options: ExampleOptions
    held_out: bool = False


@functools.cache
def maker_of(recipe: Recipe) -> ExampleMaker:
    """Its maker, one in each process."""
    tokenizer = load_tokenizer(recipe.files)
    corpus = Corpus.open(recipe.corpus)
    return ExampleMaker(corpus, tokenizer, recipe.special, recipe.options, held_out=recipe.held_out)


class Feed:
    """Batches in order; `waited_s` is how long they were waited for."""

    def __init__(self, executor: Executor, recipe: Recipe, *, first: int, ahead: int) -> None:
        self.waited_s = 0.0
        self._executor = executor
        self._recipe = recipe
        self._next = first
        self._ahead = ahead
        self._coming: deque[Future[Batch]] = deque()

    def take(self) -> Batch:
        """The next batch."""
        while len(self._coming) <= self._ahead:
            self._coming.append(self._executor.submit(_make, self._recipe, self._next))
            self._next += 1
        started = time.perf_counter()
        batch = self._coming.popleft().result()
        self.waited_s += time.perf_counter() - started
        return batch


@contextmanager
def feeding(recipe: Recipe, *, first: int, workers: int) -> Iterator[Feed]:
    """A feed that begins with batch `first`; 0 workers: a thread."""
    executor: Executor = processes.pool(workers) if workers else ThreadPoolExecutor(1)
    try:
        yield Feed(executor, recipe, first=first, ahead=AHEAD * max(1, workers))
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _make(recipe: Recipe, number: int) -> Batch:
    return maker_of(recipe).batch(number)
