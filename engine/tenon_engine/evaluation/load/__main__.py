"""`python -m tenon_engine.evaluation.load`: an engine that answers HTTP, under load.

Owns the order of the measurements and the printing; each measures what its module says. The clients run on this
machine, too, and take their share of it. To compare replicas of a cluster, run it with `--url` once for each number of
replicas, and compare the fills per second of the mixed load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from tenon_engine.cli import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from tenon_engine.commands import options
from tenon_engine.errors import BadRequestError, EngineError
from tenon_engine.evaluation.load import figures, subject
from tenon_engine.evaluation.load.client import Place
from tenon_engine.evaluation.load.figures import Figures
from tenon_engine.evaluation.load.kill import measure_kill
from tenon_engine.evaluation.load.mixed import measure_mixed
from tenon_engine.evaluation.load.overhead import measure_overhead
from tenon_engine.evaluation.load.subject import SCRIPTED, Model, Script, Subject
from tenon_engine.evaluation.load.throughput import measure_throughput
from tenon_engine.evaluation.load.typist import WORDS_MAX
from tenon_engine.models.registry import EMBEDDED
from tenon_engine.server.listening import read_token


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        with subject.private_runtime() as folder:
            report = _measure(arguments, folder)
    except EngineError as error:
        print(f"tenon: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except httpx.HTTPError as error:
        print(f"tenon: the engine does not answer any more ({type(error).__name__})", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print(json.dumps(report) if arguments.json else "\n".join(figures.table(report)))
    return 0


def _measure(arguments: argparse.Namespace, folder: Path) -> Figures:
    """The parts that were asked for, one after the other."""
    if arguments.clients >= WORDS_MAX:
        raise BadRequestError(f"--clients must be less than {WORDS_MAX}")
    remote = _remote(arguments)
    report: Figures = {
        "machine": figures.machine(),
        "model": arguments.model if remote is None else remote.url,
        "load_average_before": figures.load_average(),
    }
    if arguments.overhead and remote is None:
        report["overhead"] = asyncio.run(measure_overhead(folder, arguments.overhead))
    if arguments.seconds:
        engine = _subject(arguments.model, remote, folder / "mixed.json")
        report["mixed"] = asyncio.run(measure_mixed(engine, arguments.clients, arguments.seconds))
    if arguments.keys:
        engine = _subject(arguments.model, remote, folder / "throughput.json")
        report["throughput"] = asyncio.run(measure_throughput(engine, arguments.keys))
    if arguments.kill:
        report["kill"] = asyncio.run(measure_kill(_killable(arguments.model, folder), arguments.clients))
    return report | {"load_average_after": figures.load_average(), "missed": figures.missed(report)}


def _remote(arguments: argparse.Namespace) -> Place | None:
    """The engine that was named; None when one is to be started."""
    if arguments.url is None and arguments.socket is None:
        if arguments.token_file:
            raise BadRequestError("--token-file goes with --url or --socket")
        return None
    if arguments.kill:
        raise BadRequestError("--kill is for an engine that is started here")
    token = read_token(arguments.token_file) if arguments.token_file else None
    return Place(arguments.url or "http://localhost", arguments.socket, token)


def _subject(model: str, remote: Place | None, script: Path) -> Subject:
    if remote is not None:
        return Model(remote)
    return Script(script) if model == SCRIPTED else Model(Place.of(subject.start(model)))


def _killable(model: str, folder: Path) -> str:
    if model != SCRIPTED:
        return model
    entry: dict[str, object] = {"raw": "answer", "delay_ms": subject.SCRIPT_DELAY_MS}
    return subject.write_script(folder / "kill.json", [entry])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tenon_engine.evaluation.load",
        description="Put an engine that answers HTTP under load. Let nothing else run.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of the table")
    parser.add_argument(
        "--model",
        choices=(EMBEDDED, SCRIPTED),
        default=EMBEDDED,
        help=f"what the engine that is started here runs (default: {EMBEDDED})",
    )
    parser.add_argument("--url", metavar="URL", help="load this engine instead, which may be a Ray cluster")
    parser.add_argument("--socket", metavar="PATH", help="the same at a unix socket")
    parser.add_argument("--token-file", metavar="F", type=Path, help="the token that it wants")
    parser.add_argument("--kill", action="store_true", help="also kill the engine under load")
    for name, kind, default, purpose in (
        ("--clients", options.count, 64, "clients of the mixed load"),
        ("--seconds", options.index, 60, "how long the mixed load lasts"),
        ("--keys", options.index, 24, "keys that each of one and of eight clients types for the throughput"),
        ("--overhead", options.index, 300, "requests for the overhead of HTTP"),
    ):
        text = f"{purpose} (default: {default}{'' if kind is options.count else '; 0: not measured'})"
        parser.add_argument(name, type=kind, default=default, metavar="N", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
