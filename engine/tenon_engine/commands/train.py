"""`tenon train`: makes the embedded model's adapter, from the packages it learns from to the file that is shipped.

Owns flags, progress and what is printed; how it is done is the business of `tenon_engine.training`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from tenon_engine.commands import options, output, train_run
from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError
from tenon_engine.progress import Progress

if TYPE_CHECKING:
    from tenon_engine.training.corpus import Manifest
    from tenon_engine.training.packages import Missing

_STAGES = {
    "fetch": "fetching packages",
    "read": "reading and filtering",
    "join": "leaving out duplicates",
    "verify": "checking",
    "compare": "filling holes, before and after",
}

Subparsers = argparse._SubParsersAction


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("train", help="make the embedded model better: its texts, its training")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_fetch(actions)
    _add_corpus(actions)
    train_run.add_run(actions)
    train_run.add_pack(actions)


def _add_fetch(actions: Subparsers[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "fetch",
        help="get the packages that the model is trained on, with pip and npm",
        description="Download packages under permissive licences, listed by name, with pip and npm. "
        "Nothing is installed or run. Safe to repeat: what is there is kept.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these of the list")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where to (default: the user's cache)")
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="the packages that are never trained on instead, unpacked for `tenon eval holes`",
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.set_defaults(run=_run_fetch)


def _add_corpus(actions: Subparsers[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "corpus",
        help="make a corpus of packages: filtered, without duplicates, with a manifest",
        description="Read directories and archives (wheel, zip, tar.gz, tgz), leave out what is generated, copied, "
        "data, a duplicate or not under a permissive licence, and write the rest into one folder. "
        "What an interrupted run has read is not read again.",
    )
    parser.add_argument(
        "sources",
        nargs="*",
        type=Path,
        metavar="SOURCE",
        help="(default: what `tenon train fetch` has fetched)",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="the corpus, replaced if there"
    )
    parser.add_argument(
        "--licence",
        default="",
        metavar="NAME",
        help="of sources that state none, such as MIT, or own for your own",
    )
    parser.add_argument(
        "--workers", type=options.count, default=os.cpu_count() or 1, metavar="N", help="processes that read"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.set_defaults(run=_run_corpus)


def _run_fetch(arguments: argparse.Namespace) -> int:
    from tenon_engine.training import lists, packages

    config = options.read_config(arguments)
    if config.offline:
        raise BadRequestError(
            "TENON_OFFLINE forbids fetching packages: unset it, or give `tenon train corpus` sources"
        )
    listed = lists.held_out() if arguments.held_out else lists.to_train_on()
    if unknown := {*arguments.names} - {package.name for package in listed}:
        raise BadRequestError(f"not in the list of packages: {', '.join(sorted(unknown))}")
    wanted = [package for package in listed if not arguments.names or package.name in arguments.names]
    folder = arguments.into or _fetched_folder(config, held_out=arguments.held_out)
    with progress_shown() as progress:
        missing = packages.fetch(wanted, folder, progress)
    if arguments.held_out:
        folder = _unpack_all(folder)
    _say_missing(missing)
    row = {"wanted": len(wanted), "missing": [str(each.package) for each in missing], "folder": str(folder)}
    if arguments.json:
        print(json.dumps(row))
    else:
        print(f"{len(wanted) - len(missing)} of {len(wanted)} packages are in {folder}")
    return 1 if missing else 0


def _run_corpus(arguments: argparse.Namespace) -> int:
    from tenon_engine.training import corpus, sources

    paths = arguments.sources or [_fetched_folder(options.read_config(arguments), held_out=False)]
    if not arguments.sources and not paths[0].is_dir():
        raise BadRequestError(
            "there is nothing to read: run `tenon train fetch`, or name directories and archives"
        )
    for path in paths:
        if path.is_dir() and arguments.out.resolve().is_relative_to(path.resolve()):
            raise BadRequestError(
                f"{arguments.out} lies within {path}, which is read: name another folder for --out"
            )
    found = sources.find(paths, licence=arguments.licence)
    with progress_shown() as progress:
        manifest = corpus.build(found, arguments.out, progress, workers=arguments.workers)
    for report in manifest.sources:
        if report.reason:
            print(
                f"tenon: {report.file} was left out: {_why(report.reason, report.licence)}", file=sys.stderr
            )
    _print_manifest(manifest, arguments.out, as_json=arguments.json)
    if not manifest.texts:
        raise BadRequestError(f"nothing of these sources was kept: {arguments.out} says why")
    return 0


def _why(reason: str, licence: str) -> str:
    """Why a whole source is not in the corpus, for its user."""
    if reason == "held_out":
        return "it is kept for evaluation"
    if reason == "licence":
        return (
            f"its licence ({licence or 'none that is known'}) is not a permissive one (--licence states one)"
        )
    return reason


def _print_manifest(manifest: Manifest, folder: Path, *, as_json: bool) -> None:
    if as_json:
        counts = {
            name: getattr(manifest, name) for name in ("texts", "bytes", "sha256", "languages", "left_out")
        }
        print(json.dumps(counts | {"folder": str(folder)}))
        return
    from rich.table import Table

    table = Table("language", "MB")
    for language, size_bytes in sorted(manifest.languages.items(), key=lambda each: -each[1]):
        table.add_row(language, f"{size_bytes / 1e6:.1f}")
    console = output.open_console()
    console.print(table)
    left_out = ", ".join(f"{reason} {count:,}" for reason, count in manifest.left_out.items())
    console.print(
        f"{manifest.texts:,} texts, {manifest.bytes / 1e6:.1f} MB; left out: {left_out}", soft_wrap=True
    )


def _unpack_all(folder: Path) -> Path:
    """The held-out packages as files, each in a folder of its own."""
    from tenon_engine.training import packages

    unpacked = folder / "files"
    for package, archive in packages.fetched(folder).items():
        packages.unpack(archive, unpacked / package.name)
    return unpacked


def _say_missing(missing: Sequence[Missing]) -> None:
    """One line per reason."""
    reasons: dict[str, list[str]] = {}
    for each in missing:
        reasons.setdefault(each.reason, []).append(each.package.name)
    for reason, names in reasons.items():
        print(f"tenon: {len(names)} not fetched ({reason}): {', '.join(names)}", file=sys.stderr)
    if missing:
        print("tenon: run the same command again, what is there is kept", file=sys.stderr)


def _fetched_folder(config: EngineConfig, *, held_out: bool) -> Path:
    home = config.home or Path(platformdirs.user_cache_dir("tenon"))
    return home / "training" / ("held-out" if held_out else "packages")


@contextlib.contextmanager
def progress_shown() -> Iterator[Progress]:
    """A bar per stage with the time left where stderr is a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _progress_in_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(_STAGES[stage])
            bars.update(tasks[stage], completed=done, total=total or None)

        yield show


def _progress_in_lines() -> Progress:
    begun: dict[str, float] = {}
    said_at = time.monotonic()

    def show(stage: str, done: int, total: int) -> None:
        nonlocal said_at
        now = time.monotonic()
        began = begun.setdefault(stage, now)
        if done and done < total and now - said_at > train_run.LINE_EVERY_S:
            said_at, left_s = now, (now - began) * (total - done) / done
            text = f"tenon: {_STAGES[stage]}: {done / total:.0%}, {left_s / 60:.0f} min left"
            print(text, file=sys.stderr, flush=True)

    return show
