"""Trim: what is left of a fill, in several languages, and what always holds of it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tree_sitter
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lsp import invariants
from tests.lsp.document import Document, at_cursor, at_selection, show

from tenon_lsp import excerpt
from tenon_lsp.documents import Documents
from tenon_lsp.place import Place
from tenon_lsp.positions import Encoding
from tenon_lsp.syntax import Syntax
from tenon_lsp.trim import Trimmed, best, trim

ROOT = Path(__file__).parents[2]
URI = "file:///work/file"

TYPESCRIPT = """import { readFile } from "node:fs/promises";

export interface Entry {
  name: string;
  sizes: number[];
}

export class Catalog {
  private readonly entries = new Map<string, Entry>();

  constructor(private readonly path: string) {}

  async load(): Promise<void> {
    const text = await readFile(this.path, "utf-8");
    for (const line of text.split("\\n")) {
      const [name, ...sizes] = line.split(",");
      if (!name) {
        continue;
      }
      this.entries.set(name, { name, sizes: sizes.map((size) => Number(size)) });
    }
  }

  total(name: string): number {
    const entry = this.entries.get(name);
    if (entry === undefined) {
      throw new Error(`no entry ${name}`);
    } else {
      return entry.sizes.reduce((sum, size) => sum + size, 0);
    }
  }
}

export const EMPTY: Entry = {
  name: "",
  sizes: [],
};
"""
GO = """package stack

import "errors"

// ErrEmpty is returned when nothing is left.
var ErrEmpty = errors.New("empty")

type Stack struct {
\titems []int
\tlimit int
}

func (s *Stack) Push(item int) bool {
\tif s.limit > 0 && len(s.items) >= s.limit {
\t\treturn false
\t}
\ts.items = append(s.items, item)
\treturn true
}

func (s *Stack) Pop() (int, error) {
\tif len(s.items) == 0 {
\t\treturn 0, ErrEmpty
\t}
\tlast := s.items[len(s.items)-1]
\ts.items = s.items[:len(s.items)-1]
\treturn last, nil
}
"""
RUST = """use std::collections::HashMap;

pub struct Counter<'a> {
    words: HashMap<&'a str, usize>,
}

impl<'a> Counter<'a> {
    pub fn new() -> Self {
        Counter { words: HashMap::new() }
    }

    pub fn add(&mut self, text: &'a str) {
        for word in text.split_whitespace() {
            *self.words.entry(word).or_insert(0) += 1;
        }
    }

    pub fn most(&self) -> Option<(&'a str, usize)> {
        match self.words.iter().max_by_key(|(_, count)| **count) {
            Some((word, count)) => Some((word, *count)),
            None => None,
        }
    }
}
"""
C = """#include <stdio.h>
#include <stdlib.h>

struct node {
    int value;
    struct node *next;
};

static struct node *push(struct node *head, int value)
{
    struct node *node = malloc(sizeof *node);
    if (node == NULL) {
        return head;
    }
    node->value = value;
    node->next = head;
    return node;
}

int main(void)
{
    struct node *head = NULL;
    for (int i = 0; i < 10; i++) {
        head = push(head, i * i);
    }
    while (head != NULL) {
        printf("%d\\n", head->value);
        head = head->next;
    }
    return 0;
}
"""
JAVA = """package shapes;

import java.util.ArrayList;
import java.util.List;

public class Drawing {
    private final List<Shape> shapes = new ArrayList<>();

    public void add(Shape shape) {
        if (shape == null) {
            throw new IllegalArgumentException("no shape");
        }
        shapes.add(shape);
    }

    public double area() {
        double sum = 0;
        for (Shape shape : shapes) {
            sum += shape.area();
        }
        return sum;
    }

    interface Shape {
        double area();
    }
}
"""
SOURCES = {"typescript": TYPESCRIPT, "go": GO, "rust": RUST, "c": C, "java": JAVA}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A cursor in a document, what the engine wrote, and what is left of it."""

    what: str
    language: str
    marked: str
    raw: str
    text: str
    reason: str
    one_line: bool = False


