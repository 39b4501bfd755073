"""Writes the denoising of one fill as a page that plays it: one HTML file that loads nothing from anywhere.

Owns what the page is told, and that nothing in it can break out of the page; how it looks is the business of
`trace.html`, `trace.css` and `trace.js`.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from tenon_engine import excerpt
from tenon_engine.errors import StorageError
from tenon_engine.wire import FillRequest, FillResult, FillStep, Hole, HoleFill, Slot, SlotState

LINES_AROUND = 9

# Inside a script element only these could end it or begin a comment; to JSON the escapes are the characters.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def write_trace(path: Path, request: FillRequest, steps: Sequence[FillStep], result: FillResult) -> None:
    """Write the page; StorageError when `path` cannot be written."""
    try:
        path.write_text(trace_page(request, steps, result), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the trace cannot be written to {path}: {error.strerror}") from None


def trace_page(request: FillRequest, steps: Sequence[FillStep], result: FillResult) -> str:
    """The page, as HTML."""
    page = _template("trace.html")
    page = page.replace("{{style}}", _template("trace.css")).replace("{{script}}", _template("trace.js"))
    data = json.dumps(_trace(request, steps, result)).translate(_ESCAPES)
    return page.replace("{{trace}}", data)


def _template(name: str) -> str:
    return importlib.resources.files("tenon_engine").joinpath(name).read_text(encoding="utf-8")


def _trace(request: FillRequest, steps: Sequence[FillStep], result: FillResult) -> dict[str, object]:
    texts = [segment for segment in request.segments if not isinstance(segment, Hole)]
    around = excerpt.around(texts[0], texts[-1], LINES_AROUND)
    shown = [around.before, *map(excerpt.plain, texts[1:-1]), around.after]
    healed = []
    for index, hole in enumerate(result.holes):
        left, right = _healed(_last_slots(steps, index), hole, before=shown[index], after=shown[index + 1])
        shown[index] = shown[index].removesuffix(left)
        shown[index + 1] = shown[index + 1].removeprefix(right)
        healed.append((left, right))
    return {
        "path": request.path or "untitled",
        "language": request.language or "",
        "instruction": request.instruction or "",
        "firstLine": around.first_line,
        "texts": shown,
        "healed": healed,
        "steps": [
            {"hole": step.hole, "ms": step.elapsed_ms, "slots": [_slot(slot) for slot in step.slots]}
            for step in steps
        ],
        "holes": [dataclasses.asdict(hole) for hole in result.holes],
        "model": result.model,
        "stopped": result.stopped.value,
        "rounds": result.rounds,
        "cost": dataclasses.asdict(result.cost),
    }


def _last_slots(steps: Sequence[FillStep], hole: int) -> tuple[Slot, ...]:
    return next((step.slots for step in reversed(steps) if step.hole == hole), ())


def _healed(slots: Sequence[Slot], hole: HoleFill, *, before: str, after: str) -> tuple[str, str]:
    """The user's own text that the canvas repeats at its left and at its right edge (token healing)."""
    spelt, fill = excerpt.plain("".join(slot.text for slot in slots)), excerpt.plain(hole.text)
    # A reason says that the fill is not all that was spelt: then only its first line is sure to be there.
    probe = fill.split("\n")[0] if hole.reason else fill
    for start in range(len(spelt)):
        if probe and spelt.startswith(probe, start) and before.endswith(spelt[:start]):
            rest = spelt[start + len(fill) :]
            return spelt[:start], rest if not hole.reason and after.startswith(rest) else ""
    fixed_slots = itertools.takewhile(lambda slot: slot.state is SlotState.FIXED, slots)
    fixed = "".join(slot.text for slot in fixed_slots)
    return (fixed, "") if before.endswith(fixed) else ("", "")


def _slot(slot: Slot) -> dict[str, object]:
    return {
        "text": excerpt.plain(slot.text),
        "state": slot.state.value,
        "confidence": round(slot.confidence, 4),
    }
