"""Draws `sweep.svg` from `sweep.json`: quality against forwards per fill, one labelled point per sampler."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent
INK, MUTED, LINE, ACCENT = "#1f2328", "#6e7781", "#d8dee4", "#0b6e99"
PLACES = [(dx, dy, side) for dy in (0, 9, -9, 18, -18, 27, -27) for dx, side in ((7, "left"), (-7, "right"))]
SAMPLERS_MIN = 3  # fewer make no picture
MEASURES = {"pass@1": "pass@1", "exact_match": "exact match"}


def main() -> None:
    """Write one row of panels per set of tasks, one panel per measure."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / "sweep.json").read_text(encoding="utf-8"))
    counts = Counter((row["data"], -row["n"]) for row in rows)
    task_sets = sorted((key for key, count in counts.items() if count >= SAMPLERS_MIN), reverse=True)
    style = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": LINE,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "svg.hashsalt": "tenon",  # the same rows give the same file
    }
    with mpl.rc_context(style):
        figure, grid = plt.subplots(
            len(task_sets),
            len(MEASURES),
            figsize=(9.5, 3.9 * len(task_sets)),
            squeeze=False,
            layout="constrained",
        )
        for panels, task_set in zip(grid, task_sets, strict=True):
            chosen = [row for row in rows if (row["data"], -row["n"]) == task_set]
            for axes, measure in zip(panels, MEASURES, strict=True):
                _draw(axes, chosen, measure)
            panels[0].set_title(_caption(chosen[0]), loc="left", color=INK, fontsize=10, pad=10)
        figure.savefig(FOLDER / "sweep.svg", metadata={"Date": None})


def _draw(axes: Any, rows: list[dict[str, Any]], measure: str) -> None:
    best = _frontier(rows, measure)
    axes.plot(
        [row["steps_per_fill"] for row in best], [row[measure] for row in best], color=ACCENT, lw=1, alpha=0.4
    )
    for row in rows:
        is_best = row in best
        axes.scatter(row["steps_per_fill"], row[measure], s=34, color=ACCENT if is_best else MUTED, zorder=3)
    axes.margins(0.22)
    axes.set_xlabel("forwards per fill")
    axes.set_ylabel(MEASURES[measure])
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)
    _label(axes, rows, measure)


def _frontier(rows: list[dict[str, Any]], measure: str) -> list[dict[str, Any]]:
    """Rows that no other beats: each step to the right must pay with quality."""
    best: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["steps_per_fill"], -row[measure])):
        if not best or row[measure] > best[-1][measure]:
            best.append(row)
    return best


def _label(axes: Any, rows: list[dict[str, Any]], measure: str) -> None:
    """Write each name beside its point, at the first of a few places where it covers no name and no point."""
    axes.figure.canvas.draw()
    points = [axes.transData.transform((row["steps_per_fill"], row[measure])) for row in rows]
    taken = [mpl.transforms.Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in points]
    for row in rows:
        place = (row["steps_per_fill"], row[measure])
        for dx, dy, side in PLACES:
            text = axes.annotate(
                row["sampler"], place, (dx, dy), textcoords="offset points", ha=side, va="center", fontsize=8
            )
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
            if (dx, dy, side) != PLACES[-1]:
                text.remove()
        taken.append(box)


def _caption(row: dict[str, Any]) -> str:
    return f"{row['data'].partition('.')[0]}, every {row['every']}th: {row['n']} tasks, {row['model']}"


if __name__ == "__main__":
    main()
