"""Indentation: a fill's lines stand on the columns, and use the character, that the file uses.

Where the file's own indentation is irregular, the fill's is left alone.
"""

from __future__ import annotations

import math
import re

from tenon_engine.fit.place import Place

TAB_COLUMNS = 4  # columns of a tab in text that a model wrote with spaces

_OPENS_BLOCK = re.compile(r"(?:[:{(\[=>]|\b(?:do|then|else|begin))\s*$")


def indent(text: str, place: Place) -> str:
    """`text` with its lines' indentation made the file's own."""
    unit = _unit(place)
    first, *others = text.split("\n")
    mended = _mend_first(first, place, unit)
    if not unit or all(_on_grid(line, unit) for line in others):
        return "\n".join([mended, *others])
    written, wanted = _lead(place.before + first), _lead(place.before + mended)
    return "\n".join([mended, *_regrid(others, unit, written, wanted)])


def _regrid(lines: list[str], unit: str, written: str, wanted: str) -> list[str]:
    """`lines` on the file's grid, nested as they are; the one before moved from `written` to `wanted`."""
    size = _columns(unit)
    levels = [(_columns(written, size), _columns(wanted, size))]  # of the lines that enclose the next one
    mended = []
    for line in lines:
        if not _shows_level(line):
            mended.append(line)
            continue
        raw = _columns(_lead(line), size)
        while levels and levels[-1][0] > raw:
            levels.pop()
        outer_raw, outer = levels[-1] if levels else (0, 0)
        column = outer + (raw - outer_raw + size // 2) // size * size
        levels.append((raw, column))
        mended.append(unit * (column // size) + line.lstrip(" \t"))
    return mended


def _mend_first(line: str, place: Place, unit: str) -> str:
    """The fill's first line, of which `place.before` may already hold the indentation."""
    lead = _lead(line)
    body = line.removeprefix(lead)
    if not lead or not body or (place.before and not place.before.isspace()):
        return line
    if not place.before:
        return line if _on_grid(line, unit) else _snap(lead, unit) + body
    if not _is_level(place.before, place, unit):
        return line
    size = _columns(unit) or TAB_COLUMNS
    if _columns(lead) >= size:
        lead = _snap(lead, unit)
    if _expected(place.before + lead, place, unit):
        return lead + body
    if lead.startswith(place.before):  # the whole indentation again
        rest = lead.removeprefix(place.before)
        return (rest if _expected(lead, place, unit) else "") + body
    return ("" if _columns(lead) < size else lead) + body


def _is_level(lead: str, place: Place, unit: str) -> bool:
    """Whether a line may stand at `lead`: if not, the hole lies inside a line's indentation."""
    if unit:
        return _columns(lead) % _columns(unit) == 0
    return lead in _leads(place) or _expected(lead, place, unit)


def _expected(lead: str, place: Place, unit: str) -> bool:
    """Whether a line may stand at `lead` here: a level that the neighbours know, or one deeper in a block."""
    above = next((line for line in reversed(place.above) if line.strip()), "")
    below = next((line for line in place.below if line.strip()), "")
    lead_above = _lead(above)
    if _OPENS_BLOCK.search(above) and lead.startswith(lead_above):
        deeper = lead.removeprefix(lead_above)
        if deeper == unit if unit else deeper:
            return True
    return len(lead) <= max(len(lead_above), len(_lead(below))) and lead in _leads(place)


def _unit(place: Place) -> str:
    """One level of the file's indentation; '' when there is none or it follows no rule."""
    leads = _leads(place) or ({place.before} if place.before.isspace() else set())
    characters = set("".join(leads))
    if characters == {"\t"}:
        return "\t"
    if characters != {" "}:
        return ""
    columns = math.gcd(*map(len, leads))
    if columns == 1:
        return ""
    return " " * next((size for size in (4, 2) if columns % size == 0), columns)


def _leads(place: Place) -> set[str]:
    """Every indentation of the whole lines around."""
    lines = [*place.above, *place.below, *([place.before] if place.before.strip() else [])]
    return {_lead(line) for line in lines if _shows_level(line)} - {""}


def _on_grid(line: str, unit: str) -> bool:
    return not unit or not _shows_level(line) or not _lead(line).replace(unit, "")


def _shows_level(line: str) -> bool:
    """Whether a line's indentation counts: not a blank one's, nor a star's, one column off on purpose."""
    body = line.lstrip(" \t")
    return bool(body) and not body.startswith("*")


def _snap(lead: str, unit: str) -> str:
    """`lead` on the nearest column of the file's grid, in the file's character."""
    if not unit:
        return lead
    size = _columns(unit)
    return unit * ((_columns(lead, size) + size // 2) // size)


def _columns(lead: str, tab: int = TAB_COLUMNS) -> int:
    return len(lead.replace("\t", " " * tab))


def _lead(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
