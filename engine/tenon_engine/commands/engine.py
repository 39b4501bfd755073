"""`tenon engine run|start|stop|status`: engines that answer HTTP, in the foreground or for all of a user's editors.

Owns what is printed; how one lives is `server.daemon`'s, where they are found `runtime`'s.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tenon_engine.commands import options
from tenon_engine.errors import BadRequestError

if TYPE_CHECKING:
    from tenon_engine.runtime import Address

IDLE_MINUTES = 30
FIRST_WORDS_S = 2.0  # for an engine that has just been started to say that it cannot load its model


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("engine", help="an engine that answers HTTP, shared by all your editors")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_run(actions)
    start = actions.add_parser(
        "start",
        help="start your engine in the background, if it is not running",
        description="Start the engine that your editors share. It stays until `tenon engine stop`.",
    )
    options.add_model_option(start)
    _add_idle_option(start)
    start.set_defaults(run=run_start)
    stop = actions.add_parser("stop", help="end your background engines")
    stop.add_argument("--model", metavar="M", help="only the one with this model")
    stop.set_defaults(run=run_stop)
    status = actions.add_parser("status", help="which background engines of yours are running")
    status.add_argument("--json", action="store_true", help="as a JSON list")
    status.set_defaults(run=run_status)


def run_run(arguments: argparse.Namespace) -> int:
    """Serve in this process until it is told to end."""
    config = options.read_config(arguments)
    if arguments.linger_seconds is not None and arguments.listen:
        raise BadRequestError(
            "--linger-seconds is for an engine that editors find: it does not go with --listen"
        )
    if not arguments.listen and (arguments.token_file or arguments.cert or arguments.key):
        raise BadRequestError("--token-file, --cert and --key go with --listen HOST:PORT")
    if bool(arguments.cert) != bool(arguments.key):
        raise BadRequestError("--cert and --key go together")
    from tenon_engine.server import daemon, listening  # the HTTP stack, half a second

    service = daemon.Service(config=config, idle_unload_s=60.0 * arguments.idle_minutes or None)
    if not arguments.listen:
        daemon.serve_user(service, linger_s=arguments.linger_seconds)
        return 0
    daemon.serve_at(
        service,
        listening.parse_place(arguments.listen),
        token=listening.read_token(arguments.token_file) if arguments.token_file else None,
        certificate=listening.Certificate(arguments.cert, arguments.key) if arguments.cert else None,
    )
    return 0


def run_start(arguments: argparse.Namespace) -> int:
    """Start it, and say where it answers."""
    from tenon_engine import runtime

    model = options.read_config(arguments).model
    address = runtime.start(
        model, linger_s=None, idle_minutes=arguments.idle_minutes, log_level=arguments.log_level
    )
    _check(address)
    print(f"{address.model}: {address} ({_life(address)})")
    return 0


def run_stop(arguments: argparse.Namespace) -> int:
    """End all of them, or those with one model."""
    from tenon_engine import runtime

    wanted = arguments.model and runtime.full_name(arguments.model)
    addresses = [address for address in runtime.running() if wanted in (None, address.model)]
    for address in addresses:
        runtime.stop(address)
        print(f"{address.model}: stopped (process {address.pid})")
    if not addresses:
        print("no engine is running")
    return 0


def run_status(arguments: argparse.Namespace) -> int:
    """One line, or one JSON object, per engine."""
    from tenon_engine import runtime

    addresses = runtime.running()
    if arguments.json:
        print(json.dumps([_report(address) for address in addresses]))
        return 0
    for address in addresses:
        print(f"{address.model}: {_state(address)}, {address} ({_life(address)})")
    if not addresses:
        print("no engine is running")
    return 0


def _add_run(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = actions.add_parser(
        "run",
        help="serve in the foreground, until ctrl-c",
        description="Without --listen this is the engine that your editors find and share; with it, one more that "
        "serves whoever reaches that address.",
    )
    options.add_model_option(run)
    run.add_argument("--listen", metavar="PLACE", help="HOST:PORT (needs --token-file) or unix:PATH")
    run.add_argument(
        "--token-file", metavar="F", type=Path, help="requests must carry the token in this file"
    )
    run.add_argument("--cert", metavar="F", type=Path, help="certificate chain (PEM): speak TLS")
    run.add_argument("--key", metavar="F", type=Path, help="private key of the certificate (PEM)")
    _add_idle_option(run)
    run.add_argument(
        "--linger-seconds",
        metavar="N",
        type=_seconds,
        help="end so long after the last editor has gone (default: stay)",
    )
    run.set_defaults(run=run_run)


def _add_idle_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--idle-minutes",
        metavar="N",
        type=options.index,
        default=IDLE_MINUTES,
        help="unload the weights when unused for so long; 0: never (default: %(default)s)",
    )


def _seconds(text: str) -> float:
    """argparse type: a number of seconds, from 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}")
    return value


def _report(address: Address) -> dict[str, object]:
    """What is told of an engine; its token is not."""
    return {
        "model": address.model,
        "version": address.version,
        "state": _state(address),
        "address": str(address),
        "process": address.pid,
        "started": _started(address),
        "linger_s": address.linger_s,
    }


def _state(address: Address) -> str:
    from tenon_engine import runtime

    health = runtime.health(address)
    return str(health["state"]) if health else "not answering"


def _check(address: Address) -> None:
    """End an engine that says at once that it cannot load its model, with its words; loading may take longer."""
    from tenon_engine import runtime

    end = time.monotonic() + FIRST_WORDS_S
    while time.monotonic() < end:
        said = runtime.health(address) or {}
        if said.get("state") == "failed":
            runtime.stop(address)
            raise runtime.DaemonError(str(said.get("failure")) or "the model cannot be loaded")
        if said.get("state") == "ready":
            return
        time.sleep(runtime.POLL_S)


def _life(address: Address) -> str:
    ends = "" if address.linger_s is None else f", ends {address.linger_s:g} s after its last editor"
    return f"process {address.pid}, version {address.version}, since {_started(address)}{ends}"


def _started(address: Address) -> str:
    moment = datetime.datetime.fromtimestamp(address.started, datetime.timezone.utc)
    return moment.isoformat(timespec="seconds")
