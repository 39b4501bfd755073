"""A toy network with a byte vocabulary: no weights, deterministic, and honest about what an entry can see.

Its logits are a hash of exactly the tokens an entry sees, so any mistake in views, caches or batching changes its
answers. It drives the tests of everything around a model and knows none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tenon_engine.diffusion import SpecialIds
from tenon_engine.view import OPEN, IdArray, View

END = 256
SPECIAL = SpecialIds(prefix=257, middle=258, suffix=259, file=260, end=END)


class ByteTokenizer:
    """One token per UTF-8 byte."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        return list(text.encode())

    def encode_for_hole(self, prefix: str) -> tuple[list[int], list[int]]:
        """Every byte is a boundary: nothing to heal."""
        return self.encode(prefix), []

    def to_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes themselves."""
        return bytes(ids)

    def agreeing(self, rest: bytes) -> IdArray:
        """The one byte that may come next."""
        return np.array([rest[0]], dtype=np.int64)


class ToyContext:
    """Ids of a context, and what the entries of earlier forwards read, by place."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.kept: dict[int, int] = {}

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` ids."""
        del self.ids[length:]

    def fork(self) -> ToyContext:
        """An independent copy."""
        copy = ToyContext()
        copy.ids = list(self.ids)
        return copy


class ToyNetwork:
    """`vocabulary` ids get logits; `sharpness` scales them (0: all equal)."""

    def __init__(self, vocabulary: int = END + 1, *, sharpness: float = 6.0) -> None:
        self._vocabulary = vocabulary
        self._sharpness = sharpness
        self.forwards = 0

    def new_context(self) -> ToyContext:
        """An empty context."""
        return ToyContext()

    def extend(self, context: ToyContext, ids: Sequence[int]) -> None:
        """Remember `ids`."""
        context.ids.extend(ids)

    defer = extend

    def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
        """Logits f32 [scored, vocabulary] per row."""
        self.forwards += 1
        return [
            torch.stack([self._logits(context, view, entry) for entry in view.scored])
            for context, view in passes
        ]

    def _logits(self, context: ToyContext, view: View, entry: int) -> Tensor:
        kept = [(place, context.kept[place]) for place in range(view.kept)]
        seen = [
            (place, token)
            for place, token, visible in zip(view.places, view.reads, view.sees[entry], strict=True)
            if visible and (token != OPEN or place == view.places[entry])
        ]
        context.kept.update(zip(view.places[: view.keepable], view.reads[: view.keepable], strict=True))
        key = repr((context.ids, view.places[entry], sorted(kept + seen)))
        seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little", signed=True)
        return torch.randn(self._vocabulary, generator=torch.Generator().manual_seed(seed)) * self._sharpness
