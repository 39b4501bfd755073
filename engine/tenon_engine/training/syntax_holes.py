"""Places where a syntax tree says that a hole may be: an argument, a statement, a body, a cell of a table.

Owns which nodes of which grammars make which shape. An error somewhere in a text hides no more than its own nodes.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping

import tree_sitter

from tenon_engine.training import grammars


def _kinds(names: str) -> frozenset[str]:
    """Kinds of nodes, of whatever grammars have them."""
    return frozenset(names.split())


_ARGUMENTS = _kinds(
    "argument_list arguments parameters formal_parameters parameter_list method_parameters type_arguments"
)
_EXPRESSIONS = frozenset({"right", "value", "condition", "index", "consequence_expression"})  # fields
_RETURNS = _kinds("return_statement return_expression throw_statement await_expression yield")
_STATEMENTS = _kinds(
    "block body_statement class_body compound_statement declaration_list module namespace_body program"
    " source_file statement_block statement_list translation_unit interface_body field_declaration_list table"
)
_LISTS = _kinds(
    "array array_expression dictionary hash initializer_list list literal_value object set tuple table_constructor"
    " enum_body enumerator_list object_type"
)
_STRINGS = _kinds(
    "string string_literal template_string interpreted_string_literal raw_string_literal encapsed_string string_value"
    " quoted_attribute_value"
)
_COMMENTS = _kinds("comment block_comment line_comment")
_BARE = frozenset(
    {"expression_statement", "module", "block"}
)  # what a string that stands for itself is part of

_QUOTED = re.compile(r"""\w{0,3}(\"{3}|'{3}|["'`])(.*)\1""", re.DOTALL)
_BRACED = re.compile(r"\{(.*)\}", re.DOTALL)
_DOC_COMMENT = re.compile(r"(/\*\*|///)(.*?)(?:\*/)?", re.DOTALL)
_WIDE = re.compile(r"[^\x00-\x7f]")
_LIST_ITEM = re.compile(r"((?:[-*+]|\d+[.)])[ \t]+(?:\[[ xX]\][ \t]+)?)(.*)", re.DOTALL)

Spans = Mapping[str, list[tuple[int, int]]]


def find(text: str, language: str) -> Spans:
    """By shape, the starts and ends (in characters) of what could be a hole; nothing without a grammar."""
    found: dict[str, list[tuple[int, int]]] = {}
    tree = grammars.parse(text, language)
    if tree is None:
        return found
    character_at = _characters(text)
    for node, parent, field in grammars.walk(tree):
        if not node.is_named or node.is_missing:
            continue
        start, end = character_at(node.start_byte), character_at(node.end_byte)
        for shape, inside in _shapes(node, parent, field, text, start, end):
            if span := _trimmed(text, *inside):
                found.setdefault(shape, []).append(span)
    return found


def _shapes(
    node: tree_sitter.Node, parent: str, field: str, text: str, start: int, end: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The shapes that a node makes, and which part of it."""
    whole, kind = (start, end), node.type
    if kind in _COMMENTS:
        if match := _DOC_COMMENT.fullmatch(text, start, end):
            yield "docstring", match.span(2)
        return
    if kind in _STRINGS and (match := _QUOTED.fullmatch(text, start, end)):
        is_documentation = parent in _BARE and len(match[1]) == len('"""')
        yield "docstring" if is_documentation else "string", match.span(2)
    if kind == "list_item" and (match := _LIST_ITEM.fullmatch(text, start, end)):
        yield "list-item", match.span(2)
    elif parent in _LISTS:
        yield "list-item", whole
    if kind == "pipe_table_cell":
        yield "table-cell", whole
    if field == "body" and "\n" in text[start:end]:
        match = _BRACED.fullmatch(text, start, end)
        yield "body", match.span(1) if match else whole
    if field in _EXPRESSIONS or parent in _RETURNS:
        yield "expression", whole
    if parent in _ARGUMENTS:
        yield "argument", whole
    if parent in _STATEMENTS and kind not in _STATEMENTS:
        yield "statement", whole


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Without blanks at both ends; None when nothing else is there."""
    inside = text[start:end]
    end -= len(inside) - len(inside.rstrip())
    start += len(inside) - len(inside.lstrip())
    return (start, end) if start < end else None


def _characters(text: str) -> Callable[[int], int]:
    """From an offset in UTF-8 bytes to one in characters."""
    ends, surplus, offset = (
        [0],
        [0],
        0,
    )  # of each character that takes several bytes, and the bytes to leave out there
    for wide in _WIDE.finditer(text):
        more = len(wide[0].encode("utf-8", "replace")) - 1
        offset += more
        ends.append(wide.end() + offset)
        surplus.append(offset)
    return lambda byte: byte - surplus[bisect.bisect_right(ends, byte) - 1]
