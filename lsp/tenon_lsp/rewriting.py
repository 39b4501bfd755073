"""A model's new text for a selection, made to stand where the old one stood: indented alike, and without new errors."""

from __future__ import annotations

import re

from tenon_engine import line_ends
from tenon_lsp import languages
from tenon_lsp.markup import blocks
from tenon_lsp.place import Place

_WRAPPER = re.compile(r"\A(`{3,}|~{3,})([^\n]*)\n(.*\n|)[ \t]*\1[ \t]*\Z", re.DOTALL)
_OPENS_BLOCK = re.compile(r"(?:[:{(\[]|\b(?:do|then))\s*\Z")


def fitting(new: str, old: str, place: Place) -> str:
    """`new` as it fits in place of `old`, '' when it cannot."""
    new = _without_wrapper(line_ends.to_lf(new), old, place).strip("\n").rstrip()
    new = with_line_ends(_with_indent(_with_unit(new, place), old, place), place)
    return new if new.strip() and parses_as_well(new, place) else ""


def with_line_ends(new: str, place: Place) -> str:
    """`new` with the line ends of the document around the place."""
    return line_ends.to_lf(new).replace("\n", place.line_end)


def parses_as_well(new: str, place: Place) -> bool:
    """Whether the region has no more errors, in prose fences that go wrong, with `new` in the place than it has now."""
    syntax = place.region.syntax
    if syntax is None:
        return True
    if syntax.language.is_prose:
        return _wrong_fences(place.prefix + new + place.suffix) <= _wrong_fences(place.region.text)
    start, end = place.region.inside(place.start), place.region.inside(place.end)
    return len(syntax.edited(start, end, new).errors) <= len(syntax.errors)


def _wrong_fences(text: str) -> int:
    return blocks.imbalance(text.replace("\r\n", "\n"), blocks.NOTHING_OPEN)


def _without_wrapper(new: str, old: str, place: Place) -> str:
    """A fence around the whole answer is the model's way to say "here it is", unless it is part of a text in prose."""
    found = _WRAPPER.match(new.strip())
    if found is None or old.startswith(("```", "~~~")):
        return new
    language, inner = languages.language_id(found[2]), found[3]
    is_part = place.language == "markdown" and (language not in ("", "markdown") or _wrong_fences(inner))
    return new if is_part else inner


def _with_unit(new: str, place: Place) -> str:
    """Indent with tabs where the text around does and the model did not, and the other way round."""
    theirs, ours = _indents(place.region.text), _indents(new)
    if not theirs or not ours:
        return new
    has_tabs = 2 * sum("\t" in each for each in theirs) > len(theirs)
    if has_tabs and not any("\t" in each for each in ours):
        unit, replacement = " " * _level(ours), "\t"
    elif not has_tabs and any("\t" in each for each in ours):
        unit, replacement = "\t", " " * _level(theirs)
    else:
        return new
    lines = new.split("\n")
    return "\n".join(_indent(line).replace(unit, replacement) + line[len(_indent(line)) :] for line in lines)


def _indents(text: str) -> list[str]:
    """What the indented lines of a text are indented with."""
    found = (_indent(line) for line in text.split("\n") if line.strip())
    return [indent for indent in found if indent]


def _level(indents: list[str]) -> int:
    """How many spaces one level is: as many as the least indented line has, but for stars of comments."""
    return min((len(each) for each in indents if len(each) > 1 and "\t" not in each), default=4)


def _with_indent(new: str, old: str, place: Place) -> str:
    """Indent the further lines like the place, if the model wrote them as if it stood at the start of a line."""
    indent = _indent(place.before)
    own = _indent(new) if place.before.isspace() else ""  # once more what stands before the place
    first, *further = [line.removeprefix(own) if line.strip() else "" for line in new.split("\n")]
    if own or _is_at_line_start([first, *further], old, place):
        further = [indent + line if line.strip() else line for line in further]
    return "\n".join([first, *further])


def _is_at_line_start(lines: list[str], old: str, place: Place) -> bool:
    """Whether further lines are written as if the first one, which is indented, was not."""
    indent = _indent(place.before)
    first, *further = [line for line in lines if line.strip()] or [""]
    old_further = [line for line in old.split("\n")[1:] if line.strip()]
    if not further or not all(line.startswith(indent) for line in old_further):
        return False  # what stood there was no block of code
    is_body = place.before.isspace() and _OPENS_BLOCK.search(first) and _indent(further[0]) == indent
    return bool(is_body) or not all(line.startswith(indent) for line in further)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
