"""Fit: what it must never let through, and how seldom it changes what is right."""

from __future__ import annotations

import argparse
import ast
import configparser
import csv
import dataclasses
import difflib
import random
import re
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon_engine.fit import Reason, fit, shorten
from tenon_engine.fit.brackets import closes_more
from tenon_engine.fit.scan import find_brackets, open_quote

REAL_CODE = (argparse, ast, configparser, csv, dataclasses, difflib, random, textwrap)
HOLES_PER_FILE = 150

WORDS = (
    "x = 1",
    "return",
    "foo(a",
    "b)",
    "{",
    "}",
    "]",
    "[0",
    '"s',
    "'",
    "end",
    "-",
    "- a",
    "é🚀",
    ";",
    ":",
    "# c",
    "*",
)
GAPS = ("", " ", "    ", "\t", "   ", "\n", "\n\n", "\n    ", "\n\t", "\n        ")
CONTROL = ("<|endoftext|>", "<|fim_pad|>", "<|mask|>", "\x00", "\ufffd", "\ud800")

pieces = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(GAPS),
    st.text(max_size=4).map(lambda text: text.replace("\r", "")),
)
MARKS = ('"', "'", "`", "/", "*", "#", "=", "\\", "[", "]", "(", ")", " ", "\n", "b", "//", '"""', "/*")
marked_texts = st.lists(st.sampled_from(MARKS), max_size=14).map("".join)
texts = st.lists(pieces, max_size=12).map("".join)


@st.composite
def places_and_raw_texts(draw: st.DrawFn) -> tuple[str, str, str]:
    """A prefix, a suffix and a raw text that likes to repeat pieces of both, as bad models do."""
    prefix, suffix = draw(texts), draw(texts)
    start = draw(st.integers(0, len(prefix)))
    repeats = (prefix[start:], suffix[: draw(st.integers(0, len(suffix)))], suffix, "\n" + suffix, *CONTROL)
    raw = draw(st.lists(st.one_of(pieces, st.sampled_from(repeats)), max_size=6).map("".join))
    return prefix, suffix, raw


@settings(max_examples=4000, deadline=None, derandomize=True, database=None)
@given(places_and_raw_texts())
def test_a_fitted_text_is_empty_or_shows_something_and_stays_fitted(case: tuple[str, str, str]) -> None:
    prefix, suffix, raw = case
    fitted = fit(raw, prefix=prefix, suffix=suffix)
    assert not fitted.text or fitted.text.strip()
    assert not any(token in fitted.text for token in CONTROL)
    assert fit(fitted.text, prefix=prefix, suffix=suffix).text == fitted.text
    assert bool(fitted.reason) == (fitted.text != raw or not raw)


@pytest.mark.parametrize(
    ("reach", "changed_at_most"), [(1_000_000, 0.005), (1000, 0.01)], ids=["whole file", "excerpt"]
)
def test_the_true_middle_of_real_code_stays_as_it_is(reach: int, changed_at_most: float) -> None:
    generator = random.Random(0)
    middles = [middle for module in REAL_CODE for middle in true_middles(module, generator)]
    changed = []
    for prefix, middle, suffix in middles:
        start = prefix.rfind("\n", 0, max(0, len(prefix) - reach)) + 1
        if fit(middle, prefix=prefix[start:], suffix=suffix[:reach]).text != middle:
            changed.append((prefix[-80:], middle, suffix[:80]))
    assert len(middles) > 1000
    assert len(changed) <= changed_at_most * len(middles), changed


