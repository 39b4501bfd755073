"""`tenon eval infilling`: fills the holes of a benchmark file, runs its tests, prints the figures.

Owns flags, progress bar and table; what is measured, and how, is the business of `tenon_engine.evaluation`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tenon_engine.commands import options, output
from tenon_engine.commands.loading import load_engine
from tenon_engine.errors import StorageError
from tenon_engine.evaluation.infilling import Outcome, Summary, evaluate, summarise, summary_row
from tenon_engine.evaluation.tasks import read_tasks


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `eval` and what can be evaluated."""
    parser = subparsers.add_parser("eval", help="measure the quality of fills")
    suites = parser.add_subparsers(title="suites", metavar="SUITE", required=True)
    infilling = suites.add_parser(
        "infilling",
        help="HumanEval-Infilling files: do the tests of each program pass with the fill?",
        description="Fill the hole of each task, run its tests in a sandboxed subprocess, print the figures.",
    )
    infilling.add_argument("data", type=Path, metavar="DATA.jsonl.gz", help="tasks, .jsonl or .jsonl.gz")
    infilling.add_argument("--every", type=options.count, default=1, metavar="K", help="every K-th task")
    infilling.add_argument(
        "--first", type=options.index, default=0, metavar="N", help="begin with task N, from 0"
    )
    infilling.add_argument("--limit", type=options.count, metavar="N", help="the first N of these")
    infilling.add_argument("--out", type=Path, metavar="FILE.jsonl", help="write one line per task")
    infilling.add_argument("--json", action="store_true", help="print one JSON line instead of the table")
    options.add_model_option(infilling)
    options.add_canvas_options(infilling)
    infilling.set_defaults(run=_run_infilling)


def _run_infilling(arguments: argparse.Namespace) -> int:
    config = options.read_config(arguments)
    tasks = read_tasks(arguments.data)[arguments.first :: arguments.every][: arguments.limit]
    outcomes: list[Outcome] = []
    if arguments.out is not None:
        output.check_file(arguments.out, source=arguments.data)
    engine = load_engine(config)
    with _open_log(arguments.out) as write_row:
        try:
            with _open_progress(len(tasks)) as show:
                for outcome in evaluate(engine, tasks, one_line=config.sampler == "base"):
                    outcomes.append(outcome)
                    write_row(dataclasses.asdict(outcome) | {"verdict": outcome.verdict.value})
                    show(outcomes)
        finally:
            # Also after Ctrl-C or a failure of the model: what was measured until then is worth its time.
            _print_summary(summarise(outcomes), sampler=config.sampler, as_json=arguments.json)
    return 0


@contextlib.contextmanager
def _open_log(path: Path | None) -> Iterator[Callable[[dict[str, object]], None]]:
    """A function that writes one row to the file, or nowhere."""
    if path is None:
        yield lambda row: None
        return
    try:
        file = path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    with file:
        yield lambda row: print(json.dumps(row), file=file, flush=True)


@contextlib.contextmanager
def _open_progress(task_count: int) -> Iterator[Callable[[Sequence[Outcome]], None]]:
    """A bar with the figures so far, where stderr is a terminal, and the function that moves it."""
    if not sys.stderr.isatty():
        yield lambda outcomes: None
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
    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("filling", total=task_count)

        def show(outcomes: Sequence[Outcome]) -> None:
            figures = summarise(outcomes)
            text = f"pass@1 {figures.pass_at_1:.3f}  exact {figures.exact_match:.3f}"
            progress.update(bar, completed=len(outcomes), description=text)

        yield show


def _print_summary(summary: Summary, *, sampler: str, as_json: bool) -> None:
    row = summary_row(summary, sampler)
    if as_json:
        print(json.dumps(row))
        return
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in row.items():
        table.add_row(name.replace("_", " "), str(value))
    output.open_console().print(table)
