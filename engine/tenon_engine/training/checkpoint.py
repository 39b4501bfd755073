"""Checkpoints: all that a run needs to go on, in one file that is whole or the one before.

Owns the folder's layout. Knows no models and no optimiser: tensors by name, and a few numbers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tenon_engine.base_fetch import appearing_complete
from tenon_engine.errors import BadRequestError, StorageError, WeightsCorruptError
from tenon_engine.training.state import State

FILE_NAME, LOG_NAME = "checkpoint.safetensors", "log.jsonl"
_PARTS = ("weights", "average", "first_moment", "second_moment")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A run between two steps."""

    step: int  # steps done
    trained_s: float  # time spent on them
    settings: Mapping[str, Any]  # what it was started with
    weights: State
    average: State  # of the weights over the last steps: what is evaluated and packed
    first_moment: State
    second_moment: State


def save(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write it, then put it in the place of the one before. Raises StorageError."""
    path = folder / FILE_NAME
    tensors = {
        f"{part}/{name}": tensor.detach().cpu().contiguous()
        for part in _PARTS
        for name, tensor in getattr(checkpoint, part).items()
    }
    progress = {"step": checkpoint.step, "trained_s": checkpoint.trained_s, "settings": checkpoint.settings}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with appearing_complete(path) as growing:
            save_file(tensors, growing, {"progress": json.dumps(progress)})
    except (OSError, SafetensorError) as error:
        raise StorageError(f"{path} cannot be written ({error}): the checkpoint before is kept") from error
    return path


def load(folder: Path) -> Checkpoint | None:
    """The checkpoint in a folder; None when there is none."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    parts: dict[str, State] = {part: {} for part in _PARTS}
    try:
        with safe_open(path, "pt") as file:
            progress: dict[str, Any] = json.loads(file.metadata()["progress"])
            for key in file.keys():  # noqa: SIM118  # it is no dictionary
                part, _, name = key.partition("/")
                parts[part][name] = file.get_tensor(key).clone()
        return Checkpoint(**progress | parts)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise WeightsCorruptError(f"{path} is damaged: remove it to begin again") from error


def check_settings(checkpoint: Checkpoint, settings: Mapping[str, Any], folder: Path) -> None:
    """Refuse to go on with other settings than the run was started with."""
    before = _flat(checkpoint.settings)
    different = [name for name, value in _flat(settings).items() if before.get(name) != value]
    if different:
        raise BadRequestError(
            f"the run in {folder} was started with other settings ({', '.join(different)}): "
            "use the same, or name another folder"
        )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found
