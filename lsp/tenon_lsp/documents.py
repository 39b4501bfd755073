"""The open documents: text, tree and version of each, kept in step with the editor, and snapshots of them.

A snapshot never changes; whoever works on one compares its edition before acting. Knows no protocol types.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from pygls import uris

from tenon_lsp import languages
from tenon_lsp.positions import Encoding, Position
from tenon_lsp.syntax import Syntax
from tenon_lsp.text import Text, common_length

_CELL_SCHEME = "vscode-notebook-cell:"
_BEHIND_PATH = re.compile(r"[?#]")


class LastChange(enum.Enum):
    """What the last change did to a document."""

    OPENED = "opened"
    GREW = "grew"
    SHRANK = "shrank"  # text was only taken away, or replaced by shorter text


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """New text for a range; the range None is the whole document."""

    span: tuple[Position, Position] | None
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a notebook."""

    uri: str
    is_code: bool


@dataclasses.dataclass(frozen=True, slots=True)
class CellText:
    """What an earlier cell of the same notebook holds."""

    text: str
    is_code: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Edition:
    """One version of a document, told apart from the same version after it was opened anew."""

    generation: int  # another one each time that a document is opened
    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A document as it was at one version."""

    uri: str
    language: str  # LSP id
    edition: Edition
    text: Text
    syntax: Syntax | None
    last_change: LastChange
    file_uri: str  # of what it is kept in: a cell's notebook, for any other document its own
    cells: tuple[CellText, ...]  # before this one, first to last
    encoding: Encoding

    @property
    def version(self) -> int:
        """The client's number of this state of the document."""
        return self.edition.version

    @property
    def path(self) -> Path | None:
        """Where the document is on disk; None for untitled and virtual ones."""
        return path_of(self.uri)

    def offset(self, position: Position) -> int:
        """The offset of a client's position."""
        return self.text.offset(position, self.encoding)

    def position(self, offset: int) -> Position:
        """The client's position of an offset."""
        return self.text.position(offset, self.encoding)


