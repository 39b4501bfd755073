"""Regions: the part of a document around a place that is written in one language.

A fence inside markdown, its front matter, a script or a style inside HTML; everywhere else the whole document.
"""

from __future__ import annotations

import dataclasses
import functools

import tree_sitter

from tenon_lsp import languages
from tenon_lsp.documents import Snapshot
from tenon_lsp.syntax import Syntax

_METADATA = {"minus_metadata": "yaml", "plus_metadata": "toml"}
_RAW_TEXT = {"script_element": "javascript", "style_element": "css"}


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
    """The innermost region around `offset`."""
    syntax = snapshot.syntax
    found = syntax and _injected(syntax, offset)
    source = snapshot.text.source
    if not found:
        return Region(snapshot.language, 0, len(source), source, syntax, True)
    language, start, end = found
    text = source[start:end]
    return Region(language, start, end, text, _parsed(text, language), False)


@functools.lru_cache(maxsize=8)
def _parsed(text: str, language: str) -> Syntax | None:
    return Syntax.parse(text, language)


def _injected(syntax: Syntax, offset: int) -> tuple[str, int, int] | None:
    """Language, start and end of the injected piece around `offset`."""
    if syntax.language.id not in ("markdown", "html"):
        return None
    node: tree_sitter.Node | None = syntax.node_at(max(offset - 1, 0), offset)
    while node is not None:
        if node.type == "fenced_code_block":
            return _fence(syntax, node, offset)
        if node.type in _METADATA:
            return _between_lines(syntax, node, offset, _METADATA[node.type], has_end=True)
        if node.type in _RAW_TEXT:
            return _raw_text(syntax, node, offset)
        node = node.parent
    return None


def _fence(syntax: Syntax, node: tree_sitter.Node, offset: int) -> tuple[str, int, int] | None:
    info = next((child for child in node.children if child.type == "info_string"), None)
    words = _text(syntax, info).replace("{", " ").replace("}", " ").replace(",", " ").split() if info else []
    language = languages.language_id(words[0].lstrip(".")) if words else "plaintext"
    fences = [child for child in node.children if child.type == "fenced_code_block_delimiter"]
    return _between_lines(syntax, node, offset, language, has_end=len(fences) > 1)


def _between_lines(
    syntax: Syntax, node: tree_sitter.Node, offset: int, language: str, *, has_end: bool
) -> tuple[str, int, int] | None:
    """What stands between the first line of `node` and, where it has an end, its last line."""
    start, end = syntax.span(node)
    first_end = syntax.source.find("\n", start, end)
    if first_end < 0:
        return None
    if has_end:
        end = syntax.source.rfind("\n", start, len(syntax.source[:end].rstrip("\r\n"))) + 1
    return (language, first_end + 1, end) if first_end < offset <= max(end - 1, first_end + 1) else None


def _raw_text(syntax: Syntax, node: tree_sitter.Node, offset: int) -> tuple[str, int, int] | None:
    tags = [child for child in node.children if child.type in ("start_tag", "end_tag")]
    if len(tags) != 2:
        return None
    start, end = syntax.span(tags[0])[1], syntax.span(tags[1])[0]
    head = _text(syntax, tags[0])
    language = "typescript" if 'lang="ts"' in head or "typescript" in head else _RAW_TEXT[node.type]
    if "json" in head and node.type == "script_element":
        language = "json"
    return (language, start, end) if start <= offset <= end else None


def _text(syntax: Syntax, node: tree_sitter.Node) -> str:
    start, end = syntax.span(node)
    return syntax.source[start:end]
