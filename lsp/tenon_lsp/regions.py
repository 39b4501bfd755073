"""Regions: the part of a document around a place that is written in one language.

A fence inside markdown, also inside markdown that is itself in a fence; its front matter; a script or a style inside
HTML; everywhere else the whole document.
"""

from __future__ import annotations

import dataclasses
import functools
import re

import tree_sitter

from tenon_lsp import languages
from tenon_lsp.documents import Snapshot
from tenon_lsp.syntax import Syntax

_METADATA = {"minus_metadata": "yaml", "plus_metadata": "toml"}
_RAW_TEXT = {"script_element": "javascript", "style_element": "css"}
_SCRIPT_KIND = re.compile(r"""\s(?:lang|type)\s*=\s*["']?(?:text/|application/)?([^"'\s>]+)""", re.IGNORECASE)
_AT_TOP = ("section", "document")
_NESTED_AT_MOST = 3  # each one is parsed

_Span = tuple[str, int, int]  # language, start, end


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A piece `[start:end]` of a document in one language."""

    language: str  # LSP id, or what the fence says
    start: int
    end: int
    text: str
    syntax: Syntax | None
    is_whole: bool

    def inside(self, offset: int) -> int:
        """A document's offset counted from the start of the region."""
        return offset - self.start


def region_at(snapshot: Snapshot, offset: int) -> Region:
    """The innermost region around `offset`; in regions that are nested too deep, one of the outer ones."""
    source = snapshot.text.source
    region = Region(snapshot.language, 0, len(source), source, snapshot.syntax, True)
    for _ in range(_NESTED_AT_MOST):
        found = _injected(region.syntax, region.inside(offset)) if region.syntax else None
        if found is None:
            break
        language, start, end = found
        text = region.text[start:end]
        start, end = region.start + start, region.start + end
        region = Region(language, start, end, text, _parsed(text, language), False)
        if language == "html":  # a script of a fence: its end is not that of a line
            break
    return region


@functools.lru_cache(maxsize=8)
def _parsed(text: str, language: str) -> Syntax | None:
    return Syntax.parse(text, language)


def _injected(syntax: Syntax, offset: int) -> _Span | None:
    """The injected piece around `offset`."""
    if syntax.language.id not in ("markdown", "html"):
        return None
    node: tree_sitter.Node | None = syntax.node_at(max(offset - 1, 0), offset)
    while node is not None:
        if node.type == "fenced_code_block":
            return _fence(syntax, node, offset)
        if node.type in _METADATA:
            last = syntax.span(node)[0] + len(_text(syntax, node).rstrip())
            return _between_lines(syntax, node, last, _METADATA[node.type], offset)
        if node.type in _RAW_TEXT:
            return _raw_text(syntax, node, offset)
        node = node.parent
    return None


def _fence(syntax: Syntax, node: tree_sitter.Node, offset: int) -> _Span | None:
    info = next((child for child in node.children if child.type == "info_string"), None)
    words = re.split(r"[{}\s,]+", _text(syntax, info).strip("{} \t,")) if info else [""]
    language = languages.language_id(words[0].lstrip(".")) or "plaintext"
    fences = [child for child in node.children if child.type == "fenced_code_block_delimiter"]
    if len(fences) > 1:
        return _between_lines(syntax, node, syntax.span(fences[-1])[0], language, offset)
    start, end = syntax.span(node)
    first = syntax.source.find("\n", start, end) + 1
    # What is written on the next line is part of an open fence, unless a list or a quote ends there.
    goes_on = syntax.source[end - 1] != "\n" or (node.parent is not None and node.parent.type in _AT_TOP)
    return (language, first, end) if first and first <= offset < end + goes_on else None


def _between_lines(
    syntax: Syntax, node: tree_sitter.Node, last: int, language: str, offset: int
) -> _Span | None:
    """What stands between the first line of `node` and the line that `last` is on."""
    start = syntax.span(node)[0]
    first, end = syntax.source.find("\n", start, last) + 1, syntax.source.rfind("\n", start, last) + 1
    return (language, first, end) if first <= offset < end else None


def _raw_text(syntax: Syntax, node: tree_sitter.Node, offset: int) -> _Span | None:
    tags = [child for child in node.children if child.type in ("start_tag", "end_tag")]
    if len(tags) != 2:
        return None
    start, end = syntax.span(tags[0])[1], syntax.span(tags[1])[0]
    kind = _SCRIPT_KIND.search(_text(syntax, tags[0]))
    language = languages.language_id(kind[1]) if kind else ""
    if "json" in language:  # of linked data, import maps have no name for it
        language = "json"
    if languages.find(language) is None:
        language = _RAW_TEXT[node.type]
    return (language, start, end) if start <= offset <= end else None


def _text(syntax: Syntax, node: tree_sitter.Node) -> str:
    start, end = syntax.span(node)
    return syntax.source[start:end]
