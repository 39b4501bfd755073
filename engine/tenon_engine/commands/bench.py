"""`tenon bench`: what fills cost on this machine, beside autoregressive decoding of the same weights.

Owns the printing; what is measured, and how, is the business of `evaluation.bench`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenon_engine.commands import options, output
from tenon_engine.commands.loading import load_model
from tenon_engine.errors import BadRequestError

if TYPE_CHECKING:
    from rich.table import Table

    from tenon_engine.evaluation.bench import FillTimes, StepTimes


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "bench",
        help="measure latency, cold and warm, per step, and against autoregressive decoding",
        description="Fill the holes of a document that ships with tenon, and time it. Let nothing else run.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of the tables")
    options.add_model_option(parser)
    parser.add_argument("--sampler", metavar="NAME", help="which slots are accepted at each denoising step")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    config = options.read_config(arguments)
    from tenon_engine.diffusion import DiffusionModel
    from tenon_engine.evaluation import bench, bench_hub

    started = time.perf_counter()
    model = load_model(config)
    load_ms = (time.perf_counter() - started) * 1e3
    figures: dict[str, Any] = {"model": config.model, "machine": machine()}
    if isinstance(model, DiffusionModel):
        fills = list(bench.measure_fills(model))
        steps = list(bench.measure_steps(model))
        figures |= {"sampler": config.sampler}
        figures |= bench.summary(fills, steps, load_ms=load_ms)
    elif (bare := bench_hub.yardstick_of(model)) is not None:
        fills, steps = [], []
        figures |= {"load_ms": round(load_ms, 3)}
        figures |= bench_hub.measure(model, bare, quantization=config.quantization)
    else:
        raise BadRequestError(f"{config.model} does not denoise, there is nothing to measure")
    if arguments.json:
        print(json.dumps(figures))
    else:
        _print_tables(figures, fills, steps)
    return 0


def machine() -> str:
    """This machine in words: processor, instruction set as torch uses it, threads."""
    import torch

    cpu: Any = torch.backends.cpu
    processor = platform.processor() or platform.machine()
    return f"{processor}, {cpu.get_cpu_capability()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _print_tables(figures: dict[str, Any], fills: Sequence[FillTimes], steps: Sequence[StepTimes]) -> None:
    from rich.table import Table

    console = output.open_console()
    console.print(f"{figures['model']}, {figures['machine']}\n")
    if fills:
        console.print(_table_of_fills(fills))
        console.print(_table_of_steps(steps))
    table = Table(show_header=False)
    for name, value in figures.items():
        if name not in ("model", "machine"):
            table.add_row(name.replace("_", " "), value if isinstance(value, str) else f"{value:,}")
    console.print(table)


def _table_of_fills(fills: Sequence[FillTimes]) -> Table:
    from rich.table import Table

    table = Table(title="rest-of-line fills, ms")
    for column in ("text", "fill", "context", "steps", "forwards", "tokens", "key typed", "one by one"):
        table.add_column(column, justify="left" if column == "text" else "right")
    for fill in fills:
        first_line = (fill.text.splitlines() or [""])[0]
        times = (
            fill.fill_ms,
            fill.context_ms,
            fill.denoise_ms,
            fill.forwards,
            fill.tokens,
            fill.key_ms,
            fill.autoregressive_ms,
        )
        table.add_row(first_line[:24], *(f"{value:.0f}" for value in times))
    return table


def _table_of_steps(steps: Sequence[StepTimes]) -> Table:
    from rich.table import Table

    table = Table(title="one forward behind 300 tokens of context, ms")
    for column in ("entries", "base, causal", "canvas, adapter"):
        table.add_column(column, justify="right")
    for step in steps:
        table.add_row(str(step.entries), f"{step.base_ms:.1f}", f"{step.canvas_ms:.1f}")
    return table
