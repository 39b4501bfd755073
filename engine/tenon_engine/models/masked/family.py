"""The masked families: what each one's checkpoints call their tokens, where a logit stands, what finds a hole's length.

A new family is one row of the table and, where its tensors have names of their own, a map in `weights`. Knows no
tensors.
"""

from __future__ import annotations

import dataclasses
import enum

from tenon_engine.errors import UnknownModelError
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.vocabulary import special_id


class Length(enum.Enum):
    """What finds the length of a hole that has a suffix; without one the end of text fills the canvas's tail.

    The end of text cuts a canvas of the second kind as well, where a model writes it.
    """

    EXPAND = "expand"  # tokens of the model's own grow and shrink the canvas (DreamOn, arXiv 2602.01326)
    SEARCH = "search"  # the first step's confidence does, over a few lengths (CAL, arXiv 2602.00476)


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """What checkpoints of one architecture have in common."""

    architecture: str  # as config.json spells it
    mask: tuple[str, ...]  # what names the mask: a key of config.json, or a role in the tokenizer's settings
    shifted: bool  # logits predict the next place, as those of the left-to-right model it was made from
    length: Length
    window_tokens: int  # it was trained on
    expand: str = ""  # text of the token that opens a second slot
    delete: str = ""  # text of the token that closes a slot; where a vocabulary has none, the end of text


# The first row whose architecture and expand token a checkpoint has. Dream, Dream-Coder and DiffuCoder share one. They
# were trained to fill up what follows a text with its end, but not in front of a suffix: the authors of DreamOn find
# Dream-Coder 38 % worse where a hole has not the right length. So theirs is searched for as well.
FAMILIES = (
    Family(
        "LLaDAModelLM",
        ("mask_token_id", "mask_token"),
        shifted=False,
        length=Length.SEARCH,
        window_tokens=4096,
    ),
    Family(
        "DreamModel",
        ("mask_token_id", "mask_token"),
        shifted=True,
        length=Length.EXPAND,
        window_tokens=2048,
        expand="<|expand|>",
        delete="<|delete|>",
    ),
    Family(
        "DreamModel", ("mask_token_id", "mask_token"), shifted=True, length=Length.SEARCH, window_tokens=2048
    ),
    # Open-dCoder keeps the name of the model it was made from; its tokenizer alone says that it knows a mask.
    Family("Qwen2ForCausalLM", ("mask_token",), shifted=True, length=Length.SEARCH, window_tokens=2048),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ControlIds:
    """Control tokens of a vocabulary; `expand` and `delete` where the family has them."""

    mask: int
    begin: int
    end: int
    expand: int | None = None
    delete: int | None = None

    @property
    def written(self) -> tuple[int, ...]:
        """Those a model may write into a hole."""
        return tuple({token for token in (self.end, self.expand, self.delete) if token is not None})


def family_of(checkpoint: Checkpoint) -> tuple[Family, ControlIds]:
    """The row of a checkpoint and its control tokens; UnknownModelError when it is no masked diffusion model."""
    for family in FAMILIES:
        if family.architecture != checkpoint.architecture:
            continue
        expand = special_id(checkpoint, family.expand) if family.expand else None
        if family.length is Length.EXPAND and expand is None:
            continue
        return family, _control_ids(checkpoint, family, expand)
    raise UnknownModelError(f"{checkpoint.name} is a {checkpoint.architecture}, no masked diffusion model")


def _control_ids(checkpoint: Checkpoint, family: Family, expand: int | None) -> ControlIds:
    mask = _id(checkpoint, *family.mask)
    if mask is None:
        raise UnknownModelError(
            f"{checkpoint.name} has no mask token: it writes from left to right and is no diffusion model"
        )
    end = _id(checkpoint, "eos_token_id", "eos_token")
    if end is None:
        raise UnknownModelError(f"{checkpoint.name} does not say which token ends a text")
    begin = special_id(checkpoint, "bos_token")  # not config.json, where Dream names another
    delete = special_id(checkpoint, family.delete) if family.delete else None
    return ControlIds(
        mask=mask,
        begin=end if begin is None else begin,  # in a row of documents, one begins where another ends
        end=end,
        expand=expand,
        delete=end if expand is not None and delete is None else delete,
    )


def _id(checkpoint: Checkpoint, *keys: str) -> int | None:
    """The first token that one of `keys` names, in config.json or in the tokenizer's settings."""
    for key in keys:
        value = checkpoint.config.get(key)
        found = value if isinstance(value, int) else special_id(checkpoint, key)
        if found is not None:
            return found
    return None
