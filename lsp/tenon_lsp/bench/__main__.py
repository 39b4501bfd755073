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

from tenon_lsp.bench import stages, wire
from tenon_lsp.bench.editor import ServerLeft
from tenon_lsp.bench.figures import Times, load_average, machine, table
from tenon_lsp.bench.storm import measure_storm

LINE_COUNTS = (2_000, 20_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = _parser().parse_args(argv)
    head = {"machine": machine(), "load_average": load_average()}
    try:
        with tempfile.TemporaryDirectory(prefix="tenon-bench-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            measured = [*_measure(folder, arguments.starts, arguments.keys)]
            storm = measure_storm(folder, arguments.storm) if arguments.storm else None
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
    for name, default, purpose in (
        ("--starts", 10, "how often the server is started"),
        ("--keys", 200, "how many keys are typed for each figure"),
        ("--storm", 0, "how many random keys are typed, with requests and cancellations between them"),
    ):
        help_text = f"{purpose} (default: {default})"
        parser.add_argument(name, type=count, default=default, metavar="N", help=help_text)
    return parser


def count(text: str) -> int:
    """A number that is not negative, as argparse reads it."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _measure(folder: Path, starts: int, keys: int) -> Iterator[Times]:
    if starts:
        yield wire.measure_starts(folder, starts)
    if keys:
        for line_count in LINE_COUNTS:
            yield from stages.measure_stages(folder, line_count, keys)
            yield from stages.measure_suggest(folder, line_count, keys)
            yield from wire.measure_editing(folder, line_count, keys)
        yield from wire.measure_cancellation(folder, keys)


def _print_table(head: dict[str, Any], measured: Sequence[Times], storm: dict[str, Any] | None) -> None:
    print(f"{head['machine']}, load average {head['load_average']}\n")
    if measured:
        print("\n".join(table(measured)), end="\n\n")
    if storm is not None:
        for name, value in storm.items():
            print(f"{'storm: ' + name.replace('_', ' '):44}{value}")


if __name__ == "__main__":
    sys.exit(main())