class Documents:
    """Every open document, and what belongs to which notebook. Mutable; one thread."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._documents: dict[str, _Document] = {}
        self._notebooks: dict[str, tuple[Cell, ...]] = {}
        self._clock = itertools.count()
        self._generations = itertools.count(1)

    def open(self, uri: str, language: str, version: int, source: str) -> None:
        """Begin to follow a document; one that is open already is begun anew."""
        language = languages.language_id(language)
        edition = Edition(next(self._generations), version)
        document = _Document(uri, language, edition, Text.of(source), Syntax.parse(source, language))
        document.used_at = next(self._clock)
        self._documents[uri] = document

    def change(self, uri: str, version: int, changes: Iterable[Change]) -> bool:
        """Follow a change; False when the document is not open."""
        document = self._documents.get(uri)
        if document is None:
            return False
        document.apply(version, changes, self._encoding)
        document.used_at = next(self._clock)
        return True

    def close(self, uri: str) -> None:
        """Forget a document."""
        self._documents.pop(uri, None)

    def syntax(self, uri: str) -> Syntax | None:
        """The tree of an open document."""
        document = self._documents.get(uri)
        return None if document is None else document.syntax

    def focus(self, uri: str) -> None:
        """The user looks at this document."""
        if document := self._documents.get(uri):
            document.used_at = next(self._clock)

    def set_cells(self, notebook_uri: str, cells: Sequence[Cell]) -> None:
        """The cells of a notebook, in order; none to forget it."""
        if cells:
            self._notebooks[notebook_uri] = tuple(cells)
        else:
            self._notebooks.pop(notebook_uri, None)

    def cells(self, notebook_uri: str) -> tuple[Cell, ...]:
        """The cells of a notebook, as last set."""
        return self._notebooks.get(notebook_uri, ())

    def snapshot(self, uri: str) -> Snapshot | None:
        """The document now, or None when it is not open."""
        document = self._documents.get(uri)
        if document is None:
            return None
        return Snapshot(
            uri=uri,
            language=document.language,
            edition=document.edition,
            text=document.text,
            syntax=document.syntax,
            last_change=document.last_change,
            file_uri=self._file_uri(uri),
            cells=self._cells_before(uri),
            encoding=self._encoding,
        )

    def edition(self, uri: str) -> Edition | None:
        """The edition of an open document."""
        document = self._documents.get(uri)
        return None if document is None else document.edition

    def others(self, uri: str) -> list[tuple[str, str]]:
        """Uri and text of the other open documents, last used last; cells of a notebook are not among them."""
        beside = {cell.uri for cells in self._notebooks.values() for cell in cells}
        found = [each for each in self._documents.values() if each.uri != uri and each.uri not in beside]
        found.sort(key=lambda each: each.used_at)
        return [(each.uri, each.text.source) for each in found]

    def _file_uri(self, uri: str) -> str:
        if (notebook_uri := self._notebook_of(uri)) is not None:
            return notebook_uri
        # A cell whose notebook is not known, or no longer: its own uri has the notebook's path.
        return f"file:{uri[len(_CELL_SCHEME) :]}" if uri.lower().startswith(_CELL_SCHEME) else uri

    def _cells_before(self, uri: str) -> tuple[CellText, ...]:
        before = itertools.takewhile(lambda cell: cell.uri != uri, self.cells(self._notebook_of(uri) or ""))
        return tuple(
            CellText(self._documents[cell.uri].text.source, cell.is_code)
            for cell in before
            if cell.uri in self._documents
        )

    def _notebook_of(self, uri: str) -> str | None:
        """The notebook that has this cell."""
        holders = (name for name, cells in self._notebooks.items() if any(cell.uri == uri for cell in cells))
        return next(holders, None)


@dataclasses.dataclass(slots=True)
class _Document:
    """Text and tree always are of the same version."""

    uri: str
    language: str
    edition: Edition
    text: Text
    syntax: Syntax | None
    last_change: LastChange = LastChange.OPENED
    used_at: int = 0

    def apply(self, version: int, changes: Iterable[Change], encoding: Encoding) -> None:
        length_before = len(self.text.source)
        has_changed = False
        for change in changes:
            start, end, new = self._edit_of(change, encoding)
            if self.text.source[start:end] == new:
                continue
            has_changed = True
            self.text = self.text.edited(start, end, new)
            self.syntax = self.syntax.edited(start, end, new, self.text.source) if self.syntax else None
        self.edition = dataclasses.replace(self.edition, version=version)
        if has_changed:
            shrank = len(self.text.source) < length_before
            self.last_change = LastChange.SHRANK if shrank else LastChange.GREW

    def _edit_of(self, change: Change, encoding: Encoding) -> tuple[int, int, str]:
        if change.span is None:
            return _difference(self.text.source, change.text)
        start, end = (self.text.offset(position, encoding) for position in change.span)
        return min(start, end), max(start, end), change.text


def path_of(uri: str) -> Path | None:
    """The path of a `file:` uri; None for any other, and for one that no file can have."""
    try:
        path = uris.to_fs_path(uri) if uris.uri_scheme(uri) == "file" else None
        is_possible = bool(path) and b"\0" not in os.fsencode(path or "")
    except ValueError:  # no uri, or characters that no file system has
        return None
    return Path(path) if path and is_possible else None


def name_of(uri: str) -> Path:
    """The path that any uri names, wherever that is: for comparing names, not for reading."""
    named = _BEHIND_PATH.split(uri.partition(":")[2] or uri, maxsplit=1)[0]
    if named.startswith("//"):
        named = named[2:].partition("/")[2]
    return Path("/", unquote(named).lstrip("/"))


def _difference(old: str, new: str) -> tuple[int, int, str]:
    """The one edit that makes `new` of `old`, as small as it can be."""
    start = common_length(old, new)
    old, new = old[start:], new[start:]
    same_end = common_length(old[::-1], new[::-1])
    return start, start + len(old) - same_end, new[: len(new) - same_end]
