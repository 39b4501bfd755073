"""What tests with real editors share: a scripted model, a `tenon` that uses it, a home and engines of their own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenon_engine import base_weights, runtime
from tenon_engine import config as engine_config

SOURCE_FOLDERS = tuple(Path(__file__).parents[2] / name for name in ("engine", "lsp"))
SHOTS = Path(__file__).parent / "shots"


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder with a short path; what runs in it at the end is ended."""
    with tempfile.TemporaryDirectory(prefix="tenon-") as path:
        monkeypatch.setenv(runtime.FOLDER_VARIABLE, path)
        yield Path(path)
        while left := runtime.running():
            for address in left:
                with contextlib.suppress(runtime.DaemonError):
                    runtime.stop(address)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """A scripted model's name, from what it will say: one text, or several in turn; more keys hold for each."""
    numbers = itertools.count(1)

    def make(raw: str | list[str], **more: Any) -> str:
        path = tmp_path / f"script{next(numbers)}.json"
        texts = [raw] if isinstance(raw, str) else raw
        path.write_text(json.dumps([{"raw": text, **more} for text in texts]), encoding="utf-8")
        return f"{runtime.SCRIPTED_PREFIX}{path}"

    return make


@pytest.fixture
def tenon(tmp_path: Path) -> Callable[..., Path]:
    """A command `tenon` of this checkout, whose `tenon lsp` has the given model; None: the one that a user gets."""

    def make(model: str | None = None) -> Path:
        path = tmp_path / "bin" / "tenon"
        path.parent.mkdir(exist_ok=True)
        sources = shlex.quote(os.pathsep.join(map(str, SOURCE_FOLDERS)))
        more = f" --model {shlex.quote(model)}" if model else ""
        start = f'exec {shlex.quote(sys.executable)} -m tenon_engine "$@"{more}'
        path.write_text(f"#!/bin/sh\nexport PYTHONPATH={sources}\n{start}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def environment(tmp_path: Path, runtime_folder: Path) -> dict[str, str]:
    """For an editor: an empty home, our `tenon` first in the path, the base weights where they are."""
    home = tmp_path / "home"
    home.mkdir()
    config, _ = engine_config.load(os.environ, {})
    own = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return own | {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]),
        "TENON_HOME": str(base_weights.folder_of(config.home).parents[1]),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def shots() -> Path:
    """A folder for pictures of the screen, to be looked at."""
    SHOTS.mkdir(exist_ok=True)
    return SHOTS