SEVERAL_LINES = [
    Case("a good line", "python", "x = █⏎", "f(1)", "f(1)", ""),
    Case("good lines", "python", "def f():⏎    █⏎", "a = 1⏎    return a", "a = 1⏎    return a", ""),
    Case("python: dedent", "python", "def f():⏎    █⏎", "return 1⏎⏎def g():⏎    pass", "return 1", "block"),
    Case("python: other branch", "python", "if a:⏎    █⏎", "b()⏎else:⏎    c()", "b()", "block"),
    Case(
        "python: after the header",
        "python",
        "def f(█",
        "x):⏎    return x⏎⏎def g():",
        "x):⏎    return x",
        "block",
    ),
    Case(
        "python: at the top",
        "python",
        "█",
        "def f():⏎    a⏎⏎def g():⏎    b",
        "def f():⏎    a⏎⏎def g():⏎    b",
        "",
    ),
    Case(
        "python: a column below", "python", "def f():⏎█⏎⏎f()", "    a⏎    return b", "    a⏎    return b", ""
    ),
    Case(
        "python: damaged above",
        "python",
        "x = (⏎⏎def f():⏎    █",
        "return 1⏎def g():⏎    a",
        "return 1",
        "block",
    ),
    Case("python: stray closer", "python", "x = f(█)⏎", "a))", "a", "syntax"),
    Case("python: unfinished end", "python", "█⏎", "a = f(1)⏎b = ]", "a = f(1)", "syntax"),
    Case("python: brackets closed", "python", "█⏎", "a = [⏎    1,⏎    2,", "a = [⏎    1,⏎    2,⏎]", "syntax"),
    Case("python: nothing of use", "python", "a = 1⏎█⏎", "= = =", "", "syntax"),
    Case("python: half typed", "python", "def f(:⏎    x = █⏎", "g(1)", "g(1)", ""),
    Case(
        "js: leaves the function",
        "javascript",
        "f(() => {⏎  █⏎});⏎",
        "a();⏎});⏎g(() => {⏎  b();",
        "a();",
        "block",
    ),
    Case(
        "js: closer needed", "javascript", "function f() {⏎  █", "a();⏎}⏎⏎function g() {", "a();⏎}", "block"
    ),
    Case("js: closers needed", "javascript", "f(() => {⏎  █", "a();⏎});⏎g();", "a();⏎});", "block"),
    Case(
        "js: ends the branch first",
        "javascript",
        "if (a) {⏎  b();⏎█⏎}⏎",
        "} else {⏎  c();",
        "} else {⏎  c();",
        "",
    ),
    Case(
        "js: chain",
        "javascript",
        "f(█);⏎",
        "a, (x) => {⏎  b(x);⏎}, {⏎  c: 1⏎}",
        "a, (x) => {⏎  b(x);⏎}, {⏎  c: 1⏎}",
        "",
    ),
    Case("js: block closed", "javascript", "█⏎", "if (a) {⏎  b();", "if (a) {⏎  b();⏎}", "syntax"),
    Case(
        "ts: next member",
        "typescript",
        "class A {⏎  f(█⏎}⏎",
        ") {⏎    a();⏎  }⏎  g() {",
        ") {⏎    a();⏎  }",
        "block",
    ),
    Case("ts: type", "typescript", "let a: █ = [];⏎", "Array<number>", "Array<number>", ""),
    Case("go: next function", "go", GO + "⏎func f() {⏎⇥█⏎}⏎", "a()⏎}⏎⏎func g() {⏎⇥b()", "a()", "block"),
    Case("go: literal", "go", "package a⏎⏎var x = []int{⏎⇥█⏎}⏎", "1,⏎⇥2,⏎}⏎", "1,⏎⇥2,", "syntax"),
    Case(
        "rust: next arm stays inside",
        "rust",
        "fn f() {⏎    match a {⏎        █⏎    }⏎}⏎",
        "1 => 2,⏎        _ => 3,",
        "1 => 2,⏎        _ => 3,",
        "",
    ),
    Case(
        "rust: one brace",
        "rust",
        "fn f() {⏎    let b = B {⏎        █⏎    };⏎}⏎",
        "w,⏎        h,⏎    };",
        "w,⏎        h,",
        "syntax",
    ),
    Case(
        "c: next function",
        "c",
        "int f(void)⏎{⏎    █⏎}⏎",
        "return 1;⏎}⏎⏎int g(void)⏎{⏎    return 2;",
        "return 1;",
        "block",
    ),
    Case(
        "java: leaves the class",
        "java",
        "class A {⏎    █⏎}⏎",
        "int a;⏎}⏎⏎class B {⏎    int b;",
        "int a;",
        "block",
    ),
    Case("ruby: leaves the method", "ruby", "def f⏎  █⏎end⏎", "a⏎end⏎⏎def g⏎  b", "a", "block"),
    Case("yaml: dedent", "yaml", "a:⏎  █⏎", "b: 1⏎c: 2", "b: 1", "block"),
    Case("html: leaves the element", "html", "<div>⏎  █⏎</div>⏎", "a⏎</div>⏎<div>⏎  b", "a", "block"),
    Case("html: script", "html", "<script>⏎let a = █⏎</script>⏎", "1;⏎</script>⏎<p>", "1;", "region"),
    Case(
        "fence", "markdown", "```python⏎def f():⏎    █⏎```⏎Text⏎", "return 1⏎```⏎⏎More", "return 1", "region"
    ),
    Case("fence of no language", "markdown", "~~~⏎█⏎~~~⏎Text⏎", "a b⏎~~~⏎", "a b", "region"),
    Case("longer fence", "markdown", "````⏎█⏎````⏎", "```⏎a⏎```⏎b", "```⏎a⏎```⏎b", ""),
    Case("front matter", "markdown", "---⏎a: █⏎---⏎Text⏎", "1⏎b: 2⏎---⏎# A", "1⏎b: 2", "region"),
    Case("unknown: dedent", "kotlin", "fun f() {⏎    █⏎}⏎", "a()⏎}⏎⏎fun g() {⏎    b()", "a()", "block"),
    Case("unknown: closer needed", "kotlin", "fun f() {⏎    █", "a()⏎}⏎⏎g()", "a()⏎}", "block"),
    Case("unknown: any brackets", "latex", "\\frac{█}{2}⏎", "a +⏎b", "a +⏎b", ""),
    Case("lines below", "python", "def f(r):⏎    █⏎    return r⏎", "p = 3⏎    return r", "p = 3", "echo"),
    Case("line below alone", "python", "def f(r):⏎    █⏎    return r⏎", "return r", "", "echo"),
    Case("rest of the line", "python", 'use("./parts/█.css")⏎', 'button.css")', "button", "echo"),
    Case(
        "words further below",
        "python",
        "def f(n):⏎█⏎⏎f(7)⏎",
        "    return f(n - 1)",
        "    return f(n - 1)",
        "",
    ),
    Case("closers are no echo", "python", "f(█)⏎", "g(1)", "g(1)", ""),
    Case("end token", "python", "return █⏎", "x<|endoftext|>y", "x", "control"),
    Case("only control text", "python", "x = █⏎", "<|mask|>", "", "control"),
    Case("broken bytes", "python", "x = █⏎", "a\ufffd", "a", "control"),
    Case("line ends", "python", "a = 1␍⏎█␍⏎", "b = 2⏎c = 3", "b = 2␍⏎c = 3", "line-ends"),
    Case("foreign line ends", "python", "a = 1⏎█⏎", "b = 2␍⏎c = 3", "b = 2⏎c = 3", "line-ends"),
    Case("blank", "python", "int█ x", "␣", "", "blank"),
    Case("nothing", "python", "x = █", "", "", ""),
]
ONE_LINE = [
    Case("several lines", "python", "x = foo(█, 3)⏎", "a, b⏎y = 2", "a, b", "one-line"),
    Case("begins with a line end", "python", "def f():█⏎", "⏎    return 1", "", "one-line"),
    Case("one line", "python", "total = █ + tax⏎", "price * qty", "price * qty", ""),
    Case("what is left does not parse", "javascript", "█⏎", "if (a) {⏎  b();⏎}", "", "syntax"),
]


