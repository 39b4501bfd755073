"""What `tenon eval` shows on a terminal: a bar while it works, tables at the end. Knows nothing of what is measured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tenon_engine.commands import output
from tenon_engine.evaluation import calibration

if TYPE_CHECKING:
    from rich.table import Table


@contextlib.contextmanager
def progress(task_count: int) -> Iterator[Callable[[int, str], None]]:
    """A bar with the figures so far, where stderr is a terminal, and the function that moves it."""
    if not sys.stderr.isatty():
        yield lambda done_count, figures: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task("filling", total=task_count)
        yield lambda done_count, figures: bars.update(bar, completed=done_count, description=figures)


def print_figures(row: Mapping[str, object]) -> None:
    """A name and a value a line; what is no single value is left to its own table."""
    plain = {name: value for name, value in row.items() if not isinstance(value, list | dict)}
    _print((), [(name.replace("_", " "), value) for name, value in plain.items()])


def print_groups(title: str, names: Sequence[str], groups: Mapping[str, Mapping[str, float]]) -> None:
    """A group a line, of its figures those named."""
    heads = (title, *(name.replace("_", " ") for name in names))
    _print(heads, [(group, *(row[name] for name in names)) for group, row in groups.items()])


def print_calibration(outcomes: Sequence[calibration.Outcome]) -> None:
    """How sure the model was against how often it was right, and what silence below a confidence buys."""
    bins = calibration.reliability(calibration.offered(outcomes))
    _print(
        ("fills", "mean confidence", "right"),
        [(each.count, f"{each.confidence:.3f}", f"{each.right:.3f}") for each in bins],
    )
    points = calibration.precision_at_coverage(outcomes)
    _print(
        ("coverage", "precision", "confidence from"),
        [(f"{p.coverage:.2f}", f"{p.precision:.3f}", f"{p.confidence:.3f}") for p in points],
    )


def _print(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    output.open_console().print(_table(heads, rows))


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    from rich.table import Table

    table = Table(show_header=bool(heads))
    for number, head in enumerate(heads):
        table.add_column(head, no_wrap=not number)
    for row in rows:
        table.add_row(*map(str, row))
    return table
