"""A checkpoint's files from the Hugging Face hub into its cache: what is wanted, whether it fits, and what went wrong.

Only safetensors, JSON, and the texts of a tokenizer are fetched: nothing that could run, but for the code of a model
that the user trusts. What can be known before the weights come (the architecture, the format, the space) is checked
before. An interrupted download goes on later.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenon_engine.base_fetch import FULL_DISK, network_errors
from tenon_engine.errors import EngineError, StorageError, UnknownModelError, WeightsMissingError
from tenon_engine.models.hub import shards
from tenon_engine.models.hub.families import check_architecture
from tenon_engine.models.hub.json_file import read_json
from tenon_engine.models.hub.names import MAIN
from tenon_engine.progress import Progress

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

LOOK_S = 10.0  # for the hub to say what it has; looking up its name without a network can take longer
TOKENIZERS = ({"tokenizer.json"}, {"vocab.json", "merges.txt"})
TEXTS = ("merges.txt", "chat_template.jinja")
SPARE_BYTES = 1 << 30  # of the disk, left free


def cached(repository: str, revision: str) -> Path | None:
    """The folder of that revision in the cache, as far as it is there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def list_cached() -> Iterator[tuple[str, Path]]:
    """Hub ids (with the revision where it is not the main one) and folders of all models in the cache."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        for revision in repository.revisions if repository.repo_type == "model" else ():
            suffix = "" if MAIN in revision.refs else f"@{min(revision.refs, default=revision.commit_hash)}"
            yield f"{repository.repo_id}{suffix}", revision.snapshot_path


def fetch(repository: str, revision: str, *, progress: Progress, with_code: bool = False) -> Path:
    """Download what is missing of that revision into the cache; its folder there."""
    files = {file.rfilename: file.size or 0 for file in _look(repository, revision).siblings or ()}
    wanted = {name: size for name, size in files.items() if _is_wanted(name, with_code=with_code)}
    if "config.json" not in wanted:
        raise WeightsMissingError(f"{repository} has no config.json: it holds no model that could be loaded")
    folder = _get(repository, revision, "config.json").parent
    check_architecture(repository, architecture_of(read_json(folder / "config.json")))
    revision = folder.name  # the commit: all files of one, whatever happens to the branch meanwhile
    if shards.INDEX in wanted:
        of_model = {*read_json(_get(repository, revision, shards.INDEX)).get("weight_map", {}).values()}
    elif shards.SINGLE in wanted:
        of_model = {shards.SINGLE}
    else:
        raise shards.no_weights(repository, files)
    names = [name for name in wanted if not name.endswith(".safetensors") or name in of_model]
    _check_space(repository, folder, sum(wanted[name] for name in names if not (folder / name).exists()))
    done_bytes, total_bytes = 0, sum(wanted[name] for name in names)
    for name in names:

        def show(file_bytes: int, before: int = done_bytes) -> None:
            progress("fetch", min(before + file_bytes, total_bytes), total_bytes)

        _get(repository, revision, name, show)
        done_bytes += wanted[name]
        progress("fetch", done_bytes, total_bytes)  # a file that was there already tells nothing
    return folder


def architecture_of(config: Mapping[str, Any]) -> str:
    """What config.json calls the architecture; "" when it does not."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def has_tokenizer(names: Iterable[str]) -> bool:
    """Whether these files make a tokenizer."""
    there = set(names)
    return any(files <= there for files in TOKENIZERS)


def _is_wanted(name: str, *, with_code: bool) -> bool:
    """Files of the top folder alone: what stands deeper belongs to other programs."""
    suffixes = (".safetensors", ".json", *([".py"] if with_code else []))
    return "/" not in name and (name.endswith(suffixes) or name in TEXTS)


def _look(repository: str, revision: str) -> ModelInfo:
    """What the hub says of the repository, in a bounded time."""
    from huggingface_hub import HfApi

    answers: list[ModelInfo] = []
    failures: list[Exception] = []

    def look() -> None:
        try:
            api = HfApi()
            answers.append(api.model_info(repository, revision=revision, files_metadata=True, timeout=LOOK_S))
        except _failures() as error:
            failures.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(LOOK_S)
    if answers:
        return answers[0]
    raise _refusal(repository, revision, failures[0] if failures else TimeoutError("it does not answer"))


def _get(
    repository: str, revision: str, name: str, show: Callable[[int], None] = lambda file_bytes: None
) -> Path:
    """One file, in the cache; `show` is told how many bytes of it are there."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]  # public, but not in its __all__

    class Bar(tqdm):  # what the hub's client tells how far it is
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "disable": True})  # type: ignore[no-untyped-call]
            self.n = options.get("initial", 0)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            show(int(self.n))

    try:
        return Path(hf_hub_download(repository, name, revision=revision, tqdm_class=Bar))
    except _failures() as error:
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            raise StorageError(
                f"the disk is full: what was fetched of {repository} is kept, make room and load it again"
            ) from error
        raise _refusal(repository, revision, error) from error


def _failures() -> tuple[type[Exception], ...]:
    return (ValueError, *network_errors())  # ValueError: of a name, or of a proxy's address


def _refusal(repository: str, revision: str, error: Exception) -> EngineError:
    """What a failure of the hub means, in one sentence."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return WeightsMissingError(
            f"{repository} is gated: accept its terms on its page of the hub, then log in with `hf auth login`"
        )
    if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        return UnknownModelError(
            f"there is no folder {repository}, and no such model on the Hugging Face hub "
            "(or it is private: `hf auth login`)"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return UnknownModelError(f"{repository} has no revision {revision} on the Hugging Face hub")
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return WeightsMissingError(
        f"{repository} is not on this machine as a whole and the Hugging Face hub cannot be asked ({reason}): "
        "what was fetched is kept, load it again when online"
    )


def _check_space(repository: str, folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes and free_bytes < needed_bytes + SPARE_BYTES:
        raise StorageError(
            f"{repository} needs {needed_bytes / 1e9:.1f} GB more, and {free_bytes / 1e9:.1f} GB are free at {folder}: "
            "make room, or name a folder of another disk in HF_HOME"
        )
