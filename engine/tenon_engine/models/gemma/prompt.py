"""What the encoder reads: far context first and the hole's prefix last, so that typing only appends to what is encoded.

A plain prefix continues plain text. With an instruction, a checkpoint that chats reads what is wanted as a user's turn,
and the prefix as the beginning of its own. Knows no windows and no tensors; text of a user never becomes a control
token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tenon_engine.comment import with_instruction
from tenon_engine.models.base import HoleRequest
from tenon_engine.proposals import encodable
from tenon_engine.tokenizer import Tokenizer

PATH_CHARACTERS = 200
EXTRA_CHARACTERS = 8192
INSTRUCTION_CHARACTERS = 4000

# The beginning of a user's turn, then its end and the beginning of the model's: control tokens and plain text in turn.
# A large Gemma 4 thinks aloud unless its thoughts are given, empty.
TURNS = (
    (
        ("<|turn>", "user\n"),
        ("<turn|>", "\n", "<|turn>", "model\n", "<|channel>", "thought\n", "<channel|>", ""),
    ),
    (("<|turn>", "user\n"), ("<turn|>", "\n", "<|turn>", "model\n")),
    (("<start_of_turn>", "user\n"), ("<end_of_turn>", "\n", "<start_of_turn>", "model\n")),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Turns:
    """Ids that begin a user's turn, and ids that end it and begin the model's."""

    user: list[int]
    model: list[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """The layout of one checkpoint; `turns` is None for one that does not chat."""

    tokenizer: Tokenizer
    begin_id: int
    turns: Turns | None
    extra_tokens: int
    path_header: bool

    def prefix(self, hole: HoleRequest) -> str:
        """The hole's prefix; an instruction is part of it where there are no turns."""
        if self.turns is not None or not hole.instruction:
            return encodable(hole.prefix)
        return encodable(with_instruction(hole.prefix, hole.instruction, hole.language))

    def ids(self, hole: HoleRequest, prefix_ids: Sequence[int]) -> list[int]:
        """All that the encoder reads for a hole."""
        path = f"{hole.path[-PATH_CHARACTERS:]}\n" if hole.path and self.path_header else ""
        if self.turns is None or not hole.instruction:
            return [self.begin_id, *self._far(hole), *self._encode(path), *prefix_ids]
        wish = hole.instruction[:INSTRUCTION_CHARACTERS]
        return [
            self.begin_id,
            *self.turns.user,
            *self._far(hole),
            *self._encode(f"{path}{wish}\nAnswer with the text of the file alone."),
            *self.turns.model,
            *prefix_ids,
        ]

    def _far(self, hole: HoleRequest) -> list[int]:
        """The other files, each under its path."""
        ids: list[int] = []
        for extra in hole.extra:
            ids += self._encode(f"{extra.path[-PATH_CHARACTERS:]}\n{extra.text[:EXTRA_CHARACTERS]}\n\n")
        return ids[: self.extra_tokens]

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(encodable(text))


def turns(tokenizer: Tokenizer, control_id: Callable[[str], int | None]) -> Turns | None:
    """How a checkpoint with these control tokens chats; None when it does not, in a way that is known here."""
    for user, model in TURNS:
        found = [_spelt(tokenizer, part, control_id) for part in (user, model)]
        if found[0] is not None and found[1] is not None:
            return Turns(found[0], found[1])
    return None


def _spelt(
    tokenizer: Tokenizer, parts: Sequence[str], control_id: Callable[[str], int | None]
) -> list[int] | None:
    ids: list[int] = []
    for control, text in zip(parts[::2], parts[1::2], strict=True):
        found = control_id(control)
        if found is None:
            return None
        ids += [found, *tokenizer.encode(text)]
    return ids
