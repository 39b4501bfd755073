"""Syntax trees of source texts, for holes and for the validity of fills. Knows no holes.

A language without a row here has no tree, and everything works without one. YAML is left out: its scanner ends the
process where blocks are nested too deep.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

import tree_sitter

_GRAMMARS = {
    "c": "tree_sitter_c",
    "cpp": "tree_sitter_cpp",
    "csharp": "tree_sitter_c_sharp",
    "css": "tree_sitter_css",
    "go": "tree_sitter_go",
    "html": "tree_sitter_html",
    "java": "tree_sitter_java",
    "javascript": "tree_sitter_javascript",
    "javascriptreact": "tree_sitter_javascript",
    "json": "tree_sitter_json",
    "lua": "tree_sitter_lua",
    "markdown": "tree_sitter_markdown",
    "php": "tree_sitter_php.language_php",
    "python": "tree_sitter_python",
    "ruby": "tree_sitter_ruby",
    "rust": "tree_sitter_rust",
    "shellscript": "tree_sitter_bash",
    "sql": "tree_sitter_sql",
    "toml": "tree_sitter_toml",
    "typescript": "tree_sitter_typescript.language_typescript",
    "typescriptreact": "tree_sitter_typescript.language_tsx",
}


def parse(text: str, language: str) -> tree_sitter.Tree | None:
    """The tree of a text, whatever is wrong in it; None for a language without a grammar here. It counts bytes."""
    if language not in _GRAMMARS:
        return None
    return tree_sitter.Parser(_grammar(_GRAMMARS[language])).parse(text.encode("utf-8", "replace"))


def error_count(tree: tree_sitter.Tree) -> int:
    """How many places of a text its grammar cannot explain: error nodes, and nodes that are missing."""
    return sum(node.is_error or node.is_missing for node, *_ in walk(tree)) if tree.root_node.has_error else 0


def walk(tree: tree_sitter.Tree) -> Iterator[tuple[tree_sitter.Node, str, str]]:
    """Every node from the root on, parents first, with its parent's kind and the field it fills there ("" for none)."""
    cursor = tree.walk()
    parents = [""]
    while True:
        node = cursor.node
        assert node is not None, "a cursor stands on a node"
        yield node, parents[-1], cursor.field_name or ""
        if cursor.goto_first_child():
            parents.append(node.type)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            parents.pop()


@functools.cache
def _grammar(name: str) -> tree_sitter.Language:
    module, _, entry = name.partition(".")
    return tree_sitter.Language(getattr(importlib.import_module(module), entry or "language")())
