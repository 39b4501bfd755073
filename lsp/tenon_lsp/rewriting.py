"""A model's new text for a selection, made to stand where the old one stood: indented alike, and without new errors."""

from __future__ import annotations

import math
import re

from tenon_lsp.place import Place

_WRAPPER = re.compile(r"\A(`{3,}|~{3,})[^\n]*\n(.*)\n[ \t]*\1[ \t]*\n?\Z", re.DOTALL)


def fitting(new: str, old: str, place: Place) -> str:
    """`new` as it fits in place of `old`, '' when it cannot."""
    new = _without_wrapper(new, old).rstrip("\r\n")
    new = _with_indent(_with_unit(new, place), place)
    return new if new.strip() and parses_as_well(new, place) else ""


def parses_as_well(new: str, place: Place) -> bool:
    """Whether the region has no more errors with `new` in the place than it has now."""
    syntax = place.region.syntax
    if syntax is None:
        return True
    start, end = place.region.inside(place.start), place.region.inside(place.end)
    return len(syntax.edited(start, end, new).errors) <= len(syntax.errors)


def _without_wrapper(new: str, old: str) -> str:
    """A fence around the whole answer is the model's way to say "here it is", unless the old text had one too."""
    found = _WRAPPER.match(new.strip())
    is_own = old.lstrip().startswith(("```", "~~~"))
    return found.group(2) if found and not is_own else new


def _with_unit(new: str, place: Place) -> str:
    """Indent with tabs where the document does and the model did not, and the other way round."""
    theirs, ours = _indents(place.snapshot.text.source), _indents(new)
    if not theirs or not ours:
        return new
    has_tabs = any("\t" in each for each in theirs)
    if has_tabs and not any("\t" in each for each in ours):
        unit, replacement = " " * math.gcd(*map(len, ours)), "\t"
    elif not has_tabs and any("\t" in each for each in ours):
        unit, replacement = "\t", " " * math.gcd(*map(len, theirs))
    else:
        return new
    lines = new.split("\n")
    return "\n".join(_indent(line).replace(unit, replacement) + line[len(_indent(line)) :] for line in lines)


def _indents(text: str) -> list[str]:
    """What the indented lines of a text are indented with."""
    found = (_indent(line) for line in text.split("\n") if line.strip())
    return [indent for indent in found if indent]


def _with_indent(new: str, place: Place) -> str:
    """Indent the further lines like the place, if the model wrote them as if it stood at the start of a line."""
    indent = place.before[: len(place.before) - len(place.before.lstrip())]
    lines = new.split("\n")
    further = [line for line in lines[1:] if line.strip()]
    if not indent or not further or place.before.strip():
        return "\n".join([lines[0], *(line if line.strip() else _line_end(line) for line in lines[1:])])
    least = min(further, key=lambda line: len(_indent(line)))
    opens_block = lines[0].rstrip().endswith((":", "{", "(", "[", "do", "then"))
    is_relative = not least.startswith(indent) or (opens_block and _indent(further[0]) == indent)
    added = indent if is_relative else ""
    return "\n".join([lines[0], *(added + line if line.strip() else _line_end(line) for line in lines[1:])])


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(line: str) -> str:
    return "\r" if line.endswith("\r") else ""
