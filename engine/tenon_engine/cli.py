"""The command `tenon`: parses arguments, sets up logging, turns errors into one line and an exit code.

Knows nothing of what a command does; importing it, and `tenon --help`, import no torch.
Exit codes: 0 done, 1 something is wrong, 2 bad usage or input, 3 nothing to suggest, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from tenon_engine import __version__, excerpt
from tenon_engine.errors import BadRequestError, EngineError

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141

COMMANDS = {  # by name alone: neither the engine nor the server is imported for the other's commands
    "lsp": "tenon_lsp.command",
    **{
        name: f"tenon_engine.commands.{name}"
        for name in ("fill", "engine", "model", "eval", "bench", "train", "finetune", "doctor")
    },
}

_LOGGER = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (argparse itself exits for --help and --version)."""
    try:
        _open_missing_streams()
        _write_exact_bytes()
        arguments = _build_parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
        logging.basicConfig(
            level=arguments.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except EngineError as error:
        return _complain(str(error), EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_unwritable(sys.stdout)
        return EXIT_READER_GONE
    except OSError as error:
        _drop_unwritable(sys.stdout)
        place = f"{error.filename}: " if error.filename else ""
        return _complain(f"{place}{error.strerror or error}", EXIT_BAD_INPUT)
    except Exception as error:  # the outermost edge: a user never sees a traceback unasked
        _LOGGER.debug("internal error", exc_info=True)
        hint = "run with `tenon --log-level debug` for details"
        return _complain(f"internal error: {type(error).__name__}: {error} ({hint})", EXIT_FAILED)
    return code


class _Parser(argparse.ArgumentParser):
    """argparse, but bad usage is one line."""

    def error(self, message: str) -> NoReturn:
        """Let `main` say what is wrong."""
        raise BadRequestError(f"{message} (see `{self.prog} --help`)")


def _build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that is asked for, or of all of them: an editor waits for `lsp` to start."""
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
    asked_for = [name for name in argv if name in COMMANDS][:1]
    for name in asked_for or COMMANDS:
        importlib.import_module(COMMANDS[name]).add_parser(subparsers)
    return parser


def _open_missing_streams() -> None:
    """Python has None for a stream that was closed before it began; print would then take another."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # open to the end


def _write_exact_bytes() -> None:
    """Files and pipes get UTF-8 and the line ends of the text itself, on every system."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream.isatty():
            stream.reconfigure(errors="backslashreplace")
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _drop_unwritable(stream: TextIO) -> None:
    """Python flushes streams once more when it ends, which must not fail again."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complain(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"tenon: {excerpt.one_line(message)}", file=sys.stderr)
    _drop_unwritable(sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
