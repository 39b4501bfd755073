"""Comments and docstrings: a fill in one stays in it.

What stands below is not read as part of it, and what it closes stays closed. Knows no markdown and no engine.
"""

from __future__ import annotations

import re

from tenon_lsp.place import Place
from tenon_lsp.syntax import Kind, Syntax

_BLOCK_ENDS = {"/*": "*/", "<!--": "-->", "--[[": "]]"}
_LINE_LEAD = re.compile(r"[ \t]*(?P<mark>#+[:!]?|//+!?|--+|;+|%+|\*(?!/))(?P<gap>[ \t]*)")
_QUOTES = re.compile(r"[A-Za-z]*(\"\"\"|'''|\"|')")


def cut_comment(text: str, place: Place) -> str:
    """`text` as it may stand in the comment or docstring at `place`; as it is anywhere else."""
    syntax = place.region.syntax
    if syntax is None:
        return text
    at = place.region.inside(place.start)
    kind = syntax.kind_at(at)
    if kind is Kind.DOCSTRING or (kind is Kind.STRING and syntax.language.docstrings):
        return _cut_docstring(text, syntax, at, is_sure=kind is Kind.DOCSTRING)
    if kind is not Kind.COMMENT:
        return text
    node_start, node_end = syntax.enclosing(at, syntax.language.comments) or (at, at)
    source = syntax.source
    opener = next((mark for mark in _BLOCK_ENDS if source.startswith(mark, node_start)), "")
    if opener:
        text = _cut_closed(text, _BLOCK_ENDS[opener], source[node_start:node_end])
    return _cut_lines(text, place, is_line_comment=not opener)


def _cut_closed(text: str, closer: str, comment: str) -> str:
    """Up to the end of the comment, which the fill may bring only where nothing else does."""
    end = text.find(closer)
    if end < 0:
        return text
    return text[:end].rstrip() if comment.rstrip().endswith(closer) else text[: end + len(closer)]


def _cut_lines(text: str, place: Place, *, is_line_comment: bool) -> str:
    """Every further line begins with the mark that the comment's own line begins with."""
    lead = _LINE_LEAD.match(place.before)
    first, *others = text.split("\n")
    if lead is None:
        return first.rstrip() if others and is_line_comment else text
    mark = lead["mark"]
    if lead.end() == len(place.before):
        again = re.match(rf"[ \t]*{re.escape(mark)}(?!\w)" + (r"[ \t]*" if lead["gap"] else ""), first)
        first = first[again.end() :] if again else first
    kept = [first]
    for line in others:
        if not line.lstrip().startswith(mark):
            break
        kept.append(line)
    piece = "\n".join(kept)
    return piece.rstrip() if len(kept) <= len(others) else piece


def _cut_docstring(text: str, syntax: Syntax, at: int, *, is_sure: bool) -> str:
    """Up to the quotes that end the docstring, which the fill may bring only where nothing else does.

    One that is not closed yet reaches to the next one's quotes, and is then any string to the grammar.
    """
    start, _ = syntax.enclosing(at, syntax.language.docstrings) or (at, at)
    quoted = _QUOTES.match(syntax.source, start)
    if quoted is None or not (is_sure or len(quoted[1]) == 3):
        return text
    quotes = quoted[1]
    if len(quotes) == 1:
        text = text.partition("\n")[0]
    places = [found.start() for found in re.finditer(rf"(?<!\\){quotes}", text)]
    is_missing = len(quotes) == 3 and syntax.source.count(quotes) % 2 == 1
    allowed = (len(places) - 1) | 1 if is_missing and places else 0
    if len(places) > allowed:
        text = text[: places[allowed]].rstrip()
    touches = syntax.source.startswith(quotes, at) and len(places) <= allowed
    return text.rstrip(quotes[0] + "\\") if touches and not is_missing else text
