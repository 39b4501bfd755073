"""`tenon eval`: fills the holes of a benchmark or of real files, prints the figures, fits the calibration.

Owns flags and the order of things; what is measured, and how, is the business of `tenon_engine.evaluation`.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tenon_engine import calibration as calibrations
from tenon_engine.commands import eval_tables, options, output
from tenon_engine.commands.loading import load_engine, load_model
from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.evaluation import calibration, figures, infilling, rows
from tenon_engine.evaluation.sandbox import Verdict
from tenon_engine.evaluation.tasks import read_tasks
from tenon_engine.runtime import EMBEDDED

if TYPE_CHECKING:
    from tenon_engine.engine import Engine
    from tenon_engine.evaluation.holes import HoleTask
    from tenon_engine.evaluation.holes import Outcome as HoleOutcome

HOLES_AT_MOST = 200  # where --limit does not say
HOLE_TOKENS = "48"  # of a canvas: holes are shorter
ROWS_HELP = "one line per task; with the same file, an interrupted run goes on where it stopped"
PRECISION = 0.6  # of what is suggested, at least: what the gate is set for
FOLDS = 5
GROUP_FIGURES = ("n", "exact_match", "first_line", "edit_similarity", "syntax_valid", "run_on")
CALIBRATED_AT_LEAST = 50  # fills: fewer say nothing

Subparsers = argparse._SubParsersAction


class Task(Protocol):
    """What can be evaluated."""

    @property
    def task_id(self) -> str:
        """Its name, the same in every run."""
        ...


T = TypeVar("T", bound=Task)
U = TypeVar("U", bound=Task)  # an outcome has the name of its task


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add `eval` and what can be evaluated."""
    parser = subparsers.add_parser("eval", help="measure the quality of fills")
    suites = parser.add_subparsers(title="suites", metavar="SUITE", required=True)
    _add_infilling(suites)
    _add_holes(suites)
    _add_calibrate(suites)


def _add_infilling(suites: Subparsers[argparse.ArgumentParser]) -> None:
    parser = suites.add_parser(
        "infilling",
        help="HumanEval-Infilling files: do the tests of each program pass with the fill?",
        description="Fill the hole of each task, run its tests in a sandboxed subprocess, print the figures.",
    )
    parser.add_argument("data", type=Path, metavar="DATA.jsonl.gz", help="tasks, .jsonl or .jsonl.gz")
    parser.add_argument(
        "--first", type=options.index, default=0, metavar="N", help="begin with task N, from 0"
    )
    _add_common(parser, "task")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help=ROWS_HELP)
    parser.set_defaults(run=_run_infilling)


def _add_holes(suites: Subparsers[argparse.ArgumentParser]) -> None:
    parser = suites.add_parser(
        "holes",
        help="holes in the files of a directory: is the fill what stood there?",
        description="Open holes of every shape in the source files of a directory (the same ones on every machine), "
        "fill them, and print how often the fill is what stood there, begins with it, or parses.",
    )
    _add_directory(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help=ROWS_HELP)
    parser.set_defaults(run=_run_holes)


def _add_calibrate(suites: Subparsers[argparse.ArgumentParser]) -> None:
    parser = suites.add_parser(
        "calibrate",
        help="fit what a confidence is worth on the holes of a directory that was not trained on",
        description="Fill holes as `tenon eval holes` does and write how often fills of each confidence were right. "
        "The engine takes the file where it lies beside the adapter under the name calibration.json.",
    )
    _add_directory(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="the calibration")
    parser.add_argument("--data", metavar="NAME", help="what it says it was fitted on (default: DIR's name)")
    parser.add_argument("--rows", type=Path, metavar="FILE.jsonl", help=ROWS_HELP)
    parser.set_defaults(run=_run_calibrate)


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="its .gitignore files are respected")
    parser.add_argument("--languages", type=options.names, default=(), metavar="L,L", help="only these")
    options.add_adapter_option(parser)
    _add_common(parser, "hole")
    parser.set_defaults(limit=HOLES_AT_MOST, max_tokens=HOLE_TOKENS)


