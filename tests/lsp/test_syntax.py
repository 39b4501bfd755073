"""Syntax: every row's names are its grammar's, trees of edited texts, scopes, comments and strings."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import tree_sitter
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon_lsp import languages
from tenon_lsp.languages import LANGUAGES, Language
from tenon_lsp.syntax import Kind, Syntax


def parsed(source: str, language: str = "python") -> Syntax:
    syntax = Syntax.parse(source, language)
    assert syntax is not None
    return syntax


def cursor(text: str) -> tuple[str, int]:
    before, _, after = text.partition("█")
    return before + after, len(before)


@pytest.mark.parametrize("row", LANGUAGES.values(), ids=lambda row: row.id)
def test_every_name_in_the_table_is_one_of_the_grammar(row: Language) -> None:
    grammar = languages.parser(row).language
    assert grammar is not None
    names = row.scopes | row.blocks | row.imports | row.comments | row.strings | row.docstrings
    unknown = {name for name in names if grammar.id_for_node_kind(name, True) is None}
    assert unknown == set()


@pytest.mark.parametrize("name", ["py", "C++", "shell", " TS "])
def test_a_language_is_found_by_the_names_people_use(name: str) -> None:
    assert languages.find(name) is not None


def test_an_unknown_language_has_no_tree() -> None:
    assert Syntax.parse("x", "klingon") is None


PIECES = [
    "def f(a):\n",
    "    return a\n",
    "x = 1\n",
    "é",
    "🚀",
    "(",
    ")",
    "[",
    '"',
    "\r\n",
    "\r",
    " ",
    "#",
    "if x:\n",
    "\n",
]
SOURCES = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@settings(max_examples=200)
@given(
    SOURCES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5), SOURCES), max_size=6), st.booleans()
)
def test_a_tree_of_an_edited_text_is_the_tree_of_that_text(
    source: str, edits: list[tuple[int, int, str]], look_between: bool
) -> None:
    syntax = parsed(source)
    _ = syntax.tree
    for start, length, new in edits:
        start = min(start, len(source))
        end = min(start + length, len(source))
        source = source[:start] + new + source[end:]
        syntax = syntax.edited(start, end, new)
        if look_between:
            _ = syntax.tree
    fresh = parsed(source)
    assert syntax.source == source
    if not fresh.errors:  # tree-sitter may recover from an error in more than one way
        assert shape(syntax.tree.root_node) == shape(fresh.tree.root_node)


def shape(node: tree_sitter.Node) -> list[object]:
    return [node.type, node.start_byte, node.end_byte, *(shape(child) for child in node.children)]


@given(SOURCES, st.data())
def test_spans_are_characters_of_the_text(source: str, data: st.DataObject) -> None:
    syntax = parsed(source)
    start = data.draw(st.integers(0, len(source)))
    node_start, node_end = syntax.span(syntax.node_at(start))
    assert 0 <= node_start <= node_end <= len(source)
    node = syntax.node_at(start)
    assert node.text is not None
    text = node.text.decode("utf-8", "surrogatepass")
    assert re.sub(r"\r(?!\n)", "\n", source)[node_start:node_end] == text


def test_scopes_come_outermost_first() -> None:
    source, offset = cursor("# é🚀\nclass A:\n    def f(self):\n        x = 1\n        █y = 2\n")
    headers = [source[scope.start : scope.body_start].strip() for scope in parsed(source).scopes(offset)]
    assert headers == ["class A:", "def f(self):"]


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("class A:\n    def f(self):\n        x = 1\n        █", ["class A:", "def f(self):"]),
        ("class A:\n    def f(self):\n        x = 1\n\n    █", ["class A:"]),
        ("class A:\n    def f(self):\n        x = 1\n\n█", []),
        ("class A:\n    def f(self):\n        x = 1\n\n█\ny = 1\n", []),
    ],
)
def test_indentation_says_which_scope_a_blank_line_is_in(text: str, headers: list[str]) -> None:
    source, offset = cursor(text)
    found = [source[scope.start : scope.body_start].strip() for scope in parsed(source).scopes(offset)]
    assert found == headers


def test_a_brace_ends_a_scope() -> None:
    source, offset = cursor("func a() {\n\tx()\n}\n█\nfunc b() {}\n")
    assert parsed(source, "go").scopes(offset) == ()


@pytest.mark.parametrize(
    ("text", "language", "kind"),
    [
        ("x = 1  # no█te", "python", Kind.COMMENT),
        ("x = 1  # note█", "python", Kind.COMMENT),
        ("x = 1  # note█\ny", "python", Kind.COMMENT),
        ("x = 1 █ # note", "python", Kind.CODE),
        ('x = "a#█b"', "python", Kind.STRING),
        ('x = "a#b"█', "python", Kind.CODE),
        ('x = "a#b" + █', "python", Kind.CODE),
        ('def f():\n    """Do █it."""\n', "python", Kind.DOCSTRING),
        ('def f():\n    return """Do █it."""\n', "python", Kind.STRING),
        ("int x; /* a█b */ int y;", "c", Kind.COMMENT),
        ("int x; /* ab */█ int y;", "c", Kind.CODE),
        ("let a = `x█y`", "javascript", Kind.STRING),
        ("<!-- a█ -->", "html", Kind.COMMENT),
    ],
)
def test_comments_and_strings_are_told_from_code(text: str, language: str, kind: Kind) -> None:
    source, offset = cursor(text)
    assert parsed(source, language).kind_at(offset) is kind


def test_a_place_that_does_not_parse_is_an_error() -> None:
    assert parsed("x = 1\n").errors == ()
    assert parsed("x = = 1\n").errors
    assert parsed("é = (1\n").errors


DEEP = [
    "- " * 260,
    "? " * 300,
    ": " * 300,
    "- ? " * 150,
    "a: 1\n" + "- " * 255,
    "'x' " + "- " * 300,
    "| " + "? " * 600,
    "".join(" " * depth + "a:\n" for depth in range(800)),
    "".join(" " * depth + "-\r" for depth in range(800)),
    "".join(" " * (20 * depth) + "- " * 10 + "\n" for depth in range(30)),
]
READ_DEEP = """
import sys
from tenon_lsp.syntax import Syntax

