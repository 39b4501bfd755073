"""Sweep of sampler settings: quality against forwards per fill, one JSON row per setting.

`python -m tenon_engine.evaluation.sweep DATA --every K --out docs/sweep.json`. The weights are loaded once. A
row is written as soon as its setting is done, and a setting whose row is there is skipped: a sweep may be
interrupted. Knows neither what a sampler's specification means nor how rows are drawn (`docs/plot_sweep.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenon_engine.cli import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from tenon_engine.commands import options
from tenon_engine.commands.loading import load_model
from tenon_engine.config import EngineConfig
from tenon_engine.diffusion import DiffusionModel
from tenon_engine.engine import Engine
from tenon_engine.errors import BadRequestError, EngineError, InputFileError, StorageError
from tenon_engine.evaluation.infilling import evaluate, summarise, summary_row
from tenon_engine.evaluation.tasks import Task, read_tasks
from tenon_engine.samplers import plan_named

SAMPLERS = (
    "confirm",
    "left",
    "base",
    "threshold:0.9",
    "frontier:1",
    "frontier:8:0.9",
    "frontier:8:0.6",
    "entropy:0.1:8",
    "margin:0.8:8",
    "topk:2:8",
    "confirm:1:3",
    "confirm:2:0",
    "confirm:4:3",
)

Row = Mapping[str, object]
Setting = Mapping[str, object]
"""What a row was measured with: the part of it that tells it from other rows."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the settings whose rows are missing; prints each row as it comes."""
    arguments = _build_parser().parse_args(argv)
    try:
        config = options.read_config(arguments)
        tasks = read_tasks(arguments.data)[:: arguments.every]
        common = {
            "model": config.model,
            "data": arguments.data.name,
            "every": arguments.every,
            "max_tokens": config.max_tokens,
        }
        model = _load_denoiser(config)
        settings = [common | {"sampler": sampler} for sampler in SAMPLERS]
        for row in sweep(settings, lambda sampler: _measure(model, sampler, config, tasks), arguments.out):
            print(json.dumps(row), flush=True)
    except EngineError as error:
        print(f"tenon: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def sweep(settings: Iterable[Setting], measure: Callable[[str], Row], out: Path) -> Iterator[Row]:
    """Measure each setting that `out` has no row for, add the row to `out`, yield it."""
    rows = _read_rows(out)
    for setting in settings:
        if not any(setting.items() <= row.items() for row in rows):
            row = dict(setting) | dict(measure(str(setting["sampler"])))
            rows.append(row)
            _write_rows(rows, out)
            yield row


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="tasks, .jsonl or .jsonl.gz")
    parser.add_argument("--every", type=options.count, default=1, metavar="K", help="tasks 0, K, 2K, …")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.json", help="where the rows are kept"
    )
    options.add_model_option(parser)
    return parser


def _load_denoiser(config: EngineConfig) -> DiffusionModel[Any]:
    model = load_model(config)
    if not isinstance(model, DiffusionModel):
        raise BadRequestError(f"{config.model} has no sampler to sweep")
    return model


def _measure(model: DiffusionModel[Any], sampler: str, config: EngineConfig, tasks: Sequence[Task]) -> Row:
    model = model.with_plan(plan_named(sampler))
    engine = Engine(model, max_tokens=config.max_tokens, min_confidence=config.min_confidence)
    outcomes = evaluate(engine, tasks, one_line=sampler == "base")
    return summary_row(summarise(list(outcomes)), sampler)


def _read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputFileError(f"{path} is not a list of rows")
    return rows


def _write_rows(rows: Sequence[Row], path: Path) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(f"[\n{lines}\n]\n", encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
