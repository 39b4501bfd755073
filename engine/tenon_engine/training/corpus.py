"""A corpus: the texts that the adapter is trained on, in a folder, built from packages and read at random.

The folder holds `texts.bin` (UTF-8, all texts one after the other), `files.jsonl` (one line per text: what it is and
where it stands) and `manifest.json` (where the texts come from, what was left out and why). The same sources give the
same folder, byte for byte, wherever and in however many processes it is built. Knows no tokens and no holes.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import mmap
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy
import numpy.typing

from tenon_engine import __version__
from tenon_engine.base_fetch import appearing_complete, sha256
from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.progress import Progress
from tenon_engine.training import filters, parts
from tenon_engine.training.duplicates import Seen
from tenon_engine.training.parts import Report, Text
from tenon_engine.training.sources import Source

MIX = MappingProxyType(
    {"python": 0.55, "typescript": 0.14, "javascript": 0.12, "markdown": 0.12, "other": 0.07}
)
"""The default shares of languages in training; "other" stands for all that are not named."""
OTHER = "other"

Floats = numpy.typing.NDArray[numpy.float64]
Integers = numpy.typing.NDArray[numpy.int64]

_TEXTS, _FILES, _MANIFEST, _PARTS = "texts.bin", "files.jsonl", "manifest.json", ".tenon-parts"


@dataclasses.dataclass(frozen=True, slots=True)
class SourceText:
    """One text and what it is; `path` is within the package."""

    package: str
    path: str
    language: str
    licence: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """Where a corpus comes from; `languages` and `licences` give the bytes of each, `left_out` counts files."""

    tenon: str  # the version that built it
    texts: int
    bytes: int
    sha256: str  # of texts.bin
    languages: Mapping[str, int]
    licences: Mapping[str, int]
    left_out: Mapping[str, int]
    filters: Mapping[str, str]
    sources: tuple[Report, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A line of files.jsonl; start and length count bytes of texts.bin."""

    package: str
    path: str
    language: str
    licence: str
    start: int
    length: int
    sha256: str


class Corpus:
    """A corpus to read from, at random; texts stay on the disk until they are asked for."""

    def __init__(self, rows: Sequence[_Row], texts: mmap.mmap) -> None:
        self._rows = rows
        self._texts = texts
        self.languages = _grouped(row.language for row in rows)  # the numbers of the texts of each
        self.packages = _grouped(row.package for row in rows)

    @staticmethod
    def open(folder: Path) -> Corpus:
        """The corpus in a folder; InputFileError when there is none, or not a whole one."""
        build_it = f"build one with `tenon train corpus --out {folder}`"
        try:
            expected_bytes = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["bytes"]
            with (folder / _FILES).open(encoding="utf-8") as lines:
                rows = [_Row(**json.loads(line)) for line in lines]
            with (folder / _TEXTS).open("rb") as file:
                texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise InputFileError(f"{folder} holds no corpus: {build_it}") from None
        except (OSError, ValueError, TypeError, KeyError) as error:  # ValueError: also of an empty file
            raise InputFileError(f"the corpus in {folder} cannot be read ({error}): {build_it}") from error
        if len(texts) != expected_bytes or sum(row.length for row in rows) != expected_bytes:
            raise InputFileError(f"the corpus in {folder} is not whole: {build_it}")
        return Corpus(rows, texts)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> SourceText:
        row = self._rows[index]
        text = self._texts[row.start : row.start + row.length].decode("utf-8")
        return SourceText(row.package, row.path, row.language, row.licence, text)

    def weights(self, mix: Mapping[str, float] = MIX) -> Floats:
        """How often each text should be drawn, [texts], in all 1: languages as in `mix`, as far as there are any.

        Within a language a package counts by the square root of its size, so that the few large ones do not drown
        the others; within a package a text counts by its size.
        """
        sizes: Floats = numpy.array([row.length for row in self._rows], numpy.float64)
        named = [name for name in mix if name != OTHER]
        languages = _numbered(len(self), [self.languages.get(name, ()) for name in named])  # 0: not named
        packages = _numbered(len(self), list(self.packages.values()))
        weights = sizes / numpy.sqrt(_sum_by(languages * (len(self.packages) + 1) + packages, sizes))
        shares = numpy.array([mix.get(OTHER, 0.0), *(mix[name] for name in named)])
        weights = weights * shares[languages] / _sum_by(languages, weights)
        total = float(weights.sum())
        if not total > 0:
            there = ", ".join(self.languages)
            raise BadRequestError(f"the corpus has nothing in {', '.join(mix)}: name some of {there}")
        normalised: Floats = weights / total
        return normalised


