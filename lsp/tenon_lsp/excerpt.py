"""Excerpt: the tree of a text with a hole in it; of a large text, of what stands near the hole alone.

What is left out are whole statements, members or elements far away, of the blocks around the hole: so their headers
stay, and the parser is asked about a page instead of a book. Knows no documents.
"""

from __future__ import annotations

import bisect

import tree_sitter

from tenon_lsp.syntax import Syntax

WHOLE_CHARACTERS = 120_000  # up to here, parsing an edited text takes little
NEAR_CHARACTERS = 3_000  # on either side


def without(syntax: Syntax, start: int, end: int) -> tuple[Syntax, int]:
    """The tree without `[start:end]`, and the start in it; of a large text, without what stands far from it."""
    syntax = syntax.edited(start, end, "") if end > start else syntax
    if len(syntax.source) <= WHOLE_CHARACTERS:
        return syntax, start
    far: list[tuple[int, int]] = []
    node: tree_sitter.Node | None = syntax.node_at(start)
    while node is not None:
        if node.parent is None or node.type in syntax.language.blocks:
            far += _far_children(syntax, node.named_children, start)
        node = node.parent
    source, moved = syntax.source, start
    for left, right in sorted(far, reverse=True):
        source = source[:left] + source[right:]
        moved -= right - left if right <= start else 0
    return Syntax(source, syntax.language), moved


def _far_children(syntax: Syntax, children: list[tree_sitter.Node], at: int) -> list[tuple[int, int]]:
    """The spans of `children` far before and far after `at`, with what separates them from the near ones."""
    if not children:
        return []
    first = bisect.bisect_right(children, at - NEAR_CHARACTERS, key=lambda child: syntax.span(child)[1])
    last = bisect.bisect_left(children, at + NEAR_CHARACTERS, key=lambda child: syntax.span(child)[0]) - 1
    spans = []
    if first > 0:
        near = syntax.span(children[first])[0] if first < len(children) else at + 1
        spans.append(
            (syntax.span(children[0])[0], near if near <= at else syntax.span(children[first - 1])[1])
        )
    if last < len(children) - 1:
        near = syntax.span(children[last])[1] if last >= 0 else at - 1
        spans.append(
            (near if near >= at else syntax.span(children[last + 1])[0], syntax.span(children[-1])[1])
        )
    return spans