def _add_common(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--every", type=options.count, default=1, metavar="K", help=f"every K-th {what}")
    parser.add_argument("--limit", type=options.count, metavar="N", help="the first N of these")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of the tables")
    options.add_model_option(parser)
    options.add_canvas_options(parser)


def _run_infilling(arguments: argparse.Namespace) -> int:
    config = options.read_config(arguments)
    tasks = read_tasks(arguments.data)[arguments.first :: arguments.every][: arguments.limit]
    if arguments.out is not None:
        output.check_file(arguments.out, source=arguments.data)
    engine = load_engine(config)
    outcomes: list[infilling.Outcome] = []
    run = _Run(arguments.out, rows.setting(config, "infilling"), _describe_infilling, _restore_infilling)
    try:
        run.measure(
            tasks, lambda left: infilling.evaluate(engine, left, one_line=config.sampler == "base"), outcomes
        )
    finally:
        # Also after Ctrl-C or a failure of the model: what was measured until then is worth its time.
        row = infilling.summary_row(infilling.summarise(outcomes), config.sampler)
        _print(arguments, row, infilling.passed(outcomes))
    return 0


def _describe_infilling(outcomes: Sequence[infilling.Outcome]) -> str:
    so_far = infilling.summarise(outcomes)
    return f"pass@1 {so_far.pass_at_1:.3f}  exact {so_far.exact_match:.3f}"


def _restore_infilling(row: rows.Row) -> infilling.Outcome:
    return infilling.Outcome(**{**row, "verdict": Verdict(row["verdict"])})


def _run_holes(arguments: argparse.Namespace) -> int:
    from tenon_engine.evaluation import holes

    config = options.read_config(arguments)
    tasks = _holes(arguments)
    if arguments.out is not None:
        output.check_file(arguments.out, source=arguments.folder)
    engine = load_engine(config)
    outcomes: list[HoleOutcome] = []
    run = _Run(arguments.out, rows.setting(config, "holes"), _describe_holes, _restore_hole)
    try:
        run.measure(tasks, lambda left: holes.evaluate(engine, left), outcomes)
    finally:
        row = {**holes.summary_row(holes.summarise(outcomes)), "sampler": config.sampler}
        groups = {
            f"by_{name}": {
                key: holes.summary_row(summary)
                for key, summary in holes.grouped(outcomes, operator.attrgetter(name)).items()
            }
            for name in ("language", "shape")
        }
        _print(arguments, row, holes.taken(outcomes), groups)
    return 0


def _run_calibrate(arguments: argparse.Namespace) -> int:
    from tenon_engine.evaluation import holes

    config = options.read_config(arguments)
    tasks = _holes(arguments)
    for path in filter(None, (arguments.out, arguments.rows)):
        output.check_file(path, source=arguments.folder)
    engine = _uncalibrated(config)
    outcomes: list[HoleOutcome] = []
    setting = rows.setting(config, "calibrate", is_calibrated=False)
    run = _Run(arguments.rows, setting, _describe_holes, _restore_hole)
    run.measure(tasks, lambda left: holes.evaluate(engine, left), outcomes)
    folds = _folds(outcomes)
    filled = [outcome for fold in folds for outcome in fold]
    if len(filled) < CALIBRATED_AT_LEAST or len(folds) < 2:
        raise BadRequestError(
            f"{len(filled)} fills are too few for a calibration: take a larger --limit or more files"
        )
    data = arguments.data or arguments.folder.resolve().name
    fitted = calibration.isotonic(filled, data=data, adapter_sha256=_adapter_sha256(config))
    calibrations.save(fitted, arguments.out)
    silent = [calibration.Outcome(0.0, False)] * (len(outcomes) - len(filled))
    believed = [*calibration.cross_validated(folds), *silent]
    row = {
        "n": len(outcomes),
        "right": round(figures.mean([outcome.right for outcome in filled]), 4),
        "ece_before": round(calibration.ece(filled), 4),
        "out": str(arguments.out),
    }
    _print(arguments, row, believed)
    return 0


def _holes(arguments: argparse.Namespace) -> list[HoleTask]:
    from tenon_engine.evaluation import holes

    found = holes.find(arguments.folder, arguments.languages)
    tasks = list(itertools.islice(found, 0, arguments.limit * arguments.every, arguments.every))
    if not tasks:
        raise InputFileError(f"{arguments.folder} has no source files to open holes in")
    return tasks


def _describe_holes(outcomes: Sequence[HoleOutcome]) -> str:
    from tenon_engine.evaluation import holes

    so_far = holes.summarise(outcomes)
    return f"exact {so_far.exact_match:.3f}  first line {so_far.first_line:.3f}"


def _restore_hole(row: rows.Row) -> HoleOutcome:
    from tenon_engine.evaluation import holes

    return holes.Outcome(**row)


def _folds(outcomes: Sequence[HoleOutcome]) -> list[list[calibration.Outcome]]:
    """What was offered, in a few parts; holes of one file are in one part."""
    from tenon_engine.evaluation import holes

    folds: list[list[HoleOutcome]] = [[] for _ in range(FOLDS)]
    places = {
        path: number % FOLDS for number, path in enumerate(dict.fromkeys(each.path for each in outcomes))
    }
    for outcome in outcomes:
        folds[places[outcome.path]].append(outcome)
    return list(filter(None, (calibration.offered(holes.taken(fold)) for fold in folds)))


def _uncalibrated(config: EngineConfig) -> Engine:
    """An engine whose confidences are the model's own, and which withholds nothing."""
    model = load_model(config)
    from tenon_engine.diffusion import DiffusionModel
    from tenon_engine.engine import Engine

    if isinstance(model, DiffusionModel):
        model = model.with_calibration(None)
    return Engine(model, max_tokens=config.max_tokens)


def _adapter_sha256(config: EngineConfig) -> str:
    """Of the embedded model's adapter; '' for other models."""
    if config.model != EMBEDDED:
        return ""
    from tenon_engine.models.embedded import ADAPTER_PATH

    return hashlib.sha256((config.adapter or ADAPTER_PATH).read_bytes()).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class _Run(Generic[U]):
    """Where the outcomes of a run are kept, what they were measured with, how they are told and read again."""

    log: Path | None
    setting: rows.Row
    describe: Callable[[Sequence[U]], str]
    restore: Callable[[rows.Row], U]

    def measure(
        self, tasks: Sequence[T], evaluate: Callable[[Iterable[T]], Iterator[U]], outcomes: list[U]
    ) -> None:
        """Add the outcome of each task to `outcomes`: as it is in the log, or as it comes."""
        done = rows.read(self.log, self.setting, self.restore)
        outcomes += [done[task.task_id] for task in tasks if task.task_id in done]
        left = [task for task in tasks if task.task_id not in done]
        with rows.appending(self.log, self.setting) as write, eval_tables.progress(len(tasks)) as show:
            for outcome in evaluate(left):
                outcomes.append(outcome)
                write(outcome)
                show(len(outcomes), self.describe(outcomes))


def _print(
    arguments: argparse.Namespace,
    row: Mapping[str, object],
    outcomes: Sequence[calibration.Outcome],
    groups: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType({}),
) -> None:
    """The figures with those of the calibration: one JSON line, or tables."""
    gate = calibration.widest(outcomes, PRECISION)
    whole = {
        **row,
        **calibration.row(outcomes),
        "gate": None if gate is None else calibration.point_row(gate),
        **groups,
    }
    if arguments.json:
        print(json.dumps(whole))
        return
    eval_tables.print_figures(whole)
    for name, group in groups.items():
        eval_tables.print_groups(name.removeprefix("by_"), GROUP_FIGURES, group)
    eval_tables.print_calibration(outcomes)
