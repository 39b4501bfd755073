"""The two edges of a hole that may fall inside a token, as constraints on what its slots may take (token healing).

Left: the text taken back from the prefix must be spelt again by the first slots. Right: the text taken back from the
suffix (the rest of a word, line ends) must end the fill. Both are removed from the fill again, so that prefix + fill +
suffix is the user's text outside the hole, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon_engine.tokenizer import Tokenizer, valid_text
from tenon_engine.view import Constraint


def _never(_: str) -> bool:
    return False


class Edges:
    """Constraints of one hole; `left` and `right` are the UTF-8 bytes taken back on each side.

    A text that `is_unfinished` may not be followed by END.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        left: bytes,
        right: bytes,
        end_id: int,
        is_unfinished: Callable[[str], bool] = _never,
    ) -> None:
        self._tokenizer = tokenizer
        self._left = left
        self._right = right
        self._end_id = end_id
        self._is_unfinished = is_unfinished

    def healing(self, text_ids: Sequence[int]) -> bool:
        """True while the left edge is not spelt out by `text_ids`."""
        return len(self._left) > 0 and len(self._tokenizer.to_bytes(text_ids)) < len(self._left)

    def constraint(self, text_ids: Sequence[int]) -> Constraint | None:
        """What may follow `text_ids`, the decided or drafted text from the start of the canvas."""
        text = self._tokenizer.to_bytes(text_ids)
        if len(text) < len(self._left):
            return Constraint(only=self._tokenizer.agreeing(self._left[len(text) :]))
        fill = text[len(self._left) :]
        if not fill.endswith(self._right) or self._is_unfinished(
            fill.removesuffix(self._right).decode(errors="ignore")
        ):
            return Constraint(never=self._end_id)
        return None

    def constraint_ahead(self) -> Constraint | None:
        """What slots may take whose text before them is not known yet: no END, if that has to follow the right edge."""
        return Constraint(never=self._end_id) if self._right else None

    def fills_line(self, text_ids: Sequence[int]) -> bool:
        """True when `text_ids` hold a line end behind something that is not blank."""
        return b"\n" in self._tokenizer.to_bytes(text_ids)[len(self._left) :].lstrip()

    def fill(self, text_ids: Sequence[int], *, ended: bool) -> tuple[str, bool]:
        """The text for the hole, both edges removed; False when it is only a part of what was meant."""
        data = self._tokenizer.to_bytes(text_ids)
        assert data.startswith(self._left) or self._left.startswith(data), (
            "the left edge is always spelt again"
        )
        data = data[len(self._left) :]
        if self._right:
            ended = ended and data.endswith(self._right)
            data = data.removesuffix(self._right)
        text, whole = valid_text(data)
        return text, ended and whole
