"""Holes: where they are, how often which, and that the engine would cut them so."""

from __future__ import annotations

import collections
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon_engine.training import grammars, holes, syntax_holes

LANGUAGES = ["python", "typescript", "markdown", "json", "yaml", "cobol", ""]
TEXTS = st.text(
    st.one_of(st.sampled_from("ab_ ()[]{}:.,\"'#-|=\t\n\r"), st.characters(exclude_categories=["Cs"]))
)
PYTHON = '''"""Prices, and what is paid for them."""

import math


class Till:
    """Adds up."""

    def __init__(self, prices: list[float], tax: float = 0.2) -> None:
        self.prices = [round(price, 2) for price in prices]
        self.tax = tax

    def total(self) -> float:
        """Sum of prices plus tax."""
        total = sum(self.prices) * (1 + self.tax)
        if total < 0:
            raise ValueError("é is no price", total)
        return math.floor(total)


print(Till([1.5, 2.5], 0.1).total(), "done")
'''


@settings(max_examples=300)
@given(text=TEXTS, language=st.sampled_from(LANGUAGES), seed=st.integers(0, 99))
def test_a_hole_is_within_the_text_and_says_something(text: str, language: str, seed: int) -> None:
    span = holes.sample(text, language, random.Random(seed))
    if span is None:
        return
    end = len(text) if span.text_end is None else span.text_end
    assert 0 <= span.start < span.end <= end <= len(text)
    assert text[span.start : span.end].strip()
    assert span.shape in holes.SHARES


@given(text=TEXTS, language=st.sampled_from(LANGUAGES), seed=st.integers(0, 3))
def test_holes_to_evaluate_on_are_the_same_every_time_and_different_ones(
    text: str, language: str, seed: int
) -> None:
    spans = holes.deterministic(text, language, seed, 4)
    assert spans == holes.deterministic(text, language, seed, 4)
    assert len({(span.start, span.end) for span in spans}) == len(spans) <= 4


def test_holes_to_evaluate_on_are_those_of_every_machine() -> None:
    spans = [PYTHON[span.start : span.end] for span in holes.deterministic(PYTHON, "cobol", 0, 3)]
    assert spans == [
        '        """Sum of prices plus tax."""',
        ")\n        return math.floor(total)",
        '"""Prices, and what is paid for them."""\n\nimport math',
    ]


def test_every_shape_is_drawn_about_as_often_as_it_should() -> None:
    drawn = _drawn(PYTHON, "python", 3000)
    shapes = collections.Counter(span.shape for span in drawn)
    assert set(shapes) == set(holes.SHARES) - {"table-cell"}
    assert 1.0 < shapes["rest-of-line"] / shapes["whole-lines"] < 1.8
    assert 0.5 < sum(shapes[shape] for shape in list(holes.SHARES)[:4]) / len(drawn) < 0.75


def test_about_one_hole_in_twelve_has_next_to_nothing_behind_it() -> None:
    text = PYTHON * 20
    ends = [span for span in _drawn(text, "python", 2000) if span.text_end is not None]
    assert 0.05 < len(ends) / 2000 < 0.12
    assert all(text[span.end : span.text_end].count("\n") <= 1 for span in ends)
    empty = sum(not text[span.end : span.text_end].strip() for span in ends)
    assert empty / len(ends) > 0.6


def test_places_behind_characters_of_several_bytes_are_counted_in_characters() -> None:
    text = "# 🚀é中\nx = g('ü', '中文', y)  # é\nz = h(x)\n"
    pieces = [text[start:end] for start, end in syntax_holes.find(text, "python")["argument"]]
    assert pieces == ["'ü'", "'中文'", "y", "x"]


def test_a_hole_leaves_the_line_end_to_the_suffix_as_an_editor_does() -> None:
    drawn = _drawn(PYTHON, "python", 200)
    rests = [span for span in drawn if span.shape == "rest-of-line" and span.text_end is None]
    assert len(rests) > 20
    assert all(PYTHON[span.end] == "\n" for span in rests)


def test_an_error_hides_no_more_than_its_own_place() -> None:
    found = syntax_holes.find("def f(:\n    pass )\n\n" + PYTHON, "python")
    assert {"argument", "expression", "statement", "body", "docstring", "string", "list-item"} <= set(found)


@pytest.mark.parametrize(
    ("language", "text", "shape", "want"),
    [
        ("python", "f(x, *[a, b])\n", "argument", ["x", "*[a, b]"]),
        ("python", "é = 'ü' + y\n", "expression", ["'ü' + y", "y"]),
        ("python", "def f():\n    '''What.'''\n    g()\n    h()\n", "docstring", ["What."]),
        ("python", "def f():\n    g()\n    h()\n", "body", ["g()\n    h()"]),
        ("python", "x = {'a': 1}\n", "list-item", ["'a': 1"]),
        ("python", "x = f'a b'\n", "string", ["a b"]),
        ("typescript", "const f = (a: number) => {\n  return a;\n}\n", "body", ["return a;"]),
        ("javascript", "/** Adds. */\nf(1)\n", "docstring", ["Adds."]),
        ("go", "package a\nfunc f() {\n\tg(1)\n\treturn\n}\n", "statement", ["g(1)", "return"]),
        ("rust", "fn f() { let y = g(x); }\n", "expression", ["g(x)"]),
        ("java", "class A { void f(int x) { g(x, 1); } }\n", "argument", ["int x", "x", "1"]),
        ("json", '{"a": [1, "b c"]}', "list-item", ['"a": [1, "b c"]', "1", '"b c"']),
        ("markdown", "- [ ] milk\n- bread and\n  butter\n", "list-item", ["milk", "bread and\n  butter"]),
        ("markdown", "| a | b c |\n|---|---|\n| d | e |\n", "table-cell", ["a", "b c", "d", "e"]),
    ],
)
def test_a_tree_names_places(language: str, text: str, shape: str, want: list[str]) -> None:
    places = syntax_holes.find(text, language)[shape]
    found = [text[start:end] for start, end in places]
    assert [piece for piece in want if piece not in found] == []


def test_every_grammar_is_there_and_counts_errors() -> None:
    for language in grammars._GRAMMARS:
        tree = grammars.parse("", language)
        assert tree is not None
        assert grammars.error_count(tree) == 0
    broken = grammars.parse("def f(:\n", "python")
    assert broken is not None
    assert grammars.error_count(broken) > 0


def test_blocks_that_a_scanner_cannot_bear_do_no_harm() -> None:
    text = "".join("  " * depth + "a:\n" for depth in range(400))
    assert holes.sample(text, "yaml", random.Random(0)) is not None


def test_of_a_large_text_a_page_is_looked_at() -> None:
    text = PYTHON * 3000
    assert len(_drawn(text, "python", 200)) == 200
    assert holes.sample("x" * 1_000_000, "python", random.Random(0)) is None


def _drawn(text: str, language: str, count: int) -> list[holes.HoleSpan]:
    rng = random.Random(5)
    found = (holes.sample(text, language, rng) for _ in range(count))
    return [span for span in found if span is not None]