@pytest.mark.parametrize("case", SEVERAL_LINES, ids=lambda case: case.what)
def test_a_fill_is_cut_to_what_fits(case: Case) -> None:
    place = _place(case.language, *at_cursor(case.marked))
    assert trim(show(case.raw), place, one_line=False) == Trimmed(show(case.text), case.reason)


@pytest.mark.parametrize("case", ONE_LINE, ids=lambda case: case.what)
def test_a_fill_of_one_line_stays_on_it(case: Case) -> None:
    place = _place(case.language, *at_cursor(case.marked))
    assert trim(show(case.raw), place, one_line=True) == Trimmed(show(case.text), case.reason)


def test_prose_keeps_its_shape() -> None:
    place = _place("markdown", *at_cursor("# Title █⏎"))
    assert trim("of one line\n\nText", place, one_line=False) == Trimmed("of one line", "markup")


def test_a_comment_stays_one() -> None:
    place = _place("python", *at_cursor("# Adds █⏎"))
    assert trim("one\nx = 1", place, one_line=False) == Trimmed("one", "markup")


def test_a_place_that_is_replaced_counts_as_empty() -> None:
    source, start, end = at_selection("x = f(⟦= =⟧)⏎y = 1⏎")
    assert trim("1))", _place("python", source, start, end), one_line=False).text == "1"


