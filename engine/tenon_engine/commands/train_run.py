"""`tenon train run` and `tenon train pack`: from a corpus to a checkpoint, from a checkpoint to an adapter file.

Owns flags and what is printed; `tenon_engine.training` does it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenon_engine.commands import options
from tenon_engine.commands.loading import progress_bars

if TYPE_CHECKING:
    from tenon_engine.training.options import TrainOptions
    from tenon_engine.training.run import Report

RATE_OPTIONS = ("learning_rate", "warmup_steps")
BUDGET_OPTIONS = ("minutes", "steps", "device", "compile", "workers", "save_minutes")
LINE_EVERY_S = 15.0  # where stderr is no terminal
ALLOCATOR_HINT = (
    "On Linux, freed memory is kept for the next step. Where jemalloc is installed, it can do that instead: "
    "put LD_PRELOAD with its path and MALLOC_CONF=thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1 before the command."
)

Subparsers = argparse._SubParsersAction


def add_run(actions: Subparsers[argparse.ArgumentParser]) -> None:
    """`run`."""
    parser = actions.add_parser(
        "run",
        help="train the adapter on a corpus; the same command goes on where it stopped",
        description="Train the adapter on a corpus. Ctrl-C or SIGTERM lets it finish its step and write a checkpoint; "
        "the same command goes on from there, a larger --minutes or --steps goes on after the end.",
        epilog=ALLOCATOR_HINT,
    )
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="folder that `tenon train corpus` made")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of the checkpoint")
    parser.add_argument(
        "--adapter", type=Path, metavar="FILE", help="to start from (default: the shipped one)"
    )
    add_budget_options(parser)
    add_rate_options(parser)
    parser.add_argument("--seed", type=options.seed, metavar="N")
    parser.add_argument("--accumulate", type=options.count, metavar="N", help="forwards of a step")
    parser.add_argument(
        "--context-tokens", type=options.count, metavar="N", help="of a context and its hole's text"
    )
    parser.add_argument(
        "--canvas-slots", type=options.count, metavar="N", help="of all canvases of a context"
    )
    parser.add_argument(
        "--confirm", type=share, metavar="S", help="of the slots that see as the default sampler does"
    )
    parser.add_argument(
        "--replaced", type=share, metavar="S", help="of the visible slots that show a wrong token"
    )
    parser.add_argument("--distil", type=share, metavar="S", help="of a target that is the base's say")
    parser.add_argument(
        "--evaluate-steps", type=options.index, metavar="N", help="between looks at held-out texts; 0: never"
    )
    parser.add_argument("--evaluate-holes", type=options.count, metavar="N", help="of such a look")
    parser.set_defaults(run=_run_run)


def add_rate_options(parser: argparse.ArgumentParser) -> None:
    """How fast it learns."""
    parser.add_argument(
        "--learning-rate",
        type=positive,
        metavar="R",
        help="the highest (default: 2e-4, for a trained adapter)",
    )
    parser.add_argument("--warmup-steps", type=options.index, metavar="N", help="until it is that high")


def add_budget_options(
    parser: argparse.ArgumentParser, *, minutes: float | None = None, rows: int | None = None
) -> None:
    """How long, with how much of the machine."""
    parser.add_argument("--minutes", type=positive, default=minutes, metavar="M", help="of training, in all")
    parser.add_argument("--steps", type=options.count, metavar="N", help="in all")
    parser.add_argument(
        "--rows",
        type=options.count,
        default=rows,
        metavar="N",
        help="contexts of a forward (default: 8; 4 to finetune)",
    )
    parser.add_argument("--device", metavar="D", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="compile the layers: minutes at the start (default: where it pays)",
    )
    parser.add_argument(
        "--workers", type=options.index, metavar="N", help="processes that make examples; 0: a thread"
    )
    parser.add_argument("--save-minutes", type=positive, metavar="M", help="between checkpoints")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")


def add_pack(actions: Subparsers[argparse.ArgumentParser]) -> None:
    """`pack`."""
    parser = actions.add_parser(
        "pack",
        help="make the adapter file of a checkpoint",
        description="Round the averaged weights to int8 and write the adapter that the engine loads.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="FOLDER", help="what `tenon train run --out` wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.safetensors")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.set_defaults(run=_run_pack)


def _run_run(arguments: argparse.Namespace) -> int:
    from tenon_engine.training.options import ExampleOptions, TrainOptions, Views

    config = options.read_config(arguments)
    row = run_training(
        TrainOptions(
            corpus=arguments.corpus,
            out=arguments.out,
            adapter=arguments.adapter,
            home=config.home,
            offline=config.offline,
            examples=ExampleOptions(
                views=Views(**given(arguments, "confirm", "replaced")),
                **given(arguments, "seed", "rows", "context_tokens", "canvas_slots"),
            ),
            **given(arguments, *RATE_OPTIONS, "accumulate", "distil", "evaluate_steps", "evaluate_holes"),
            **given(arguments, *BUDGET_OPTIONS),
        )
    )
    if arguments.json:
        print(json.dumps(row))
    else:
        print(
            f"{row['step']} steps are in {arguments.out}; "
            f"`tenon train pack {arguments.out} --out FILE` makes an adapter of them"
        )
    return 0


def _run_pack(arguments: argparse.Namespace) -> int:
    from tenon_engine.training.pack import pack

    packed = pack(arguments.checkpoint, arguments.out)
    row = {
        "step": packed.step,
        "bytes": packed.size_bytes,
        "lost": round(packed.lost, 6),
        "adapter": str(arguments.out),
    }
    if arguments.json:
        print(json.dumps(row))
    else:
        print(
            f"{arguments.out}: {packed.size_bytes / 1e6:.1f} MB, {packed.step} steps; "
            f"rounding lost {packed.lost:.2%} of the energy of the updates"
        )
    return 0


def given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that were given; what a training does without them is its own business."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def run_training(training: TrainOptions) -> dict[str, Any]:
    """Train, telling how it goes; returns the last figures."""
    with progress_bars() as progress:
        from tenon_engine.training import loop  # imports torch

        ground = loop.find_ground(training, progress)
    lines = _Lines()
    try:
        path = loop.train(training, ground, lines.tell)
    except KeyboardInterrupt:
        lines.end()
        print("tenon: stopped; the same command goes on from here", file=sys.stderr)
        raise
    lines.end()
    return lines.last_row | {"checkpoint": str(path)}


class _Lines:
    """Progress on stderr: a line that is written again and again on a terminal, one now and then elsewhere."""

    def __init__(self) -> None:
        self.last_row: dict[str, Any] = {"step": 0}
        self._said_at = -math.inf
        self._rewrites = sys.stderr.isatty()

    def tell(self, report: Report) -> None:
        """Show a report."""
        if report.held_out:
            self.last_row["held_out"] = {name: round(count.mean, 4) for name, count in report.metrics.items()}
        else:
            self.last_row |= report.row()
        is_due = report.held_out or self._rewrites or time.monotonic() - self._said_at > LINE_EVERY_S
        if not is_due:
            return
        self._said_at = time.monotonic()
        end = "\r" if self._rewrites and not report.held_out else "\n"
        erase = "\x1b[2K" if self._rewrites else ""
        print(f"{erase}tenon: {line_of(report)}", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the last line where it is."""
        if self._rewrites:
            print(file=sys.stderr)


def line_of(report: Report) -> str:
    """A report in words."""
    figures = {name: count.mean for name, count in report.metrics.items()}
    slots = " ".join(f"{figures[name]:.2f}" for name in figures if name.startswith("slot_"))
    quality = f"loss {figures['loss']:.3f}, slots 1 to 4 right {slots}, END found {figures['end']:.2f}"
    if report.held_out:
        return f"step {report.step}, held out: {quality}"
    minutes_left = math.ceil(report.left_s / 60)
    return (
        f"step {report.step}, {report.done:.0%}, {minutes_left} min left: {quality}; {report.step_s:.1f} s a step, "
        f"{report.efficiency:.0%} of the device's products, {report.waited:.1%} waiting for texts"
    )


def positive(text: str) -> float:
    """argparse type: a number above 0."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def share(text: str) -> float:
    """argparse type: a number from 0 to 1."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, not {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
