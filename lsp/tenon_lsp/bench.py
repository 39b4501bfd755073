"""`python -m tenon_lsp.bench`: what a key costs with this language server on this machine, the model left out.

Owns the order of the measurements and the printing; each measures what its module says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tenon_lsp import bench_stages, bench_storm, bench_wire
from tenon_lsp.bench_editor import ServerLeft
from tenon_lsp.bench_figures import Times, load_average, machine, table

LINE_COUNTS = (2_000, 20_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = _parser().parse_args(argv)
    head = {"machine": machine(), "load_average": load_average()}
    try:
        with tempfile.TemporaryDirectory(prefix="tenon-bench-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            measured = [*_measure(folder, arguments.starts, arguments.keys)]
            storm = bench_storm.measure_storm(folder, arguments.storm) if arguments.storm else None
    except ServerLeft as error:
        print(f"tenon: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(head | {times.name: times.figures() for times in measured} | {"storm": storm}))
    else:
        _print_table(head, measured, storm)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tenon_lsp.bench",
        description="Time the language server with a scripted model. Let nothing else run.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of the table")
    parser.add_argument(
        "--starts", type=int, default=10, metavar="N", help="starts of the server (%(default)s)"
    )
    parser.add_argument(
        "--keys", type=int, default=200, metavar="N", help="keys for each figure (%(default)s)"
    )
    parser.add_argument(
        "--storm", type=int, default=0, metavar="N", help="also type N random keys (%(default)s)"
    )
    return parser


def _measure(folder: Path, starts: int, keys: int) -> Iterator[Times]:
    yield bench_wire.measure_starts(folder, starts)
    for line_count in LINE_COUNTS:
        yield from bench_stages.measure_stages(folder, line_count, keys)
        yield from bench_stages.measure_suggest(folder, line_count, keys)
        yield from bench_wire.measure_editing(folder, line_count, keys)
    yield from bench_wire.measure_cancellation(folder, keys)


def _print_table(head: dict[str, Any], measured: Sequence[Times], storm: dict[str, Any] | None) -> None:
    print(f"{head['machine']}, load average {head['load_average']}\n")
    print("\n".join(table(measured)))
    if storm is not None:
        print()
        for name, value in storm.items():
            print(f"{'storm: ' + name.replace('_', ' '):44}{value}")


if __name__ == "__main__":
    sys.exit(main())
