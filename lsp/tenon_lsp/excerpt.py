"""Excerpt: the tree of a text with a hole in it; of a large text, of what stands near the hole alone.

What is left out are whole statements, members or elements far away, of the blocks around the hole; their headers
stay, and so does whatever does not parse. The parser is asked about a page instead of a book. Knows no documents.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import tree_sitter

from tenon_lsp.syntax import Syntax

WHOLE_CHARACTERS = 100_000  # up to here, parsing an edited text takes little
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
    kept, reached, moved = [], 0, start
    for left, right in sorted(far):
        kept.append(syntax.source[reached:left])
        reached = right
        moved -= right - left if right <= start else 0
    return Syntax("".join([*kept, syntax.source[reached:]]), syntax.language), moved


def _far_children(syntax: Syntax, children: list[tree_sitter.Node], at: int) -> Iterator[tuple[int, int]]:
    """The spans of `children` far before and far after `at`, each with what separates it from the next nearer one."""
    starts = [syntax.span(child)[0] for child in children]
    ends = [syntax.span(child)[1] for child in children]
    for index in range(min(bisect.bisect_left(ends, at - NEAR_CHARACTERS), len(children) - 1)):
        if not children[index].has_error and starts[index + 1] <= at:
            yield starts[index], starts[index + 1]
    for index in range(max(bisect.bisect_right(starts, at + NEAR_CHARACTERS), 1), len(children)):
        if not children[index].has_error and ends[index - 1] >= at:
            yield ends[index - 1], ends[index]