def test_errors_that_stood_there_before_are_not_held_against_a_fill() -> None:
    place = _place("python", *at_cursor("def broken(:⏎⏎def f():⏎    return █⏎"))
    assert trim("g(1)", place, one_line=True).text == "g(1)"


def test_candidates_that_parse_come_first_then_the_surer_ones() -> None:
    place = _place("python", *at_cursor("x = f(█)⏎"))
    candidates = [("a))", 0.9), ("b", 0.5), ("c", 0.7), ("d", 0.05), ("b", 0.4), ("", 0.8)]
    assert best(candidates, place, one_line=True, min_confidence=0.1) == [("c", 0.7), ("b", 0.5), ("a", 0.9)]


def test_candidates_that_become_the_same_are_offered_once() -> None:
    place = _place("python", *at_cursor("x = foo(█, 3)⏎"))
    candidates = [("a", 0.4), ("a, 3)", 0.6), ("a\nb", 0.3)]
    assert best(candidates, place, one_line=True, min_confidence=0.0) == [("a", 0.6)]


def test_a_large_document_is_trimmed_like_a_small_one() -> None:
    functions = "".join(
        f"def function_{number}(a):\n    return [a, {number}]\n\n\n" for number in range(4_000)
    )
    for broken in ("", "def broken(:\n    pass\n\n\n"):
        marked = functions + broken + "def f():⏎    █⏎" + "\n\n" + functions
        place = _place("python", *at_cursor(marked))
        assert len(place.snapshot.text.source) > excerpt.WHOLE_CHARACTERS
        assert trim("return f(1))\n", place, one_line=False).text == "return f(1)"
        assert trim("return 1\n\ndef g():", place, one_line=False).text == "return 1"
        assert trim("if a:\n        b()", place, one_line=False).text == "if a:\n        b()"


@pytest.mark.parametrize("language", ["python", "javascript", *SOURCES])
def test_good_text_is_left_alone(language: str) -> None:
    cut: list[str] = []
    count = 0
    for source in _sources(language):
        chance = random.Random(len(source))
        for start, end in _holes(source, language, chance, 12 if language == "python" else 120):
            text = source[start:end]
            place = _place(language, source[:start] + source[end:], start)
            left = trim(text, place, one_line="\n" not in text)
            count += 1
            if left.text != text:
                cut.append(f"{left.reason}: {text!r} became {left.text!r}")
    assert count >= 90
    assert len(cut) <= 0.01 * count, "\n".join(cut)


_PIECES = st.sampled_from(
    [
        *[
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            ":",
            ",",
            ";",
            '"',
            "'",
            "#",
            "//",
            "=",
            " = ",
            ".",
            "<|mask|>",
            "\ufffd",
        ],
        *[
            "a",
            "f(x)",
            "return a",
            "if a:",
            "if (a) {",
            "else",
            "def g():",
            "function g() {",
            "func g() {",
            "end",
        ],
        *[
            "\n",
            "\n    ",
            "\n\n",
            "\r\n",
            "\n}\n",
            "    ",
            " ",
            "\t",
            "naïve 🎉",
            "a = 1\n    b = 2",
            "```\n",
            "- a\n",
        ],
    ]
)
_LANGUAGES = ["python", "javascript", *SOURCES, "markdown", "html", "yaml", "ruby", "kotlin"]


