"""The user's file: what is read, what is refused, and where LINE:COL is."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine import source_file
from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.source_file import SourceFile

TEXTS = st.lists(st.sampled_from(["a", "é", "🚀", "\t", "\n", "\r", "\r\n", "\u2028"])).map("".join)


def written(folder: Path, content: bytes, name: str = "a.py") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("argument", "path", "line", "column"),
    [
        ("a.py:1:2", "a.py", 1, 2),
        (r"C:\code\a.py:12:5", r"C:\code\a.py", 12, 5),
        ("a:b:3.py:10:1", "a:b:3.py", 10, 1),
        ("./odd\nname:1:1", "./odd\nname", 1, 1),
    ],
)
def test_a_place_is_split_from_the_right(argument: str, path: str, line: int, column: int) -> None:
    assert source_file.parse_place(argument) == source_file.Place(Path(path), line, column)


@pytest.mark.parametrize(
    "argument",
    ["", "a.py", "a.py:1", ":1:1", "a.py:x:1", "a.py:1:", "a.py:1:-1", "a.py:0:1", "a.py:1:0", "a.py:٣:1"],
)
def test_anything_else_is_no_place(argument: str) -> None:
    with pytest.raises(BadRequestError):
        source_file.parse_place(argument)


@given(TEXTS, st.sampled_from(["utf-8", "utf-8-sig"]))
def test_reading_keeps_every_character_and_every_line_end(
    tmp_path_factory: pytest.TempPathFactory, text: str, encoding: str
) -> None:
    path = written(tmp_path_factory.getbasetemp(), text.encode(encoding))
    assert source_file.read(path) == SourceFile(path, text, marked=encoding == "utf-8-sig")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_read_by_their_mark(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, "\ufeffx = 'é🚀'\r\n".encode(encoding))
    assert source_file.read(path).text == "x = 'é🚀'\r\n"


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    source = source_file.read(written(tmp_path, b""))
    assert source_file.offset_of(source, 1, 1) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x00\x01\xff", "binary"),
        (b"text with a NUL \x00", "binary"),
        (b"caf\xe9 = 1\n", "byte 3"),
        (codecs.BOM_UTF8 + b"ab\xff", "byte 5"),
        (codecs.BOM_UTF16_LE + b"a", "not UTF-16-LE text"),
    ],
)
def test_what_is_not_text_is_refused_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        source_file.read(written(tmp_path, content))


def test_missing_files_folders_and_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="does not exist"):
        source_file.read(tmp_path / "none.py")
    with pytest.raises(InputFileError, match="is a directory"):
        source_file.read(tmp_path)
    with pytest.raises(InputFileError, match="cannot be read"):
        source_file.read(written(tmp_path, b"x") / "child.py")
    with pytest.raises(InputFileError, match="cannot be read"):
        source_file.read(Path("nul\0name"))


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes are files of their own kind there")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputFileError, match="not a regular file"):
        source_file.read(tmp_path / "pipe")


def test_a_file_over_the_limit_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = written(tmp_path, b"")
    os.truncate(path, source_file.MAX_BYTES + 1)  # sparse: takes no room on the disk
    with pytest.raises(InputFileError, match="64 MB"):
        source_file.read(path)


@given(TEXTS, st.data())
def test_line_and_column_lead_to_the_offset_and_back(text: str, data: st.DataObject) -> None:
    source = SourceFile(Path("a.py"), text)
    offset = data.draw(st.integers(0, len(text)))
    if text[offset - 1 : offset + 1] == "\r\n":
        offset -= 1
    line, _ = source_file.utf16_position(source, offset)
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    assert source_file.offset_of(source, line + 1, offset - line_start + 1) == offset


def test_utf16_positions_count_an_emoji_twice() -> None:
    assert source_file.utf16_position(SourceFile(Path("a"), "x\n'🚀'"), 4) == (1, 3)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_column_may_be_one_past_the_end_of_the_line_but_no_more(line_end: str) -> None:
    source = SourceFile(Path("a.py"), f"ab{line_end}c")
    assert source_file.offset_of(source, 1, 3) == 2
    assert source_file.offset_of(source, 2, 2) == 3 + len(line_end)
    with pytest.raises(InputFileError, match="column 4 is outside line 1, whose last column is 3"):
        source_file.offset_of(source, 1, 4)


def test_a_line_that_is_not_there_is_named_with_what_is() -> None:
    with pytest.raises(InputFileError, match="there is no line 3, the file has 2 lines"):
        source_file.offset_of(SourceFile(Path("a.py"), "a\n"), 3, 1)
    with pytest.raises(InputFileError, match=r"the file has 1 line$"):
        source_file.offset_of(SourceFile(Path("a.py"), ""), 2, 1)


def test_the_byte_order_mark_is_a_column_of_line_one_only() -> None:
    source = SourceFile(Path("a.py"), "ab\ncd", marked=True)
    assert [source_file.offset_of(source, 1, column) for column in (1, 2, 3, 4)] == [0, 0, 1, 2]
    assert source_file.offset_of(source, 2, 1) == 3
    assert source_file.utf16_position(source, 1) == (0, 2)
    assert source_file.utf16_position(source, 4) == (1, 1)


@pytest.mark.parametrize(
    ("name", "language"),
    [("a.py", "python"), ("A.TSX", "typescriptreact"), ("Makefile", "makefile"), ("notes", None)],
)
def test_the_language_follows_from_the_name(name: str, language: str | None) -> None:
    assert source_file.language_of(Path(name)) == language
