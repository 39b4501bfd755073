"""From a model's name to a checkpoint on disk whose files are all there: a folder, or a hub id with its revision.

A folder is taken as it is. A hub id is looked for in the Hugging Face cache, which other programs share, and downloaded
into it when it is not there whole. Does not know devices, nor how weights are loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenon_engine.errors import EngineError, WeightsMissingError
from tenon_engine.models.hub import download, shards
from tenon_engine.models.hub.families import FAMILIES, check_architecture
from tenon_engine.models.hub.json_file import read_json
from tenon_engine.models.hub.names import check_name, parts_of
from tenon_engine.progress import Progress
from tenon_engine.runtime import model_folder


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk whose files are all there."""

    name: str  # as the user spelt it: hub id or path
    folder: Path
    architecture: str  # of config.json's "architectures"[0]
    config: Mapping[str, Any]  # config.json


def find(name: str, *, offline: bool, progress: Progress, with_code: bool = False) -> Checkpoint:
    """The checkpoint called `name`, downloaded first where that is needed and allowed; its own code, too, if wanted.

    Raises InputFileError, UnknownModelError, WeightsMissingError, WeightsCorruptError or StorageError.
    """
    folder = model_folder(name) or _from_hub(name, offline=offline, with_code=with_code, progress=progress)
    config = read_json(folder / "config.json")
    if not config:
        raise WeightsMissingError(f"{folder} has no config.json: it holds no model of the hub")
    architecture = download.architecture_of(config)
    check_architecture(name, architecture)
    shards.read(folder)
    return Checkpoint(name, folder, architecture, config)


def find_here(name: str) -> Path | None:
    """The folder of the checkpoint if it is on this machine as a whole. Never uses the network."""
    check_name(name)
    if (folder := model_folder(name)) is not None:
        return folder
    folder = download.cached(*parts_of(name))
    return folder if folder is not None and _is_whole(folder) else None


def list_cached() -> Iterator[tuple[str, Path, bool]]:
    """Supported checkpoints in the Hugging Face cache: hub id, folder, and whether all is there."""
    for name, folder in download.list_cached():
        with contextlib.suppress(EngineError):
            if download.architecture_of(read_json(folder / "config.json")) in FAMILIES:
                yield name, folder, _is_whole(folder)


def _from_hub(name: str, *, offline: bool, with_code: bool, progress: Progress) -> Path:
    folder = find_here(name)
    if folder is not None and (not with_code or any(folder.glob("*.py"))):
        return folder
    if offline:
        raise WeightsMissingError(
            f"{name} is not on this machine and TENON_OFFLINE forbids fetching it: load it once when online, "
            "or give the path of a folder that holds it"
        )
    return download.fetch(*parts_of(name), with_code=with_code, progress=progress)


def _is_whole(folder: Path) -> bool:
    """Whether a folder of the cache has all that would be downloaded: another program may have wanted less."""
    try:
        return not shards.missing_files(folder) and download.has_tokenizer(
            path.name for path in folder.iterdir()
        )
    except EngineError:
        return False
