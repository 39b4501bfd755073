"""`tenon finetune DIR`: the embedded model's adapter, trained on the user's own files, and how to get rid of it.

Owns flags and what is printed; `training.finetune` knows what is kept where, `training.loop` trains.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenon_engine.commands import options, output, train_run
from tenon_engine.commands.train import progress_shown
from tenon_engine.errors import BadRequestError
from tenon_engine.runtime import EMBEDDED

if TYPE_CHECKING:
    from tenon_engine.config import EngineConfig
    from tenon_engine.training.finetune import Place

MINUTES, ROWS = 20.0, 4
HOLES = 60
SHOWN = ("exact_match", "first_line", "edit_similarity", "syntax_valid", "tokens_per_step")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "finetune",
        help="train the embedded model on your own files, for some minutes",
        description="Train the embedded model's adapter on the source files of a directory (without what git ignores, "
        "without secrets), and compare it on files that were kept back. Nothing leaves this machine. Ctrl-C leaves a "
        "checkpoint, the same command goes on from there.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="such as a repository")
    parser.add_argument("--undo", action="store_true", help="remove what was trained on DIR")
    parser.add_argument("--status", action="store_true", help="say what there is")
    train_run.add_rate_options(parser)
    parser.add_argument(
        "--holes",
        type=options.count,
        default=HOLES,
        metavar="N",
        help="to compare with (default: %(default)s)",
    )
    train_run.add_budget_options(parser, minutes=MINUTES, rows=ROWS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Train, or say what was trained, or undo it."""
    from tenon_engine.training import finetune

    config = options.read_config(arguments)
    place = finetune.place_of(arguments.folder, config.home)
    if arguments.undo:
        return _undo(place)
    if arguments.status:
        return _say_status(place, as_json=arguments.json)
    if config.model != EMBEDDED:
        raise BadRequestError(f"only {EMBEDDED} can be trained here, and engine.model is {config.model}")
    with progress_shown() as progress:
        finetune.gather(place, progress)
    _train(place, config, arguments)
    with progress_shown() as progress:
        figures = finetune.finish(place, config, arguments.holes, progress)
    _print(figures, as_json=arguments.json)
    return 0


def _train(place: Place, config: EngineConfig, arguments: argparse.Namespace) -> None:
    from tenon_engine.training.finetune import HELD_OUT
    from tenon_engine.training.options import ExampleOptions, TrainOptions

    train_run.run_training(
        TrainOptions(
            corpus=place.corpus,
            out=place.run,
            home=config.home,
            offline=config.offline,
            examples=ExampleOptions(rows=arguments.rows, held_out=HELD_OUT),
            evaluate_steps=0,  # fills are compared at the end, which says more
            **train_run.given(arguments, *train_run.RATE_OPTIONS, *train_run.BUDGET_OPTIONS),
        )
    )


def _undo(place: Place) -> int:
    from tenon_engine.training import finetune

    if not finetune.undo(place):
        print(f"nothing was trained on {place.source}")
        return 1
    print(
        f"removed what was trained on {place.source}; take its line out of the configuration, if it is there"
    )
    return 0


def _say_status(place: Place, *, as_json: bool) -> int:
    if place.figures.exists():
        _print(json.loads(place.figures.read_text(encoding="utf-8")), as_json=as_json)
        return 0
    if as_json:
        print(json.dumps({"source": str(place.source), "is_under_way": place.run.exists()}))
    elif place.run.exists():
        print(f"the training on {place.source} was stopped: the same command goes on with it")
    else:
        print(f"nothing was trained on {place.source}")
    return 1


def _print(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    from rich.table import Table

    before, after = figures["before"], figures["after"]
    table = Table("", "before", "after", title=f"{before['n']} holes in files that were not trained on")
    for name in SHOWN:
        table.add_row(name.replace("_", " "), f"{before[name]:.3f}", f"{after[name]:.3f}")
    console = output.open_console()
    console.print(table)
    console.print(
        f'To use it, put these lines into the configuration:\n[engine]\nadapter = "{figures["adapter"]}"',
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
