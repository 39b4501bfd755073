"""What a corpus is made of: packages, each a directory or an archive, with the version and licence it states.

Owns where a package says what it is called and under which licence it stands, and which of its files are its own.
"""

from __future__ import annotations

import dataclasses
import email.parser
import email.policy
import functools
import json
import re
from collections.abc import Iterable, Iterator
from email.message import Message
from pathlib import Path, PurePosixPath

from tenon_engine import source_file
from tenon_engine.errors import InputFileError
from tenon_engine.training import archives, licences
from tenon_engine.training.archives import Member

_METADATA_BYTES_AT_MOST = 4 << 20
_PYTHON_METADATA = ("METADATA", "PKG-INFO")
_NPM_METADATA = "package.json"
_LICENCE_NAME = re.compile(r"(?:un)?licen[cs]e(?:\.(?:md|txt|rst))?", re.IGNORECASE)
_README = PurePosixPath("README.md")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A directory or an archive; `licence` is an SPDX expression, "" when it states none that is known."""

    path: Path
    package: str
    version: str
    licence: str


def find(paths: Iterable[Path], *, licence: str = "") -> list[Source]:
    """The sources at these paths: archives, directories, and of directories that hold archives each of those.

    `licence` is of those that state none; OWN is of all of them.
    """
    found = []
    for path in paths:
        if path.is_dir():
            held = sorted(each for each in path.iterdir() if archives.is_archive(each) and each.is_file())
        elif archives.is_archive(path) and path.is_file():
            held = [path]
        else:
            endings = ", ".join((*archives.ZIP_SUFFIXES, *archives.TAR_SUFFIXES))
            raise InputFileError(f"{path} is neither a directory nor an archive ({endings})")
        found += [describe(each, licence=licence) for each in held or [path]]
    return found


def describe(path: Path, *, licence: str = "") -> Source:
    """One source, with what it states of itself; what is missing or unreadable there is ""."""
    described = Source(path, _stem(path), "", "")
    try:
        for member in _statements(path):
            described = _stated(described, member)
            if member.path.name in (*_PYTHON_METADATA, _NPM_METADATA):
                break
    except InputFileError:  # it will be said when the whole is read
        pass
    if licence == licences.OWN or not described.licence:
        return dataclasses.replace(described, licence=licence)
    return described


def read_files(path: Path) -> Iterator[Member]:
    """The source's files, by their paths within the package; the description of a wheel is its README."""
    is_packed_folder = path.name.lower().endswith(archives.TAR_SUFFIXES)
    for member in archives.read_members(path):
        if member.path.match("*.dist-info/METADATA"):
            yield from _description(member)
        elif not is_packed_folder:
            yield member
        elif len(member.path.parts) > 1:
            yield dataclasses.replace(member, path=PurePosixPath(*member.path.parts[1:]))


def _statements(path: Path) -> Iterator[Member]:
    """The files in which a package says what it is."""
    if path.is_dir():
        for place in sorted(path.iterdir()):
            if _is_statement(place.name) and place.is_file():
                here = PurePosixPath(place.name)
                yield Member(here, place.stat().st_size, functools.partial(source_file.read_bytes, place))
        return
    is_wheel = path.name.lower().endswith(".whl")
    for member in archives.read_members(path):
        is_top = len(member.path.parts) == 2 and (not is_wheel or member.path.match("*.dist-info/*"))
        if is_top and _is_statement(member.path.name):
            yield member


def _is_statement(name: str) -> bool:
    return name in (*_PYTHON_METADATA, _NPM_METADATA) or bool(_LICENCE_NAME.fullmatch(name))


def _stated(source: Source, member: Member) -> Source:
    """The source with what this file states."""
    if member.size_bytes > _METADATA_BYTES_AT_MOST:
        return source
    content = member.read().decode("utf-8", errors="replace")
    if member.path.name in _PYTHON_METADATA:
        metadata = _parse(content)
        name = _canonical(str(metadata.get("Name", source.package)))
        version = str(metadata.get("Version", ""))
        return Source(source.path, name, version, licences.of_metadata(metadata) or source.licence)
    if member.path.name == _NPM_METADATA:
        name, version = (_json_text(content, key) for key in ("name", "version"))
        licence = licences.of_package_json(content) or source.licence
        return Source(source.path, name or source.package, version, licence)
    return dataclasses.replace(source, licence=licences.of_text(content))


def _description(member: Member) -> Iterator[Member]:
    if member.size_bytes > _METADATA_BYTES_AT_MOST:
        return
    metadata = _parse(member.read().decode("utf-8", errors="replace"))
    if str(metadata.get("Description-Content-Type", "")).startswith("text/markdown"):
        content = str(metadata.get_payload()).encode("utf-8", errors="replace")
        yield Member(_README, len(content), lambda: content)


def _parse(content: str) -> Message:
    return email.parser.Parser(policy=email.policy.compat32).parsestr(content)


def _json_text(content: str, key: str) -> str:
    try:
        value = json.loads(content).get(key, "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def _canonical(name: str) -> str:
    """A Python package's name as its index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _stem(path: Path) -> str:
    """A source's name when it states none."""
    name = path.resolve().name
    suffixes = (*archives.ZIP_SUFFIXES, *archives.TAR_SUFFIXES)
    return next((name[: -len(suffix)] for suffix in suffixes if name.lower().endswith(suffix)), name)
