"""`tenon model list|fetch|path`: the embedded model's base weights and checkpoints of the hub, as a user sees them.

Owns what is printed; what is where, and how it gets there, is `base_weights`'s and `models.hub`'s.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tenon_engine import base_weights
from tenon_engine.base_convert import Dtype
from tenon_engine.base_fetch import OFFICIAL, BaseSource
from tenon_engine.commands import options
from tenon_engine.commands.loading import progress_lines
from tenon_engine.errors import WeightsMissingError
from tenon_engine.models import registry


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("model", help="which models are on this machine")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("list", help="which models there are, and which are ready").set_defaults(run=run_list)
    fetch = actions.add_parser(
        "fetch",
        help="get the base weights and convert them for this machine, once",
        description="Get the base weights, check every byte, and convert them for this machine. "
        "Safe to repeat: what is there is kept, what was interrupted goes on.",
    )
    fetch.add_argument(
        "--from", dest="source_file", metavar="FILE", type=Path, help=f"your own copy of {OFFICIAL.file_name}"
    )
    fetch.set_defaults(run=run_fetch)
    path = actions.add_parser("path", help="where the files are, one a line")
    options.add_model_option(path)
    path.set_defaults(run=run_path)


def run_list(arguments: argparse.Namespace, source: BaseSource = OFFICIAL) -> int:
    """One line per model: name, state, folder. Of the hub's, those that are supported and in its cache."""
    from tenon_engine.models.hub.checkpoint import list_cached

    home = options.read_config(arguments).home
    ready = [
        f"{dtype.value}, {files.weights.stat().st_size / 1e9:.2f} GB"
        for dtype in Dtype
        if (files := base_weights.locate(home, dtype=dtype, source=source))
    ]
    if ready:
        state = f"ready ({'; '.join(ready)})"
    elif base_weights.locate_source(home, source=source):
        state = "fetched, not converted yet"
    else:
        state = "not fetched (`tenon model fetch`)"
    print(base_weights.MODEL_NAME, state, base_weights.folder_of(home), sep="  ")
    for name, folder, is_whole in list_cached():
        print(name, "ready" if is_whole else "not all there (loading it fetches the rest)", folder, sep="  ")
    return 0


def run_fetch(arguments: argparse.Namespace, source: BaseSource = OFFICIAL) -> int:
    """Make the model ready, with progress on stderr; afterwards every byte is known to be right."""
    from tenon_engine.models.embedded import best_dtype  # imports torch

    config = options.read_config(arguments)
    dtype = best_dtype()
    with progress_lines() as progress:
        base_weights.discard_changed(config.home, dtype=dtype, progress=progress, source=source)
        files = base_weights.ensure(
            config.home,
            offline=config.offline,
            dtype=dtype,
            source_file=arguments.source_file,
            progress=progress,
            source=source,
        )
    print(f"{base_weights.MODEL_NAME} is ready: {files.weights}")
    return 0


def run_path(arguments: argparse.Namespace, source: BaseSource = OFFICIAL) -> int:
    """The files that are there, one a line: converted weights, then the GGUF file; a checkpoint's folder."""
    config = options.read_config(arguments)
    if registry.is_of_the_hub(config.model):
        print(_folder_of(config.model))
        return 0
    home = config.home
    converted = (base_weights.locate(home, dtype=dtype, source=source) for dtype in Dtype)
    paths = [files.weights for files in converted if files]
    gguf = base_weights.locate_source(home, source=source)
    if gguf:
        paths.append(gguf)
    if not paths:
        raise WeightsMissingError(
            "the base weights are not on this machine: run `tenon model fetch`, "
            f"or `tenon model fetch --from FILE` with {source.file_name}"
        )
    print(*paths, sep="\n")
    return 0


def _folder_of(name: str) -> Path:
    from tenon_engine.models.hub.checkpoint import find_here

    if (folder := find_here(name)) is None:
        raise WeightsMissingError(
            f"{name} is not on this machine as a whole: it is fetched when it is loaded first"
        )
    return folder