def build(sources: Iterable[Source], folder: Path, progress: Progress, *, workers: int = 1) -> Manifest:
    """Read, filter and join the sources into `folder`; what an interrupted build has read is not read again."""
    each_once = {source.path.resolve(): source for source in sources}
    ordered = sorted(
        each_once.values(), key=lambda source: (source.package, source.version, source.path.name)
    )
    folder.mkdir(parents=True, exist_ok=True)
    made = parts.make_all(ordered, folder / _PARTS, progress, workers=workers)
    (folder / _MANIFEST).unlink(missing_ok=True)  # without it the folder is no corpus: its files change now
    rows, reports = _join(made, folder / _TEXTS, progress)
    lines = [json.dumps(dataclasses.asdict(row)) + "\n" for row in rows]
    (folder / _FILES).write_text("".join(lines), encoding="utf-8", newline="\n")
    manifest = _summary(rows, reports, texts_sha256=sha256(folder / _TEXTS, progress))
    with appearing_complete(folder / _MANIFEST) as path:
        path.write_text(
            json.dumps(dataclasses.asdict(manifest), indent=1) + "\n", encoding="utf-8", newline="\n"
        )
    shutil.rmtree(folder / _PARTS)
    return manifest


def _join(made: Sequence[Path], path: Path, progress: Progress) -> tuple[list[_Row], list[Report]]:
    """Write the texts of all parts one after the other, each but once."""
    seen_hashes, seen, rows, reports = set[str](), Seen(), list[_Row](), list[Report]()
    with path.open("wb") as file:
        for number, part in enumerate(made):
            progress("join", number, len(made))
            report, texts = parts.load(part)
            left_out, first, begin = collections.Counter(report.left_out), len(rows), file.tell()
            for text in texts:
                if text.sha256 in seen_hashes:
                    left_out["duplicate"] += 1
                elif seen.has_like(text.signature):
                    left_out["near_duplicate"] += 1
                else:
                    seen_hashes.add(text.sha256)
                    seen.add(text.signature)
                    rows.append(_row(report, text, start=file.tell()))
                    file.write(text.content)
            reports.append(
                dataclasses.replace(
                    report, left_out=_sorted(left_out), texts=len(rows) - first, bytes=file.tell() - begin
                )
            )
    return rows, reports


def _row(report: Report, text: Text, *, start: int) -> _Row:
    return _Row(
        package=report.package,
        path=text.path,
        language=text.language,
        licence=report.licence,
        start=start,
        length=len(text.content),
        sha256=text.sha256,
    )


def _summary(rows: Sequence[_Row], reports: Sequence[Report], *, texts_sha256: str) -> Manifest:
    languages, licences, left_out = (collections.Counter[str]() for _ in range(3))
    for row in rows:
        languages[row.language] += row.length
        licences[row.licence] += row.length
    for report in reports:
        left_out.update(report.left_out)
    return Manifest(
        tenon=__version__,
        texts=len(rows),
        bytes=sum(row.length for row in rows),
        sha256=texts_sha256,
        languages=_sorted(languages),
        licences=_sorted(licences),
        left_out=_sorted(left_out),
        filters=filters.descriptions(),
        sources=tuple(reports),
    )


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _numbered(count: int, groups: Sequence[Sequence[int]]) -> Integers:
    """For each text the number of its group from 1, or 0, [count]."""
    numbers = numpy.zeros(count, numpy.int64)
    for number, texts in enumerate(groups, 1):
        numbers[list(texts)] = number
    return numbers


def _sum_by(groups: Integers, values: Floats) -> Floats:
    """For each value the sum of its group."""
    sums: Floats = numpy.bincount(groups, values).astype(numpy.float64)
    return sums[groups]


def _grouped(names: Iterable[str]) -> Mapping[str, Sequence[int]]:
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        groups.setdefault(name, []).append(number)
    return dict(sorted(groups.items()))
