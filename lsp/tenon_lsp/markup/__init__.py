"""Markdown and documentation: what a place is part of, and a fill cut so that it breaks nothing around it.

What is left of a fill is always a piece of it: nothing is invented. Line ends of fills are LF. Knows no engine and no
settings.
"""

from __future__ import annotations

import enum

from tenon_lsp.markup import blocks
from tenon_lsp.markup.blocks import Role
from tenon_lsp.markup.comments import cut_comment
from tenon_lsp.markup.fit import Surroundings, cut_markdown
from tenon_lsp.markup.inline import left_open
from tenon_lsp.place import Place


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
