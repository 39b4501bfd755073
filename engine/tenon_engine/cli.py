"""The command `tenon`: parses arguments, sets up logging, turns errors into one line and an exit code.

Knows nothing of what a command does; importing it, and `tenon --help`, import no torch.
Exit codes: 0 done, 1 something is wrong, 2 bad usage or input, 3 nothing to suggest, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tenon_engine import __version__
from tenon_engine.errors import EngineError

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141

COMMANDS = ("fill", "model", "eval", "bench", "doctor")

_LOGGER = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (argparse itself exits for --help, --version and bad usage)."""
    _write_exact_bytes()
    try:
        arguments = _build_parser().parse_args(argv)
        logging.basicConfig(
            level=arguments.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except EngineError as error:
        return _complain(str(error), EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_unwritable_output()
        return EXIT_READER_GONE
    except OSError as error:
        _drop_unwritable_output()
        return _complain(f"{error.strerror or error}", EXIT_BAD_INPUT)
    except Exception as error:  # the outermost edge: a user never sees a traceback unasked
        _LOGGER.debug("internal error", exc_info=True)
        hint = "run with `tenon --log-level debug` for details"
        return _complain(f"internal error: {type(error).__name__}: {error} ({hint})", EXIT_FAILED)
    return code


class _Parser(argparse.ArgumentParser):
    """argparse, but bad usage is one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong on one line and leave with exit code 2."""
        self.exit(EXIT_BAD_INPUT, f"tenon: {_one_line(message)} (see `{self.prog} --help`)\n")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tenon",
        description="Fills a hole in source code so that it fits both sides, with a text-diffusion model.",
    )
    parser.add_argument("--version", action="version", version=f"tenon {__version__}")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="what is logged on stderr (default: %(default)s)",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"tenon_engine.commands.{name}").add_parser(subparsers)
    return parser


def _write_exact_bytes() -> None:
    """Files and pipes get UTF-8 and the line ends of the text itself, on every system."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream.isatty():
            stream.reconfigure(errors="backslashreplace")
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _drop_unwritable_output() -> None:
    """Python flushes stdout once more when it ends, which must not fail again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int) -> int:
    print(f"tenon: {_one_line(message)}", file=sys.stderr)
    return code


def _one_line(message: str) -> str:
    return " ".join(message.split())


if __name__ == "__main__":
    sys.exit(main())
