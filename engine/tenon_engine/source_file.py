"""Reads a file the user named, exactly as it is, and finds a place in it.

Line ends are kept as they are. A byte order mark is not part of the text, but it is the first character of
line 1 for whoever counts columns. Does not know what a fill is.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import os
import re
import stat
from pathlib import Path

from tenon_engine.errors import BadRequestError, InputFileError

MAX_BYTES = 64 * 1024 * 1024

_LINE_END = re.compile(r"\r\n|\r|\n")
_PLACE = re.compile(r"(.+):([0-9]{1,9}):([0-9]{1,9})", re.DOTALL)

# UTF-32 first: its little-endian mark begins with the one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """`FILE:LINE:COL` as the user wrote it; line and column count from 1, the column in characters."""

    path: Path
    line: int
    column: int


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """A text file, decoded; `marked` says that it begins with a byte order mark, which `text` leaves out."""

    path: Path
    text: str
    marked: bool = False


def parse_place(argument: str) -> Place:
    """Split `FILE:LINE:COL` from the right, so that FILE may hold colons."""
    match = _PLACE.fullmatch(argument)
    if match is None:
        raise BadRequestError(f"expected FILE:LINE:COL (such as app.py:12:5), not {argument!r}")
    line, column = int(match[2]), int(match[3])
    if line < 1 or column < 1:
        raise BadRequestError(f"LINE and COL count from 1, in {argument!r}")
    return Place(Path(match[1]), line, column)


def read(path: Path) -> SourceFile:
    """The file's text with its own line ends; InputFileError when it is no text file of a bearable size."""
    return _decode(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """What is in a regular file of a bearable size; InputFileError for anything else. Never waits for a writer."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputFileError(f"{path} is a directory, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise InputFileError(f"{path} is not a regular file")
        if status.st_size > MAX_BYTES:
            size_mb = status.st_size / 1024 / 1024
            raise InputFileError(
                f"{path} is too large: {size_mb:.0f} MB, the limit is {MAX_BYTES // 1024 // 1024} MB"
            )
        with io.FileIO(path, "rb", opener=_open_without_waiting) as file:
            content: bytes | None = file.read()
    except FileNotFoundError:
        raise InputFileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputFileError(f"{path} cannot be read: {reason}") from None
    if content is None:
        raise InputFileError(f"{path} cannot be read: it waits for a writer")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # what /proc calls regular may be a queue


def _decode(path: Path, content: bytes) -> SourceFile:
    mark, encoding = next((entry for entry in _MARKS if content.startswith(entry[0])), (b"", "utf-8"))
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in content and not mark:
            raise InputFileError(f"{path} is a binary file") from None
        at = len(mark) + error.start
        raise InputFileError(f"{path} is not {encoding.upper()} text (byte {at} cannot be decoded)") from None
    if "\0" in text:
        raise InputFileError(f"{path} is a binary file")
    return SourceFile(path, text, bool(mark))


def offset_of(source: SourceFile, line: int, column: int) -> int:
    """The offset into `source.text` of a line and column (from 1); InputFileError when they are outside."""
    start, end = _line_span(source, line)
    mark_columns = _mark_columns(source, line)
    last_column = end - start + mark_columns + 1
    if column > last_column:
        raise InputFileError(
            f"{source.path}: column {column} is outside line {line}, whose last column is {last_column}"
        )
    # Nothing may go before the mark, so its own column is the place after it.
    return start + max(0, column - 1 - mark_columns)


def utf16_position(source: SourceFile, offset: int) -> tuple[int, int]:
    """Line and character from 0 of an offset, the character in UTF-16 units, as editors count."""
    line, start = 0, 0
    for match in _LINE_END.finditer(source.text, 0, offset):
        line, start = line + 1, match.end()
    units = len(source.text[start:offset].encode("utf-16-le", "surrogatepass")) // 2
    return line, units + _mark_columns(source, line + 1)


def language_of(path: Path) -> str | None:
    """The LSP language id that a file's name suggests; None when it suggests none."""
    return _LANGUAGES.get(path.suffix.lower()) or _LANGUAGES.get(path.name.lower())


def _line_span(source: SourceFile, line: int) -> tuple[int, int]:
    start, number = 0, 1
    for match in _LINE_END.finditer(source.text):
        if number == line:
            return start, match.start()
        start, number = match.end(), number + 1
    if number == line:
        return start, len(source.text)
    lines = "1 line" if number == 1 else f"{number} lines"
    raise InputFileError(f"{source.path}: there is no line {line}, the file has {lines}")


def _mark_columns(source: SourceFile, line: int) -> int:
    return 1 if source.marked and line == 1 else 0


_LANGUAGES = {
    ".bash": "shellscript",
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cs": "csharp",
    ".css": "css",
    ".go": "go",
    ".h": "c",
    ".hpp": "cpp",
    ".html": "html",
    ".java": "java",
    ".js": "javascript",
    ".json": "json",
    ".jsx": "javascriptreact",
    ".lua": "lua",
    ".markdown": "markdown",
    ".md": "markdown",
    ".mjs": "javascript",
    ".php": "php",
    ".py": "python",
    ".pyi": "python",
    ".rb": "ruby",
    ".rs": "rust",
    ".sh": "shellscript",
    ".sql": "sql",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "typescriptreact",
    ".txt": "plaintext",
    ".yaml": "yaml",
    ".yml": "yaml",
    "dockerfile": "dockerfile",
    "makefile": "makefile",
}
