"""The files of a directory or of an archive (wheel, zip, sdist, npm package), one at a time, safely.

Owns what is a file worth looking at: links, devices and paths that lead elsewhere are none, git's ignored files are
left out of directories, and an archive that unpacks to too much is refused. Nothing is unpacked to the disk, nothing
is run. Knows no licences, languages or filters.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from pathspec import GitIgnoreSpec

from tenon_engine import source_file
from tenon_engine.errors import InputFileError

ZIP_SUFFIXES = (".whl", ".zip")
TAR_SUFFIXES = (".tar.gz", ".tgz")
UNPACKED_BYTES_AT_MOST = 1 << 30  # of one archive
MEMBERS_AT_MOST = 200_000
_ENCRYPTED = 1  # a flag bit of a zip entry
_REPOSITORIES = frozenset({".git", ".hg", ".svn", ".jj"})
_DRIVE = re.compile(r"[A-Za-z]:")
# NotImplementedError of compressions that Python lacks; RuntimeError of entries that turn out to be encrypted.
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, struct.error, RuntimeError)


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A regular file: where it is within its source, its size as declared, and how to read it.

    `read` is good until the next member is asked for; it raises InputFileError where the source is damaged.
    """

    path: PurePosixPath
    size_bytes: int
    read: Callable[[], bytes]


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive that can be read."""
    return path.name.lower().endswith((*ZIP_SUFFIXES, *TAR_SUFFIXES))


def read_members(path: Path) -> Iterator[Member]:
    """Every regular file of a directory (in the order of names) or of an archive (in its own order)."""
    if path.is_dir():
        yield from _in_directory(path)
        return
    kind = _in_zip if path.name.lower().endswith(ZIP_SUFFIXES) else _in_tar
    try:
        with path.open("rb") as file:
            yield from kind(file, path)
    except (*_DAMAGE, OSError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputFileError:
    return InputFileError(f"{path} cannot be read, or only in part: {str(error) or type(error).__name__}")


def _in_zip(file: BinaryIO, archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(file) as entries:
        infos = entries.infolist()
        _check_count(len(infos), archive)
        unpacked_bytes = 0
        for info in infos:
            path = _inner_path(info.filename)
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the system that packed it has none
            is_file = not info.filename.endswith("/") and kind in (0, stat.S_IFREG)
            if path is None or not is_file or info.flag_bits & _ENCRYPTED:
                continue
            unpacked_bytes += info.file_size
            _check_size(unpacked_bytes, archive)
            opened = functools.partial(entries.open, info)
            yield Member(path, info.file_size, functools.partial(_read, opened, info.file_size, archive))


def _in_tar(file: BinaryIO, archive: Path) -> Iterator[Member]:
    """Read as a stream, so that no more is unpacked than what has been counted."""
    with (
        gzip.GzipFile(fileobj=file) as unpacked,
        _Counted(unpacked, archive) as counted,
        tarfile.open(fileobj=counted, mode="r|") as entries,
    ):
        for number, info in enumerate(entries, 1):
            _check_count(number, archive)
            path = _inner_path(info.name)
            opened = functools.partial(entries.extractfile, info)
            if path is not None and info.isreg():
                yield Member(path, info.size, functools.partial(_read, opened, info.size, archive))
            entries.members.clear()  # type: ignore[attr-defined]  # a stream never goes back to them


def _read(opened: Callable[[], IO[bytes] | None], size_bytes: int, archive: Path) -> bytes:
    """The whole entry, which may not be longer than it says."""
    try:
        entry = opened()
        content = entry.read(size_bytes + 1) if entry is not None else b""
    except (*_DAMAGE, OSError) as error:
        raise _damaged(archive, error) from error
    if len(content) != size_bytes:
        raise InputFileError(f"{archive} is damaged: an entry has not the size it declares")
    return content


class _Counted(io.RawIOBase):
    """What is unpacked of a stream, which may not become too much."""

    def __init__(self, unpacked: gzip.GzipFile, archive: Path) -> None:
        self._unpacked = unpacked
        self._archive = archive
        self._bytes = 0

    def readable(self) -> bool:
        """Yes: it is there to be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes; InputFileError once there are too many."""
        content = self._unpacked.read(size)
        self._bytes += len(content)
        _check_size(self._bytes, self._archive)
        return content


def _inner_path(name: str) -> PurePosixPath | None:
    """The entry's path; None when it leads out of the archive or is none."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or _DRIVE.match(name):
        return None
    return path


def _check_count(count: int, archive: Path) -> None:
    if count > MEMBERS_AT_MOST:
        raise InputFileError(f"{archive} has more than {MEMBERS_AT_MOST:,} files: leave it out")


def _check_size(unpacked_bytes: int, archive: Path) -> None:
    if unpacked_bytes > UNPACKED_BYTES_AT_MOST:
        limit_mb = UNPACKED_BYTES_AT_MOST >> 20
        raise InputFileError(f"{archive} unpacks to more than {limit_mb:,} MB: leave it out")


@dataclasses.dataclass(frozen=True, slots=True)
class _Ignore:
    """A `.gitignore` file: its folder, from the top, and its patterns."""

    folder: PurePosixPath
    patterns: GitIgnoreSpec


def _in_directory(top: Path) -> Iterator[Member]:
    ignores: dict[PurePosixPath, tuple[_Ignore, ...]] = {}
    for folder, folder_names, file_names in os.walk(top):  # it follows no links
        here = PurePosixPath(Path(folder).relative_to(top).as_posix())
        inherited = ignores.pop(here, ())
        rules = (*inherited, *_ignore_of(Path(folder), here))
        folder_names[:] = sorted(
            name
            for name in folder_names
            if name not in _REPOSITORIES and not _is_ignored(here / name, rules, is_folder=True)
        )
        ignores |= {here / name: rules for name in folder_names}
        for name in sorted(file_names):
            place = Path(folder, name)
            status = place.lstat()
            if stat.S_ISREG(status.st_mode) and not _is_ignored(here / name, rules, is_folder=False):
                yield Member(here / name, status.st_size, functools.partial(source_file.read_bytes, place))


def _ignore_of(folder: Path, here: PurePosixPath) -> Iterator[_Ignore]:
    file = folder / ".gitignore"
    if not file.is_file() or file.is_symlink():  # nor does git follow one
        return
    lines = source_file.read_bytes(file).decode("utf-8-sig", errors="replace").splitlines()
    yield _Ignore(here, GitIgnoreSpec.from_lines(filter(_is_pattern, lines)))


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):  # git passes over what it does not understand
        return False
    return True


def _is_ignored(path: PurePosixPath, rules: Sequence[_Ignore], *, is_folder: bool) -> bool:
    """What the innermost `.gitignore` says that has a word on this path."""
    for rule in reversed(rules):
        name = path.relative_to(rule.folder).as_posix() + ("/" if is_folder else "")
        verdict = rule.patterns.check_file(name).include
        if verdict is not None:
            return verdict
    return False
