"""What an evaluation has measured, one JSON line per task, so that an interrupted run goes on where it stopped.

A line says what it was measured with; lines of other models or settings may stand in the same file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tenon_engine.config import EngineConfig
from tenon_engine.errors import InputFileError, StorageError
from tenon_engine.runtime import EMBEDDED

_SETTINGS = (
    "sampler",
    "max_tokens",
    "prefix_tokens",
    "suffix_tokens",
    "path_header",
    "min_confidence",
    "dtype",
    "quantization",
)
"""Of the configuration, what changes a fill."""

Row = Mapping[str, Any]
T = TypeVar("T")


def setting(config: EngineConfig, suite: str, *, is_calibrated: bool = True) -> Row:
    """What decides a row beside its task."""
    has_weights = config.model == EMBEDDED
    return {
        "suite": suite,
        "model": config.model,
        "weights": _weights_digest(config, is_calibrated=is_calibrated) if has_weights else "",
        **{name: getattr(config, name) for name in _SETTINGS},
    }


def read(path: Path | None, setting: Row, restore: Callable[[Row], T]) -> dict[str, T]:
    """What `restore` makes of the rows of this setting, by their task_id.

    InputFileError when the file holds something else.
    """
    outcomes: dict[str, T] = {}
    if path is None or not path.is_file():
        return outcomes
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for line in lines:
            if not line.endswith("\n") and line.startswith("{"):  # its writer was killed
                continue
            row = json.loads(line)
            if setting.items() <= row.items():
                own = {name: value for name, value in row.items() if name not in setting}
                outcomes[row["task_id"]] = restore(own)
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(f"{path} holds no rows of an evaluation: name another file") from error
    return outcomes


@contextlib.contextmanager
def appending(path: Path | None, setting: Row) -> Iterator[Callable[[Any], None]]:
    """A function that adds an outcome (a dataclass) with this setting to the file, or nowhere."""
    if path is None:
        yield lambda outcome: None
        return

    def write(outcome: Any) -> None:
        row = {**setting, **dataclasses.asdict(outcome)}
        print(json.dumps(row, default=_value), file=file, flush=True)

    try:
        _drop_unfinished_line(path)
        file = path.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    with file:
        yield write


def _weights_digest(config: EngineConfig, *, is_calibrated: bool) -> str:
    """Of the adapter, and of the calibration where it is used."""
    from tenon_engine.models.embedded import ADAPTER_PATH, calibration_of  # which imports torch

    adapter = config.adapter or ADAPTER_PATH
    digest = hashlib.sha256(adapter.read_bytes() if adapter.is_file() else b"")
    digest.update(repr(calibration_of(adapter) if is_calibrated else None).encode())
    return digest.hexdigest()[:16]


def _value(member: object) -> object:
    """What stands in a row for the member of an enumeration."""
    assert isinstance(member, enum.Enum), f"no JSON for {member!r}"
    return member.value


def _drop_unfinished_line(path: Path) -> None:
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
