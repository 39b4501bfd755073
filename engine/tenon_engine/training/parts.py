"""One source of a corpus, read, filtered and measured: a folder that is whole or not there.

Owns which files of a source are kept and the report on the rest. Knows no other source: what two have in common is
found when the parts are joined. A part is read once; an interrupted build goes on after the parts that are whole.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy

from tenon_engine import __version__
from tenon_engine.base_fetch import sha256
from tenon_engine.errors import InputFileError
from tenon_engine.progress import Progress, silent
from tenon_engine.training import duplicates, filters, licences, lists, processes, sources
from tenon_engine.training.archives import Member
from tenon_engine.training.sources import Source

_TEXTS, _ROWS, _SIGNATURES, _REPORT = "texts.bin", "rows.jsonl", "signatures.npy", "report.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A text that the filters let pass, in UTF-8."""

    path: str
    language: str
    sha256: str
    content: bytes
    signature: duplicates.Hashes


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What became of a source: `reason` says why none of it was used, `left_out` counts files by filter."""

    package: str
    version: str
    licence: str
    file: str
    sha256: str  # of the archive, or of the hashes of what was kept of a directory
    reason: str
    left_out: Mapping[str, int]
    texts: int = 0  # that are in the corpus, as are these bytes
    bytes: int = 0


def make_all(sources: Sequence[Source], folder: Path, progress: Progress, *, workers: int) -> list[Path]:
    """A part per source, in their order, read in so many processes."""
    folders = [folder / _key(source) for source in sources]
    sizes = [source.path.stat().st_size for source in sources]
    done_bytes, total_bytes = 0, sum(sizes)
    with _mapping(min(workers, len(sources))) as mapped:
        for _, size_bytes in zip(mapped(make, sources, folders), sizes, strict=True):
            done_bytes += size_bytes
            progress("read", done_bytes, total_bytes)
    return folders


def make(source: Source, folder: Path) -> None:
    """Read the source into `folder`, unless a whole part of it is there."""
    if (folder / _REPORT).exists():
        return
    growing = folder.with_name(f"{folder.name}.growing")
    for leftover in (growing, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    growing.mkdir(parents=True)
    reason, left_out = _why_unused(source), collections.Counter[str]()
    texts: list[Text] = []
    if not reason:
        try:
            texts.extend(kept(source.path, left_out, is_own=source.licence == licences.OWN))
        except InputFileError as error:
            reason, texts = f"unreadable: {str(error).replace(str(source.path), source.path.name)}", []
    report = Report(
        source.package,
        source.version,
        source.licence,
        source.path.resolve().name,
        _sha256(source.path, texts),
        reason,
        dict(sorted(left_out.items())),
    )
    _write(growing, texts, report)
    growing.rename(folder)


def load(folder: Path) -> tuple[Report, Iterator[Text]]:
    """The report and the texts, one at a time, of a whole part."""
    report = Report(**json.loads((folder / _REPORT).read_text(encoding="utf-8")))
    return report, _load_texts(folder)


def kept(path: Path, left_out: collections.Counter[str], *, is_own: bool = False) -> Iterator[Text]:
    """What of a directory or an archive passes the filters; what does not is counted by the reason."""
    for member in sources.read_files(path):
        text = _text_of(member, is_own=is_own)
        if isinstance(text, Text):
            yield text
        else:
            left_out[text] += 1


@contextlib.contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterable[None]]]:
    """`map`, here or in processes of their own."""
    if workers <= 1:
        yield map
        return
    with processes.pool(workers) as pool:
        try:
            yield pool.map
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _key(source: Source) -> str:
    """A name for the part that changes with the source; what is in a directory is not known before it is read."""
    status = source.path.stat()
    state = os.urandom(8) if source.path.is_dir() else (status.st_size, status.st_mtime_ns)
    return hashlib.sha256(repr((source, state, __version__)).encode()).hexdigest()[:24]


def _why_unused(source: Source) -> str:
    if source.licence != licences.OWN and source.package in lists.held_out_names():
        return "held_out"
    return "" if licences.is_permissive(source.licence) else "licence"


def _text_of(member: Member, *, is_own: bool) -> Text | str:
    """The file's text, or the reason to leave it out."""
    if reason := filters.reason_by_path(member.path):
        return reason
    language = filters.language_of(member.path)
    if language is None:
        return "other_language"
    if reason := filters.reason_by_size(member.size_bytes, language):
        return reason
    try:
        text = filters.decode(member.read())
    except InputFileError:
        return "unreadable"
    if text is None:
        return "no_text"
    if reason := filters.reason_by_text(text, language, is_own=is_own):
        return reason
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    return Text(str(member.path), language, digest, content, duplicates.signature(content))


def _sha256(path: Path, texts: list[Text]) -> str:
    if not path.is_dir():
        return sha256(path, silent)
    listing = "".join(f"{text.path}\0{text.sha256}\n" for text in texts)
    return hashlib.sha256(listing.encode()).hexdigest()


def _write(folder: Path, texts: list[Text], report: Report) -> None:
    rows = [(text.path, text.language, text.sha256, len(text.content)) for text in texts]
    with (folder / _TEXTS).open("wb") as file:
        file.writelines(text.content for text in texts)
    (folder / _ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    signatures = numpy.array([text.signature for text in texts], numpy.uint32)
    numpy.save(folder / _SIGNATURES, signatures, allow_pickle=False)
    (folder / _REPORT).write_text(json.dumps(dataclasses.asdict(report)), encoding="utf-8")


def _load_texts(folder: Path) -> Iterator[Text]:
    signatures = numpy.load(folder / _SIGNATURES, allow_pickle=False)
    with (folder / _TEXTS).open("rb") as contents, (folder / _ROWS).open(encoding="utf-8") as rows:
        for row, signature in zip(rows, signatures, strict=True):
            path, language, digest, length = json.loads(row)
            yield Text(path, language, digest, contents.read(length), signature)
