"""`tenon lsp`: the language server on stdio, or on a loopback port."""

from __future__ import annotations

import argparse
import gc
import logging
import sys

_LOOPBACK = "127.0.0.1"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lsp`."""
    parser = subparsers.add_parser(
        "lsp",
        help="the language server, as an editor starts it",
        description="Speaks the Language Server Protocol on stdin and stdout, or on a port of this machine.",
    )
    parser.add_argument("--stdio", action="store_true", help="on stdin and stdout (the default)")
    parser.add_argument("--tcp", type=int, metavar="PORT", help="on a port of this machine, for one client")
    parser.add_argument("--model", metavar="M", help="tenon-0.5b (default) or scripted:FILE")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    level: str = arguments.log_level
    if level != "debug":
        # It logs whole messages, which are the user's text.
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    gc.disable()  # thousands of protocol classes are made on import, none of them ever garbage
    from tenon_lsp.features import build

    server = build(model=arguments.model, log_level=level)
    gc.enable()
    gc.freeze()
    if arguments.tcp is not None:
        server.start_tcp(_LOOPBACK, arguments.tcp)
    else:
        # A stray print must not end up between messages.
        stdout, sys.stdout = sys.stdout, sys.stderr
        server.start_io(sys.stdin.buffer, stdout.buffer)
    return 0 if server.protocol.has_shut_down else 1
