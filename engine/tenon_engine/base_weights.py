"""The base weights of the embedded model: the files the engine loads, found or made.

Owns the folder layout, the lock between processes, and when a conversion counts as done.
Does not know where the source file comes from (`base_fetch`) nor what is in a converted one (`base_convert`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from tenon_engine import base_convert, base_fetch
from tenon_engine.base_convert import Dtype as Dtype  # re-exported: a caller of `ensure` names one
from tenon_engine.base_fetch import OFFICIAL, BaseSource
from tenon_engine.errors import StorageError, WeightsCorruptError, WeightsMissingError
from tenon_engine.progress import Progress, silent

MODEL_NAME = "tenon-0.5b"
_SPACE_NEEDED = "3 GB"  # the GGUF file, a converted file, and some room


@dataclasses.dataclass(frozen=True, slots=True)
class BaseFiles:
    """What the engine loads: converted weights (safetensors) and the tokenizer (tokenizer.json)."""

    weights: Path
    tokenizer: Path


def folder_of(home: Path | None) -> Path:
    """The model's folder under `home`, or under the user's data folder."""
    return (home or Path(platformdirs.user_data_dir("tenon"))) / "models" / MODEL_NAME


def locate(home: Path | None, *, dtype: Dtype, source: BaseSource = OFFICIAL) -> BaseFiles | None:
    """The converted files if they are there and whole; costs no more than two small reads."""
    folder = folder_of(home)
    files = _converted_files(folder, dtype, source)
    return files if _is_complete(files, source) else None


def locate_source(home: Path | None, *, source: BaseSource = OFFICIAL) -> Path | None:
    """The GGUF file, in the model's folder or in the hub's cache, if it is there in its right size; unverified."""
    own = folder_of(home) / source.file_name
    path = own if own.exists() else base_fetch.find_in_hub_cache(source)
    return path if path is not None and path.stat().st_size == source.size_bytes else None


def ensure(
    home: Path | None,
    *,
    offline: bool,
    dtype: Dtype,
    source_file: Path | None = None,
    progress: Progress = silent,
    source: BaseSource = OFFICIAL,
) -> BaseFiles:
    """The converted files, fetched and converted first where they are not there yet.

    `source_file` is the user's own copy of the GGUF file: checked and copied even if nothing is missing.
    Raises WeightsMissingError, WeightsCorruptError, InputFileError or StorageError.
    """
    if source_file is None and (present := locate(home, dtype=dtype, source=source)):
        return present
    folder = folder_of(home)
    files = _converted_files(folder, dtype, source)
    with _storage_errors(folder), _only_process(folder, progress):
        if source_file is None and _is_complete(files, source):  # another process was faster
            return files
        gguf = _obtain(folder, files, source, offline, source_file, progress)
        if not _is_complete(files, source):
            _convert(gguf, files, dtype, source, progress)
    return files


def discard_changed(
    home: Path | None, *, dtype: Dtype, progress: Progress = silent, source: BaseSource = OFFICIAL
) -> None:
    """Forget converted files that are not what was written, byte for byte, so that `ensure` remakes them."""
    folder = folder_of(home)
    files = _converted_files(folder, dtype, source)
    if not _is_complete(files, source):
        return
    with _storage_errors(folder), _only_process(folder, progress):
        if _read_sidecar(files) != _describe(files, progress):
            _sidecar(files).unlink()


def _converted_files(folder: Path, dtype: Dtype, source: BaseSource) -> BaseFiles:
    """Names carry all that the content depends on, so that a new version never reads an old file."""
    origin, version = source.sha256[:8], base_convert.FORMAT_VERSION
    return BaseFiles(
        weights=folder / f"base-{origin}-{dtype.value}-v{version}.safetensors",
        tokenizer=folder / f"tokenizer-{origin}-v{version}.json",
    )


def _is_complete(files: BaseFiles, source: BaseSource) -> bool:
    return not _fault(files, source)


def _fault(files: BaseFiles, source: BaseSource) -> str:
    """Which of the files is not as it was written, in words; '' when none is."""
    recorded = _read_sidecar(files)
    for path in (files.weights, files.tokenizer):
        try:
            if path.stat().st_size != recorded[path.name]["size_bytes"]:
                return f"{path} is damaged"
        except OSError:
            return f"{path} is missing"
        except (KeyError, TypeError):
            return f"{_sidecar(files)} is missing or damaged"
    intact = base_convert.is_intact(files.weights, source_sha256=source.sha256)
    return "" if intact else f"{files.weights} is damaged"


def _sidecar(files: BaseFiles) -> Path:
    """Written last: while it is missing, the conversion is not done."""
    return files.weights.with_suffix(".json")


def _read_sidecar(files: BaseFiles) -> Any:
    try:
        return json.loads(_sidecar(files).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _describe(files: BaseFiles, progress: Progress) -> dict[str, dict[str, int | str]]:
    return {
        path.name: {"size_bytes": path.stat().st_size, "sha256": base_fetch.sha256(path, progress)}
        for path in (files.weights, files.tokenizer)
    }


@contextlib.contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    """Inside, an OSError can only be about the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in base_fetch.FULL_DISK:
            raise StorageError(
                f"the disk is full: {folder} needs {_SPACE_NEEDED} free, and what was fetched is kept: "
                "make room and run `tenon model fetch` again"
            ) from error
        raise StorageError(f"{folder} cannot be used: {error.strerror or error}") from error


@contextlib.contextmanager
def _only_process(folder: Path, progress: Progress) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress("wait", 0, 0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _obtain(
    folder: Path,
    files: BaseFiles,
    source: BaseSource,
    offline: bool,
    source_file: Path | None,
    progress: Progress,
) -> Path:
    try:
        return base_fetch.obtain(folder, source, offline=offline, source_file=source_file, progress=progress)
    except WeightsMissingError as error:
        if files.weights.exists():
            raise WeightsCorruptError(f"{_fault(files, source)}, and {error}") from error
        raise


def _convert(gguf: Path, files: BaseFiles, dtype: Dtype, source: BaseSource, progress: Progress) -> None:
    sidecar = _sidecar(files)
    sidecar.unlink(missing_ok=True)
    base_convert.convert(
        gguf, files.weights, files.tokenizer, dtype=dtype, source_sha256=source.sha256, progress=progress
    )
    with base_fetch.appearing_complete(sidecar) as path:
        path.write_text(json.dumps(_describe(files, progress)), encoding="utf-8")
