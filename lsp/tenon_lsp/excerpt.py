"""Excerpt: the tree of a text with a hole in it; of a large text, of what stands near the hole alone.

What is left out are whole statements, members or elements far away, of the blocks around the hole; their headers
stay. Where that is not enough, only the lines near the hole are left. The parser is asked about a page instead of a
book. Knows no documents.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import tree_sitter

from tenon_lsp.syntax import Syntax

WHOLE_CHARACTERS = 10_000  # up to here, parsing an edited text takes little
NEAR_CHARACTERS = 3_000  # on either side
EXCERPT_CHARACTERS = 30_000  # a larger one is as slow as the whole


def without(syntax: Syntax, start: int, end: int) -> tuple[Syntax, int]:
    """The tree without `[start:end]`, and the start in it; of a large text, without what stands far from it."""
    syntax = syntax.edited(start, end, "") if end > start else syntax
    if len(syntax.source) <= WHOLE_CHARACTERS:
        return syntax, start
    text, at = _without(syntax.source, sorted(_far(syntax, start)), start)
    if len(text) > EXCERPT_CHARACTERS:
        text, at = _near_lines(syntax.source, start)
    return Syntax(text, syntax.language), at


def _without(source: str, spans: list[tuple[int, int]], start: int) -> tuple[str, int]:
    kept, reached, at = [], 0, start
    for left, right in spans:
        kept.append(source[reached:left])
        reached = max(reached, right)
        at -= right - left if right <= start else 0
    return "".join([*kept, source[reached:]]), at


def _far(syntax: Syntax, at: int) -> Iterator[tuple[int, int]]:
    """What stands far before and far after `at` in each of the blocks around it."""
    node: tree_sitter.Node | None = syntax.node_at(at)
    while node is not None:
        if node.parent is None or node.type in syntax.language.blocks:
            yield from _far_children(syntax, node, at)
        node = node.parent


def _far_children(syntax: Syntax, block: tree_sitter.Node, at: int) -> Iterator[tuple[int, int]]:
    """The children of a block far before and far after `at`, with what separates them from the nearer ones."""
    children = block.named_children
    before = bisect.bisect_right(children, syntax.byte(max(at - NEAR_CHARACTERS, 0)), key=_end_byte)
    after = bisect.bisect_right(children, syntax.byte(at + NEAR_CHARACTERS), key=_end_byte)
    if 0 < before < len(children):
        left, right = syntax.span(children[0])[0], syntax.span(children[before])[0]
        if right <= at:
            yield left, right
    if after < len(children) - 1:
        left, right = syntax.span(children[after])[1], syntax.span(children[-1])[1]
        if at <= left:
            yield left, right


def _end_byte(node: tree_sitter.Node) -> int:
    return node.end_byte


def _near_lines(source: str, start: int) -> tuple[str, int]:
    first = source.rfind("\n", 0, max(start - NEAR_CHARACTERS, 0)) + 1
    last = source.find("\n", start + NEAR_CHARACTERS)
    return source[first : len(source) if last < 0 else last + 1], start - first