@st.composite
def _situations(draw: st.DrawFn) -> tuple[str, Place, bool]:
    """A fill, often one that repeats its surroundings, and a place in code that often is half typed."""
    language = draw(st.sampled_from(_LANGUAGES))
    lines = [line for source in _sources(language) for line in source.split("\n")][:80] or ["- a", "b: c", ""]
    first = draw(st.integers(0, len(lines)))
    source = "\n".join(lines[first : first + draw(st.integers(0, 25))] + draw(st.lists(_PIECES, max_size=3)))
    if draw(st.booleans()):
        source = source.replace("\r\n", "\n").replace("\n", "\r\n")
    start = draw(st.integers(0, len(source)))
    if source[start - 1 : start + 1] == "\r\n":
        start -= 1
    below = source[start : start + draw(st.integers(0, 60))]
    text = "".join(draw(st.lists(_PIECES | st.just(below) | st.sampled_from(lines), max_size=8)))
    return text, _place(language, source, start), draw(st.booleans())


@settings(max_examples=300)
@given(_situations())
def test_the_invariants_hold_of_what_is_left(situation: tuple[str, Place, bool]) -> None:
    text, place, one_line = situation
    left = trim(text, place, one_line=one_line)
    again = trim(left.text, place, one_line=one_line)
    assert again == Trimmed(left.text, "")
    if not left.text:
        return
    document = Document(URI, place.language, place.snapshot.text.source, "utf-16")
    item = {"insertText": left.text, "range": document.span(place.start, place.start)}
    invariants.check(document, place.start, [item])
    assert not (one_line and "\n" in left.text)
    piece = _unified(left.text).rstrip(" \t\n)]}")
    begins = (
        0 if place.language != "markdown" else _unified(text).find(piece)
    )  # behind a marker that stands there
    assert _unified(text).startswith(piece, begins)


@settings(max_examples=300)
@given(_situations())
def test_what_is_left_brings_no_new_parse_errors(situation: tuple[str, Place, bool]) -> None:
    text, place, one_line = situation
    before = place.region.syntax
    left = trim(text, place, one_line=one_line)
    if before is not None and place.language != "markdown":
        at = place.region.inside(place.start)
        assert len(before.edited(at, at, left.text).errors) <= len(before.errors)


def _place(language: str, source: str, start: int, end: int | None = None) -> Place:
    documents = Documents(Encoding.UTF_16)
    documents.open(URI, language, 1, source)
    snapshot = documents.snapshot(URI)
    assert snapshot is not None
    return Place.at(snapshot, start, end)


@functools.cache
def _sources(language: str) -> tuple[str, ...]:
    """Whole files of a language that parse: the product's own and examples, or the one above."""
    endings = {"python": "*.py", "javascript": "*.js"}
    folders = [ROOT / part for part in ("engine", "lsp", "examples")] if language in endings else []
    paths = sorted(path for folder in folders for path in folder.rglob(endings[language]))
    texts = [*(path.read_text(encoding="utf-8") for path in paths), SOURCES.get(language, "")]
    return tuple(text for text in texts if text and not _parsed(text, language).errors)


def _holes(source: str, language: str, chance: random.Random, count: int) -> Iterator[tuple[int, int]]:
    """Spans of statements, of expressions and of whole lines that stay inside one block."""
    syntax = _parsed(source, language)
    nodes = list(_nodes(syntax.tree.root_node))
    lines = source.splitlines(keepends=True)
    starts = list(itertools.accumulate(map(len, lines), initial=0))
    for number in range(count):
        if number % 3:
            start, end = syntax.span(chance.choice(nodes))
        else:
            first = chance.randrange(len(lines))
            last = min(first + chance.randrange(5), len(lines) - 1)
            if not _is_inside_a_block(lines[first : last + 1]):
                continue
            start = starts[first] + chance.choice([0, _indentation(lines[first])])
            end = starts[last + 1] - 1
        text = source[start:end]
        if text.strip() and text.count("\n") <= 20 and "<|" not in text:
            yield start, end


def _is_inside_a_block(lines: list[str]) -> bool:
    least = min((_indentation(line) for line in lines if line.strip()), default=0)
    leaves = len(lines) > 1 and lines[0].lstrip().startswith((")", "]", "}"))
    return bool(lines[0].strip()) and _indentation(lines[0]) == least and not leaves


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _nodes(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    for child in node.named_children:
        yield child
        yield from _nodes(child)


def _parsed(source: str, language: str) -> Syntax:
    syntax = Syntax.parse(source, language)
    assert syntax is not None
    return syntax


def _unified(text: str) -> str:
    return re.sub(r"\r\n|\r", "\n", text)
