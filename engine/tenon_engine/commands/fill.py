"""`tenon fill FILE:LINE:COL`: one hole of one file, filled in this process.

Owns what is printed where; the file is read by `source_file`, the page is written by `trace`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tenon_engine import source_file
from tenon_engine.commands import options, output
from tenon_engine.commands.loading import load_engine
from tenon_engine.source_file import SourceFile
from tenon_engine.wire import FillRequest, FillResult, FillStep

if TYPE_CHECKING:
    from tenon_engine.engine import Engine

EXIT_NOTHING_TO_SUGGEST = 3


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "fill",
        help="fill one hole of a file and print the text to insert",
        description="Print the text to insert at FILE:LINE:COL (from 1); exit code 3: nothing to suggest.",
    )
    parser.add_argument("place", metavar="FILE:LINE:COL")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print text, range, confidence and cost as JSON")
    form.add_argument("--show", action="store_true", help="print the fill in colour inside its surroundings")
    parser.add_argument(
        "--candidates", metavar="N", type=options.count, default=1, help="how many alternatives"
    )
    parser.add_argument("--deadline-ms", metavar="N", type=options.count, help="answer within this time")
    parser.add_argument("--seed", metavar="N", type=options.seed, default=0, help="makes sampling repeatable")
    parser.add_argument(
        "--temperature", metavar="T", type=options.temperature, default=0.0, help="0 (default) is greedy"
    )
    parser.add_argument(
        "--trace", metavar="OUT.html", type=Path, help="write a page that plays the denoising"
    )
    options.add_model_option(parser)
    options.add_canvas_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fill the hole; the exit code says whether there was something to suggest."""
    config = options.read_config(arguments)
    place = source_file.parse_place(arguments.place)
    source = source_file.read(place.path)
    offset = source_file.offset_of(source, place.line, place.column)
    request = _request(arguments, source, offset)
    if arguments.trace is not None:
        output.check_page(arguments.trace, source=place.path)
    steps, result = _fill(load_engine(config), request)
    _print(arguments, source, offset, result)
    if arguments.trace is not None:
        from tenon_engine.trace import write_trace

        write_trace(arguments.trace, request, steps, result)
    return 0 if result.holes[0].text else EXIT_NOTHING_TO_SUGGEST


def _request(arguments: argparse.Namespace, source: SourceFile, offset: int) -> FillRequest:
    return FillRequest.single(
        source.text[:offset],
        source.text[offset:],
        path=_shown_path(source.path),
        language=source_file.language_of(source.path),
        candidates=arguments.candidates,
        temperature=arguments.temperature,
        seed=arguments.seed,
        deadline_ms=arguments.deadline_ms,
    )


def _shown_path(path: Path) -> str:
    """The path as the model is told it: within this folder, else the name alone; never the user's home."""
    absolute = path.absolute()
    here = Path.cwd()
    shown = absolute.relative_to(here) if absolute.is_relative_to(here) else Path(path.name)
    return shown.as_posix().encode("utf-8", "replace").decode("utf-8")


def _fill(engine: Engine, request: FillRequest) -> tuple[list[FillStep], FillResult]:
    steps: list[FillStep] = []
    for event in engine.stream(request):
        if isinstance(event, FillResult):
            return steps, event
        steps.append(event)
    raise AssertionError("a stream ends with a FillResult")


def _print(arguments: argparse.Namespace, source: SourceFile, offset: int, result: FillResult) -> None:
    hole = result.holes[0]
    if arguments.json:
        print(json.dumps(_as_json(source, offset, result), ensure_ascii=False))
    elif hole.text and arguments.show:
        from tenon_engine.commands.show import show

        show(output.open_console(), str(source.path), source.text[:offset], source.text[offset:], result)
    elif hole.text:
        print(hole.text, end="\n" if sys.stdout.isatty() else "")
    if not hole.text:
        print(f"tenon: nothing to suggest{f' ({hole.reason})' if hole.reason else ''}", file=sys.stderr)


def _as_json(source: SourceFile, offset: int, result: FillResult) -> dict[str, object]:
    line, character = source_file.utf16_position(source, offset)
    position = {"line": line, "character": character}
    hole, cost = result.holes[0], result.cost
    return {
        "text": hole.text,
        "range": {"start": position, "end": position},
        "confidence": hole.confidence,
        "steps": cost.forwards,
        "tokens": cost.tokens,
        "ms": {
            "context": round(cost.context_ms, 1),
            "denoise": round(cost.denoise_ms, 1),
            "total": round(cost.total_ms, 1),
        },
        "model": result.model,
        "candidates": [{"text": one.text, "confidence": one.confidence} for one in hole.candidates],
    }
