"""The encoder's keys and values of one session's text: exact after any edit, and cut to what the decoder may see.

The master keeps every token in every layer. A cache that knows the sliding windows forgets what has left them, so that
what is taken back beyond a window is lost; and the decoder masks nothing, so it must be given the windows alone. Owns
ids and tensors; knows no canvas and no text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache


@dataclasses.dataclass(frozen=True, slots=True)
class PrefixView:
    """Keys and values of every layer for one batch of canvases that start at place `length`."""

    keys: tuple[Tensor, ...]  # [rows, heads, tokens, width]
    values: tuple[Tensor, ...]  # [rows, heads, tokens, width]
    hidden: tuple[int, ...]  # how many of a layer's tokens, the last ones, are padding
    length: int

    def expanded(self, rows: int) -> PrefixView:
        """The same for `rows` canvases, without a copy."""
        keys, values = (
            tuple(each.expand(rows, -1, -1, -1) for each in tensors) for tensors in (self.keys, self.values)
        )
        return dataclasses.replace(self, keys=keys, values=values)


class PrefixCache:
    """Keys and values of `ids`. What an encoder that fails leaves half done is dropped whole."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._master = DynamicCache()
        self._padded: PrefixView | None = None

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` ids."""
        if length < len(self.ids):
            self._master.crop(length - len(self.ids))
            del self.ids[length:]
            self._padded = None

    def extend(self, encode: Callable[..., Any], ids: Sequence[int], device: torch.device) -> None:
        """Encode `ids` behind what is there."""
        try:
            encode(input_ids=torch.tensor([ids], device=device), cache=self._master)
        except BaseException:
            self.ids, self._master = [], DynamicCache()
            raise
        self.ids += ids
        self._padded = None

    def fork(self) -> PrefixCache:
        """An independent copy."""
        copy = PrefixCache()
        copy.ids = list(self.ids)
        for index, (keys, values) in enumerate(self._tensors()):
            copy._master.update(keys, values, index)
        return copy

    def view(self, windows: Sequence[int | None]) -> PrefixView:
        """What each layer sees: all tokens, or no more than the last ones of its window. Shares its storage."""
        keys, values = (
            tuple(
                tensor if window is None else tensor[:, :, -window:]
                for tensor, window in zip(tensors, windows, strict=True)
            )
            for tensors in zip(*self._tensors(), strict=True)
        )
        return PrefixView(keys, values, hidden=(0,) * len(keys), length=len(self.ids))

    def padded_view(self, windows: Sequence[int | None], tokens: int) -> PrefixView:
        """The same with `tokens` tokens in every layer, or its window where that is less; made once for all steps."""
        if self._padded is None:
            view = self.view(windows)
            sizes = [tokens if window is None else min(window, tokens) for window in windows]
            hidden = tuple(size - keys.shape[2] for size, keys in zip(sizes, view.keys, strict=True))
            keys, values = (
                tuple(pad(each, (0, 0, 0, count)) for each, count in zip(tensors, hidden, strict=True))
                for tensors in (view.keys, view.values)
            )
            self._padded = PrefixView(keys, values, hidden, view.length)
        return self._padded

    def _tensors(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of every layer."""
        layers: list[Any] = self._master.layers
        return [(layer.keys, layer.values) for layer in layers]