deep = sys.stdin.buffer.read().decode()
Syntax.parse(deep, "yaml").tree
before = Syntax.parse("a: 1\\n", "yaml")
before.refresh()
within = before.edited(5, 5, "\\n" + deep)
print(within.errors, within.scopes(9), within.kind_at(9))
after = within.edited(5, 6 + len(deep), "")
print(after.tree.root_node)
"""


@pytest.mark.parametrize("deep", DEEP, ids=range(len(DEEP)))
def test_yaml_that_is_nested_too_deep_to_parse_ends_no_process(deep: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", READ_DEEP], input=deep.encode(), capture_output=True, check=True, timeout=60
    )
    inside, after = run.stdout.decode().splitlines()
    assert inside == "() () Kind.CODE"
    assert after == str(parsed("a: 1\n", "yaml").tree.root_node)


@pytest.mark.parametrize(
    "source",
    [
        "- " * 60 + "a",
        "- a\n" * 1000,
        "".join(f"{'  ' * depth}a:\n{'  ' * depth}- b\n" for depth in range(60)),
        "{" + "a: 1, b: -1, " * 200 + "}",
        "[" * 300 + "]" * 300,
        "a: " + "b-c:d?e " * 200,
    ],
)
def test_yaml_that_is_only_long_has_a_tree(source: str) -> None:
    assert parsed(source, "yaml").tree.root_node.end_byte > 0


def test_lines_that_end_with_a_lone_cr_are_lines_of_the_tree() -> None:
    syntax = parsed("x = 1\r" * 20_000 + "def f():\r    return 1\r")
    assert syntax.errors == ()
    assert [scope.kind for scope in syntax.scopes(len(syntax.source) - 1)] == ["function_definition"]
