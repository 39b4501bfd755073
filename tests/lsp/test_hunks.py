"""Hunks: the edits between two texts give the new one, keep apart, and touch no more than what changed."""

from __future__ import annotations

import difflib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lsp.document import Document, Json, applied, show

from tenon_lsp.hunks import Edit, hunks
from tenon_lsp.positions import Encoding
from tenon_lsp.text import Text

PIECES = [
    "a",
    "b",
    "ab",
    "é",
    "e\u0301",
    "🚀",
    " ",
    "\t",
    "\u2028",
    "\x0b",
    "\n",
    "\r",
    "\r\n",
    "a\n",
    "b\r\n",
    "\n\n",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)
LINES = st.lists(st.sampled_from(["a", "b", "c", "ab", "  a", "", "é🚀"]), max_size=12)


def inside_line_end(text: str, offset: int) -> bool:
    return text[max(offset - 1, 0) : offset + 1] == "\r\n"


def check(old: str, new: str, around: tuple[str, str] = ("", "")) -> list[Edit]:
    """The edits between two texts, in a document, after all that always holds of them was checked."""
    before, after = around
    edits = hunks(old, new, len(before))
    document = before + old + after
    assert applied(document, edits) == before + new + after
    assert all(len(before) <= edit.start <= edit.end <= len(before) + len(old) for edit in edits)
    assert all(one.end < other.start for one, other in itertools.pairwise(edits))
    assert all(document[edit.start : edit.end] != edit.new for edit in edits)
    grown = 0
    for edit in edits:
        start = edit.start + grown - len(before)
        assert not any(inside_line_end(old, edge - len(before)) for edge in (edit.start, edit.end))
        assert not any(inside_line_end(new, edge) for edge in (start, start + len(edit.new)))
        grown += len(edit.new) - (edit.end - edit.start)
    return edits


@given(TEXTS, TEXTS, TEXTS.filter(lambda text: not text.endswith("\r")), TEXTS)
def test_the_edits_give_the_new_text(old: str, new: str, before: str, after: str) -> None:
    check(old, new, (before, after))


@given(TEXTS)
def test_equal_texts_have_no_edits(text: str) -> None:
    assert hunks(text, text, 7) == []


@given(LINES, LINES, st.sampled_from(["\n", "\r\n", "\r"]))
def test_lines_that_stay_are_not_touched(old: list[str], new: list[str], line_end: str) -> None:
    before = "".join(f"{line}{line_end}" for line in old)
    edits = check(before, "".join(f"{line}{line_end}" for line in new))
    starts = [0, *(found.end() for found in re.finditer(re.escape(line_end), before))]
    staying = [
        block.a + index
        for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        for index in range(block.size)
    ]
    for line in staying:
        content_end = starts[line] + len(old[line])
        assert not any(edit.start < content_end and edit.end > starts[line] for edit in edits)


@given(TEXTS, TEXTS, st.sampled_from(list(Encoding)))
def test_an_editor_that_is_given_positions_comes_to_the_same_text(
    old: str, new: str, encoding: Encoding
) -> None:
    text, document = Text.of(old), Document("file:///a", "plaintext", old, encoding.value)

    def position(offset: int) -> Json:
        found = text.position(offset, encoding)
        return {"line": found.line, "character": found.character}

    edits = [
        {"range": {"start": position(edit.start), "end": position(edit.end)}, "newText": edit.new}
        for edit in hunks(old, new, 0)
    ]
    assert document.with_edits(edits) == new


@pytest.mark.parametrize(
    ("old", "new", "edits"),
    [
        ("a = 1⏎b = 2⏎c = 3", "a = 1⏎b = 5⏎c = 3", [Edit(10, 11, "5")]),
        ("a⏎b⏎c", "x⏎b⏎y", [Edit(0, 1, "x"), Edit(4, 5, "y")]),
        ("a⏎c", "a⏎b⏎c", [Edit(2, 2, "b\n")]),
        ("a⏎b⏎c", "a⏎c", [Edit(2, 4, "")]),
        ("", "a", [Edit(0, 0, "a")]),
        ("a", "", [Edit(0, 1, "")]),
        ("a⏎", "a␍⏎", [Edit(1, 2, "\r\n")]),
        ("a␍⏎", "a⏎", [Edit(1, 3, "\n")]),
        ("a␍⏎", "a␍", [Edit(1, 3, "\r")]),
        ("a␍b", "a␍⏎b", [Edit(1, 2, "\r\n")]),
        ("ab␍⏎", "ac␍⏎", [Edit(1, 2, "c")]),
        ("x = '🚀'", "x = '🛰'", [Edit(5, 6, "🛰")]),
    ],
)
def test_the_edits_between(old: str, new: str, edits: list[Edit]) -> None:
    assert check(show(old), show(new)) == edits


def test_edits_are_counted_from_where_the_text_stands() -> None:
    assert hunks("a", "b", 100) == [Edit(100, 101, "b")]
