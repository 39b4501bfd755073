"""The weight files of a checkpoint, read by their headers alone: 50 GB are checked in a moment.

Does not know what the tensors mean, nor where they will be loaded.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from tenon_engine.errors import WeightsCorruptError, WeightsMissingError
from tenon_engine.models.hub.json_file import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
CODE_BEARING = (".bin", ".pt", ".pth", ".ckpt", ".pkl")  # formats that may run code when they are read
AGAIN = "get the checkpoint again"


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as a header describes it; `dtype` is safetensors' name, such as BF16."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a checkpoint by name, and the bytes of its files."""

    tensors: Mapping[str, Stored]
    size_bytes: int

    @property
    def parameters(self) -> Counter[str]:
        """How many numbers there are of each dtype."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors.values():
            counts[tensor.dtype] += tensor.count
        return counts


def read(folder: Path) -> Weights:
    """The weights in `folder`; WeightsMissingError or WeightsCorruptError says which file is not as it should be."""
    if missing := missing_files(folder):
        raise WeightsMissingError(f"{folder} lacks {_some(missing)}: {AGAIN}")
    listed = _listed(folder)
    paths = [folder / name for name in sorted(set(listed.values())) or [SINGLE]]
    tensors: dict[str, Stored] = {}
    for path in paths:
        found = _header(path)
        lost = [tensor for tensor, file in listed.items() if file == path.name and tensor not in found]
        if lost:
            raise WeightsCorruptError(f"{path} lacks {_some(lost)}, which {INDEX} lists: {AGAIN}")
        tensors |= found
    return Weights(tensors, sum(path.stat().st_size for path in paths))


def missing_files(folder: Path) -> list[str]:
    """Weight files that should be in `folder` and are not; raises when nothing in it says which there should be."""
    names = sorted(set(_listed(folder).values()))
    if not names and not (folder / SINGLE).is_file():
        raise no_weights(str(folder), (path.name for path in folder.iterdir()))
    return [name for name in names if not (folder / name).is_file()]


def no_weights(place: str, file_names: Iterable[str]) -> WeightsMissingError:
    """Why none of these files can be loaded."""
    kinds = sorted({suffix for name in file_names if (suffix := Path(name).suffix) in CODE_BEARING})
    if kinds:
        return WeightsMissingError(
            f"{place} has its weights in {' and '.join(kinds)} files only, which could run code when they are read: "
            "take a checkpoint in safetensors, or convert it"
        )
    return WeightsMissingError(f"{place} has no weights, neither {SINGLE} nor {INDEX}")


def _listed(folder: Path) -> dict[str, str]:
    """Which file holds which tensor, as the index says; empty without one."""
    listed = read_json(folder / INDEX).get("weight_map", {})
    if not isinstance(listed, dict) or not all(_is_file_name(name) for name in listed.values()):
        raise WeightsCorruptError(f"{folder / INDEX} is damaged: {AGAIN}")
    return listed


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name


def _header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, "numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # no mapping
            return {name: Stored(part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise WeightsCorruptError(f"{path} is damaged or was cut off ({error}): {AGAIN}") from error


def _some(names: list[str]) -> str:
    more = len(names) - 1
    return names[0] if not more else f"{names[0]} and {more} more"
