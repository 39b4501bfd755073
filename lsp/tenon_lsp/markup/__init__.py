"""Markdown and documentation: what a place is part of, and a fill cut so that it breaks nothing around it.

What is left of a fill is always a piece of it: nothing is invented. Line ends of fills are LF. Knows no engine and no
settings.
"""

from __future__ import annotations

import enum

import tree_sitter

from tenon_lsp.markup import blocks
from tenon_lsp.markup.blocks import Role
from tenon_lsp.markup.comments import cut_comment
from tenon_lsp.markup.fit import Surroundings, cut_markdown
from tenon_lsp.markup.inline import left_open
from tenon_lsp.place import Place
from tenon_lsp.syntax import Syntax

_SECTIONS = ("section", "document")
_HEADINGS = ("atx_heading", "setext_heading")


class Markup(enum.Enum):
    """What a place in markdown is part of."""

    HEADING = "heading"
    TABLE_CELL = "table-cell"
    FENCE_INFO = "fence-info"  # behind the mark that opens a fence
    HTML = "html"  # a comment or raw HTML that goes on over lines
    CODE_SPAN = "code-span"
    LINK_TEXT = "link-text"
    LINK_TARGET = "link-target"
    LIST_ITEM = "list-item"
    QUOTE = "quote"
    PARAGRAPH = "paragraph"  # also a blank line, where anything may begin


_INLINE = {"`": Markup.CODE_SPAN, "[": Markup.LINK_TEXT, "](": Markup.LINK_TARGET}


def markup_at(place: Place) -> Markup:
    """What a place in a markdown region is part of: the innermost that decides about the shape of a fill."""
    around = Surroundings.of(place)
    if around.is_heading:
        return Markup.HEADING
    if around.is_row:
        return Markup.TABLE_CELL
    if around.above.raw_end:
        return Markup.HTML
    if blocks.raw_opened(around.before):
        return Markup.HTML if around.before.lstrip(" \t>").startswith("<") else Markup.FENCE_INFO
    if mark := left_open(around.before):
        return _INLINE[mark]
    here, _ = blocks.step(around.above, around.before + around.after)
    if here.levels and here.role is not Role.BLANK:
        return Markup.LIST_ITEM
    return Markup.QUOTE if here.quotes else Markup.PARAGRAPH


def heading_path(place: Place) -> tuple[str, ...]:
    """The headings that a place in a markdown document is under, outermost first; its own line is none of them."""
    syntax = place.snapshot.syntax
    if syntax is None or syntax.language.id != "markdown":
        return ()
    line_start = place.start - len(place.before)
    solid = len(syntax.source[:line_start].rstrip())
    node = syntax.node_at(max(solid - 1, 0), solid)
    found: list[tree_sitter.Node] = []
    while node.parent is not None:
        if node.parent.type in _SECTIONS:
            beside = (each for each in node.parent.named_children if each.start_byte <= node.start_byte)
            found[:0] = [each for each in beside if each.type in _HEADINGS]
        node = node.parent
    return _path(syntax, [each for each in found if syntax.span(each)[1] <= line_start])


def cut(text: str, place: Place) -> str:
    """The piece of `text` that may stand at `place`: in markdown, in a comment or in a docstring; '' when none may.

    In markdown it keeps to the shape of its line (one line in a heading, its own cell in a table, no marker twice),
    goes on with the quote, list and table that it stands in, and leaves no fence, emphasis, code span or link open;
    what stands below stays the item, row, heading or paragraph that it was. Where one half of a pair is missing around
    the place, it may bring that. Cut again, it stays as it is.
    """
    if place.language == "markdown":
        text = cut_markdown(text, place)
    else:
        while (shorter := cut_comment(text, place)) != text:
            text = shorter
    return text if text.strip() else ""


def _path(syntax: Syntax, headings: list[tree_sitter.Node]) -> tuple[str, ...]:
    path: list[tuple[int, str]] = []
    for heading in headings:
        start, end = syntax.span(heading)
        title = syntax.source[start:end].strip()
        if heading.type == "atx_heading":
            level = len(title) - len(title.lstrip("#"))
            title = title.strip("#").strip()
        else:
            title, _, underline = title.rpartition("\n")
            level = 1 if "=" in underline else 2
        while path and path[-1][0] >= level:
            path.pop()
        path.append((level, " ".join(title.split())))
    return tuple(title for _, title in path)