def true_middles(module: types.ModuleType, generator: random.Random) -> Iterator[tuple[str, str, str]]:
    """Rests of lines, whole lines, spans inside a line and from one line to another, insides of brackets."""
    assert module.__file__
    text = Path(module.__file__).read_text(encoding="utf-8")
    lines = [found.span() for found in re.finditer(r"(?<=\n)[ \t]*\S.*", text)]
    brackets = [found.span(1) for found in re.finditer(r"\(([^()\n]+)\)", text)]
    for _ in range(HOLES_PER_FILE // 5):
        index = generator.randrange(len(lines) - 4)
        (start, end), (later_start, later_end) = lines[index], lines[index + generator.randint(1, 4)]
        start += len(text[start:end]) - len(text[start:end].lstrip())
        middle, later = generator.randint(start, end - 1), generator.randint(later_start, later_end)
        spans = [
            (middle, end),
            (start, later_end),
            (start, middle),
            (middle, later),
            generator.choice(brackets),
        ]
        for begin, stop in spans:
            if text[begin:stop].strip():
                yield text[:begin], text[begin:stop], text[stop:]


@pytest.mark.parametrize(
    ("raw", "prefix", "suffix", "reason"),
    [
        ("x = 1", "", "", ""),
        ("x<|endoftext|>y", "", "", Reason.CONTROL.value),
        (" a", "if b:\n    ", "", Reason.INDENTATION.value),
        ("a + b", "x = ", " + b", Reason.SUFFIX_ECHO.value),
        ("x = a", "x = ", "", Reason.PREFIX_ECHO.value),
        ("a\na\na", "", "", Reason.LOOP.value),
        ("a)", "f(", ")", Reason.BRACKETS.value),
        ("f(a", "x = ", "\n", Reason.CLOSED.value),
        (" ", "x", "y", Reason.BLANK.value),
        (
            " a)<|mask|>",
            "if b:\n    f(\n    ",
            "\n    )",
            f"{Reason.CONTROL.value}, {Reason.INDENTATION.value}, {Reason.BRACKETS.value}",
        ),
    ],
)
def test_every_rule_that_changed_the_text_is_named(raw: str, prefix: str, suffix: str, reason: str) -> None:
    assert fit(raw, prefix=prefix, suffix=suffix).reason == reason


@pytest.mark.parametrize(
    ("unfinished", "before", "after", "piece"),
    [
        ("a = 1\nb = 2\nc = ", "", "", "a = 1\nb = 2"),
        ("a = 1\nb", "", "c = 3", "a = 1\n"),  # the next line keeps its own
        ("foo(bar), ba", "x = ", "", "foo(bar)"),
        ("foo(a[1], b", "x = ", "", ""),  # a bracket is open at every boundary
        ("a\nb", "x = ", " + y", ""),  # a line end is no place to stop before the rest of a line
        ('print("a) b', "", "", ""),
        (
            "return x\n\n\ndef other(y):\n    ret",
            "",
            "",
            "return x",
        ),  # the rest is a guess
        ("return x\n\ny = f(", "", "z = 1", "return x\n"),
        ("name", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_an_unfinished_text_is_kept_up_to_a_line_or_bracket_boundary(
    unfinished: str, before: str, after: str, piece: str
) -> None:
    assert shorten(unfinished, prefix=before, suffix=after) == piece


@pytest.mark.parametrize("bracket", [")", "]", "}"])
def test_a_closer_stays_when_the_suffix_does_not_have_it(bracket: str) -> None:
    opener = {")": "(", "]": "[", "}": "{"}[bracket]
    assert fit(f"a{bracket}", prefix=f"x = {opener}", suffix="\ny = 2\n").text == f"a{bracket}"
    assert fit(f"a{bracket}", prefix=f"x = {opener}", suffix=f"{bracket}\ny = 2\n").text == "a"


@pytest.mark.parametrize(
    "noise",
    ["# 1) first", "# :-( ", '"""(\n"""', "s = ':('", "// {", "/* { */", "re = /[)]}/", "don't (do) this"],
)
def test_brackets_in_comments_and_strings_do_not_count(noise: str) -> None:
    prefix, suffix = f"{noise}\nfoo(", f")\n{noise}\n"
    assert fit("a)", prefix=prefix, suffix=suffix).text == "a"
    assert fit("bar(a)", prefix=prefix, suffix=suffix).text == "bar(a)"


def test_a_document_of_a_megabyte_in_one_line_is_fitted() -> None:
    line = "x = (" * 200_000
    assert fit("a)", prefix=line, suffix=")" * 200_000).text == "a"


def test_a_file_with_irregular_indentation_keeps_the_lines_of_a_fill() -> None:
    prefix = "if a:\n   b(c,\n     d)\nif e:\n"
    assert fit("   f(\n      g)", prefix=prefix, suffix="").text == "   f(\n      g)"


def test_a_level_may_end_and_a_deeper_one_may_follow() -> None:
    prefix = "class A:\n    def f(self):\n        if x:\n            y()\n    "
    assert fit("    return 1", prefix=prefix, suffix="\n").text == "    return 1"


@pytest.mark.parametrize(
    ("raw", "prefix", "suffix", "text"),
    [
        ("    a = 1", "def f():\n", "    return a\n", "    a = 1\n"),
        ("    a = 1\n", "def f():\n", "    return a\n", "    a = 1\n"),
        ("    a = 1", "def f():\n", "\n    return a\n", "    a = 1"),  # the hole's line has an end of its own
        ("1", "def f():\n    a = ", "  # one\n", "1"),  # the hole is not at the start of a line
        ("await ", "def f():\n", "    g()\n", "await "),
        ("x = 1", "", "y = 2\n", "x = 1"),  # it may as well be the start of this line
    ],
)
def test_whole_lines_before_an_indented_line_get_the_line_end_they_lack(
    raw: str, prefix: str, suffix: str, text: str
) -> None:
    assert fit(raw, prefix=prefix, suffix=suffix).text == text


@pytest.mark.parametrize(
    "line",
    [
        'json.loads("' + r"\"key\": \"value\", " * 20_000,
        "if(a=/b[c/d)x=/e[f;" * 20_000,
        "=/[a" * 50_000,
        '"\\' * 100_000,
        "'\\" * 100_000,
        "`" * 200_001,
        "(" * 100_000 + "]" * 100_000,
        "'''" * 70_000 + '"',
        " //" * 70_000,
    ],
    ids=lambda line: line[:12],
)
def test_a_line_that_goes_on_and_on_is_read_once(line: str) -> None:
    open_quote(line)  # reading on from every quote would take minutes
    assert closes_more(line + "\n}")
    assert fit("a + b", prefix=line + "\nx = ", suffix="\n" + line).text == "a + b"


@settings(max_examples=2000, deadline=None, derandomize=True, database=None)
@given(marked_texts, marked_texts)
def test_a_text_read_on_from_where_it_was_settled_has_the_brackets_of_the_whole(
    first: str, second: str
) -> None:
    brackets, settled = find_brackets(first)
    before = [each for each in brackets if each[0] < settled]
    assert before + find_brackets(first + second, settled)[0] == find_brackets(first + second)[0]


@pytest.mark.parametrize(
    ("raw", "prefix", "suffix", "text"),
    [
        ("abs(w * h", "def f(w, h):\n    return 2 * ", "\n", "abs(w * h)"),
        ("a[f({1: b ", "x = ", "\ny = (2)\n", "a[f({1: b})]"),
        ("g(a", "x = f(", "\n", "g(a)"),  # the outer one is not the fill's
        ("f(a", "x = ", "\n    b)\n", "f(a"),  # closed below
        ("f(a", "x = ", ")\n", "f(a"),  # closed behind it
        ("1), g(a,", "x = f(", "\n    b)\n", "1), g(a,"),
        ('f("a', "x = ", "\n", 'f("a'),
        ("f(a  # b", "x = ", "\n", "f(a  # b"),
        ("# see (a", "", "\n", "# see (a"),
        ("see (a", '"""A text\n', '\n"""\n', "see (a"),
        ("if a(b:\n    c(", "", "\n", "if a(b:\n    c("),  # where it was meant to end, nobody knows
        ("f(a", "    x = 1\n    y = ", "\n", "f(a"),  # an excerpt: what is open further up cannot be seen
    ],
)
def test_a_bracket_that_nothing_closes_is_closed_at_the_end_of_its_line(
    raw: str, prefix: str, suffix: str, text: str
) -> None:
    assert fit(raw, prefix=prefix, suffix=suffix).text == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<|fim_<|fim_middle|>middle|>x", ""),
        ("a<|fim_<|b<fim_<|fim_middle|>|>|>", "a"),
        ("f <| x<|endoftext|>", "f <| x"),
        ("f <| x", "f <| x"),
    ],
)
def test_a_control_token_begun_around_another_goes_with_it(raw: str, text: str) -> None:
    assert fit(raw, prefix="", suffix="\n").text == text
