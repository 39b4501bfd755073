"""`tenon lsp`: the language server on stdio, or on a loopback port."""

from __future__ import annotations

import argparse
import gc
import logging
import socket
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from tenon_lsp.server import TenonServer

_LOOPBACK = "127.0.0.1"
_FIRST_WORD = b"Content-"  # of every message; what a web page sends to a port begins otherwise


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lsp`."""
    parser = subparsers.add_parser(
        "lsp",
        help="the language server, as an editor starts it",
        description="Speaks the Language Server Protocol on stdin and stdout, or on a port of this machine.",
    )
    parser.add_argument("--stdio", action="store_true", help="on stdin and stdout (the default)")
    parser.add_argument(
        "--tcp", type=_port, metavar="PORT", help="on a port of this machine, for one client; 0: a free one"
    )
    parser.add_argument(
        "--model", metavar="M", help="tenon-0.5b (default), a hub id, a folder, or scripted:FILE"
    )
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
        _serve_one(server, arguments.tcp)
    else:
        # A stray print must not end up between messages.
        stdout, sys.stdout = sys.stdout, sys.stderr
        server.start_io(sys.stdin.buffer, stdout.buffer)
    return 0 if server.protocol.has_shut_down else 1


def _port(text: str) -> int:
    """argparse type: a port, or 0."""
    if not (text.isascii() and text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, not {text!r}")
    return int(text)


def _serve_one(server: TenonServer, port: int) -> None:
    """Serve the first client that speaks the protocol, and nobody else."""
    with socket.create_server((_LOOPBACK, port)) as listener:
        print(f"tenon: listening on {_LOOPBACK}:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        while True:
            connection, _ = listener.accept()
            if connection.recv(len(_FIRST_WORD), socket.MSG_PEEK | socket.MSG_WAITALL) == _FIRST_WORD:
                break
            connection.close()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.start_io(
            cast(BinaryIO, connection.makefile("rb")), cast(BinaryIO, connection.makefile("wb", buffering=0))
        )
