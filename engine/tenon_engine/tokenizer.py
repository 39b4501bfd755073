"""Text to ids and back, exact to the byte, and the two edges of a hole that fall inside a token (token healing).

Does not know models or the canvas. User text that spells a control token is encoded as plain text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tokenizers

from tenon_engine.view import IdArray

HEALED_TOKENS_MAX = 4
CONSTRAINT_MEMO = 256


def core_of(text: str) -> tokenizers.Tokenizer:
    """The tokenizer that the text of a tokenizer.json describes; ValueError when it describes none."""
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(str(error)) from error


class Tokenizer(Protocol):
    """What the diffusion loop needs of a vocabulary."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        ...

    def encode_for_hole(self, prefix: str) -> tuple[list[int], list[int]]:
        """Ids of `prefix`, in two parts: what stands before the last boundary, and the rest, to be healed."""
        ...

    def to_bytes(self, ids: Sequence[int]) -> bytes:
        """UTF-8 bytes that `ids` spell."""
        ...

    def agreeing(self, rest: bytes) -> IdArray:
        """Ids of all tokens that start with `rest`, then of those that `rest` starts with."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class TokenTable:
    """Bytes of every token. `order` lists the ids of non-empty tokens sorted by their bytes."""

    data: npt.NDArray[np.uint8]  # [total bytes]
    offsets: npt.NDArray[np.int32]  # [ids + 1]
    order: npt.NDArray[np.int32]  # [non-empty tokens]

    def token(self, token_id: int) -> bytes:
        """Bytes of one token."""
        return self.data[self.offsets[token_id] : self.offsets[token_id + 1]].tobytes()


class BpeTokenizer:
    """A byte-level BPE vocabulary."""

    def __init__(self, core: tokenizers.Tokenizer, table: TokenTable) -> None:
        self._core = core
        self._table = table
        self.agreeing = lru_cache(maxsize=CONSTRAINT_MEMO)(self._agreeing)

    @property
    def id_count(self) -> int:
        """One more than the highest id, be it of a text or of a control token."""
        return len(self._table.offsets) - 1

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        return list(self._core.encode(text, add_special_tokens=False).ids)

    def encode_for_hole(self, prefix: str) -> tuple[list[int], list[int]]:
        """Split at the start of the last word (of the pre-tokenizer), a few tokens back at most.

        A line end is a boundary of its own: nothing is healed after it.
        """
        encoding = self._core.encode(prefix, add_special_tokens=False)
        ids, words = list(encoding.ids), encoding.word_ids
        if not ids or prefix.endswith("\n"):
            return ids, []
        start = len(ids) - 1
        while start > 0 and words[start - 1] == words[-1] and len(ids) - start < HEALED_TOKENS_MAX:
            start -= 1
        return ids[:start], ids[start:]

    def to_bytes(self, ids: Sequence[int]) -> bytes:
        """UTF-8 bytes that `ids` spell."""
        return b"".join(map(self._table.token, ids))

    def _agreeing(self, rest: bytes) -> IdArray:
        order = self._table.order
        longer = order[self._rank(rest) : self._rank(_after(rest))]
        shorter = [
            order[rank]
            for length in range(1, len(rest))
            if (rank := self._rank(rest[:length])) < len(order)
            and self._table.token(int(order[rank])) == rest[:length]
        ]
        return np.concatenate([longer, np.asarray(shorter, dtype=np.int32)]).astype(np.int64)

    def _rank(self, key: bytes | None) -> int:
        """How many tokens sort before `key`; None sorts after everything."""
        low, high = 0, len(self._table.order)
        if key is None:
            return high
        while low < high:
            middle = (low + high) // 2
            if self._table.token(int(self._table.order[middle])) < key:
                low = middle + 1
            else:
                high = middle
        return low


def _after(prefix: bytes) -> bytes | None:
    """The first byte string that sorts after everything starting with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def valid_text(data: bytes) -> tuple[str, bool]:
    """Decode UTF-8 up to the first invalid or unfinished character; True when nothing had to be left off."""
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError as error:
        return data[: error.start].decode("utf-8"), False
