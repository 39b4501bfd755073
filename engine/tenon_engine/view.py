"""What one forward pass looks at: which token each entry reads, at which place, and who sees whom.

A view is the contract between a plan (who decides when) and a model (who owns the device): no tensors of the model,
no ids of a vocabulary beyond those it carries.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

BoolMatrix = npt.NDArray[np.bool_]
IdArray = npt.NDArray[np.int64]


OPEN = -1  # read by an entry whose preceding slot is open: the mask embedding
START = -2  # read by the entry of place 0: the token that opens the hole


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """What a slot may take: `only` these ids (None = any), and not `never`."""

    only: IdArray | None = None
    never: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Entries of one row. Logits are shifted by one: the entry of place p reads token p-1 and predicts token p.

    Every entry sees the whole context and the `kept` entries of earlier forwards; among themselves entries see what
    `sees` says. The first `keepable` entries look left only, so their keys and values hold for as long as what they
    read stays decided.
    """

    reads: tuple[int, ...]  # [entries] id, OPEN or START
    places: tuple[int, ...]  # [entries] canvas place each entry predicts
    sees: BoolMatrix  # [entries, entries] row entry sees column entry
    kept: int  # entries of earlier forwards that still hold, of places 0..kept-1
    keepable: int
    scored: tuple[int, ...]  # entries whose logits are wanted
    constraints: tuple[Constraint | None, ...]  # [scored]
    adapted: bool = True  # False: the base weights alone, the yardstick
