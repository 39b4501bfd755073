"""Text: every unit, every line end, what happens outside the text, and edits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_lsp.positions import Encoding, Position
from tenon_lsp.text import Text

ENCODINGS = list(Encoding)
PIECES = ["a", "é", "e\u0301", "🚀", "👩‍🚀", "汉", "\t", "\u2028", "\x0b", "\n", "\r", "\r\n", "\ufeff"]
TEXTS = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"])).map("".join)


def offset_at(text: str, position: Position, encoding: Encoding) -> int:
    return Text.of(text).offset(position, encoding)


def position_at(text: str, offset: int, encoding: Encoding) -> Position:
    return Text.of(text).position(offset, encoding)


def units(text: str, encoding: Encoding) -> int:
    """An independent count: what the codec itself makes of the text."""
    codec, width = {
        Encoding.UTF_8: ("utf-8", 1),
        Encoding.UTF_16: ("utf-16-le", 2),
        Encoding.UTF_32: ("utf-32-le", 4),
    }[encoding]
    return len(text.encode(codec)) // width


@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_every_offset_survives_the_round_trip_unless_it_splits_a_line_end(
    text: str, encoding: Encoding, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, len(text)))
    back = offset_at(text, position_at(text, offset, encoding), encoding)
    inside_line_end = text[offset - 1 : offset + 1] == "\r\n"
    assert back == (offset - 1 if inside_line_end else offset)


@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_a_position_counts_the_lines_and_the_units_before_it(
    text: str, encoding: Encoding, data: st.DataObject
) -> None:
    lines = re.split(r"\r\n|\r|\n", text)
    number = data.draw(st.integers(0, len(lines) - 1))
    column = data.draw(st.integers(0, len(lines[number])))
    position = Position(number, units(lines[number][:column], encoding))
    offset = offset_at(text, position, encoding)
    assert position_at(text, offset, encoding) == position
    assert text[:offset].endswith(lines[number][:column])


@given(TEXTS, st.sampled_from(ENCODINGS), st.integers(-3, 2**31), st.integers(-3, 2**31))
def test_any_position_gives_an_offset_inside_the_text(
    text: str, encoding: Encoding, line: int, character: int
) -> None:
    offset = offset_at(text, Position(line, character), encoding)
    assert 0 <= offset <= len(text)
    assert text[offset - 1 : offset + 1] != "\r\n"


@given(TEXTS, st.sampled_from(ENCODINGS))
def test_positions_grow_with_offsets(text: str, encoding: Encoding) -> None:
    positions = [position_at(text, offset, encoding) for offset in range(len(text) + 1)]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("encoding", "character"), [(Encoding.UTF_8, 7), (Encoding.UTF_16, 5), (Encoding.UTF_32, 4)]
)
def test_an_emoji_counts_as_its_encoding_says(encoding: Encoding, character: int) -> None:
    text = 't="🚀"'
    assert position_at(text, 4, encoding) == Position(0, character)
    assert offset_at(text, Position(0, character), encoding) == 4


def test_emoji_on_earlier_lines_do_not_shift_later_ones() -> None:
    assert offset_at("#🚀🚀\nk = ", Position(1, 4), Encoding.UTF_16) == 8


@pytest.mark.parametrize("character", [4, 5, 6])
def test_a_character_inside_a_code_point_is_its_start(character: int) -> None:
    assert offset_at("abc🚀d", Position(0, character), Encoding.UTF_8) == 3


def test_half_a_surrogate_pair_is_its_start() -> None:
    assert offset_at("🚀x", Position(0, 1), Encoding.UTF_16) == 0


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_character_past_the_end_of_its_line_stays_before_the_line_end(line_end: str) -> None:
    text = f"ab{line_end}cd"
    assert offset_at(text, Position(0, 99), Encoding.UTF_16) == 2
    assert offset_at(text, Position(1, 0), Encoding.UTF_16) == 2 + len(line_end)


@pytest.mark.parametrize(("text", "end"), [("", 0), ("ab", 2), ("ab\n", 3)])
def test_a_line_past_the_last_one_is_the_end_of_the_text(text: str, end: int) -> None:
    assert offset_at(text, Position(7, 3), Encoding.UTF_16) == end


def test_an_offset_outside_the_text_is_its_nearer_end() -> None:
    assert position_at("ab\nc", -5, Encoding.UTF_16) == Position(0, 0)
    assert position_at("ab\nc", 99, Encoding.UTF_16) == Position(1, 1)


def test_other_separators_do_not_end_a_line() -> None:
    assert position_at("a\x0bb\u2028c\x85d", 7, Encoding.UTF_16) == Position(0, 7)


LINE_PIECES = ["a", "é", "🚀", "\n", "\r", "\r\n", "\n\r", "ab\n", "\r\r\n"]


@given(
    st.lists(st.sampled_from(LINE_PIECES)).map("".join),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 6), st.lists(st.sampled_from(LINE_PIECES)).map("".join))
    ),
)
def test_an_edited_text_is_indexed_as_if_it_was_read_anew(
    source: str, edits: list[tuple[int, int, str]]
) -> None:
    text = Text.of(source)
    for start, length, new in edits:
        start = min(start, len(text.source))
        end = min(start + length, len(text.source))
        text = text.edited(start, end, new)
        assert text == Text.of(text.source)
