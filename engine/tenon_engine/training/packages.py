"""Fetches packages from their registries with pip and npm, so that the user's own settings of both hold.

Owns the folder of what was fetched and its log, by which an interrupted run goes on. Nothing fetched is installed,
imported or run: of Python packages wheels alone are asked for, of npm packages no script is run.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tenon_engine.progress import Progress
from tenon_engine.training import archives, parts
from tenon_engine.training.lists import NPM, PYTHON, Package

FAILURES_IN_A_ROW_AT_MOST = 3  # then nothing answers, and the rest is not tried
_LOG = "fetched.jsonl"
# One version of Python, whichever runs this: so the same wheels are had everywhere.
_PIP = (
    "--quiet",
    "--no-deps",
    "--only-binary=:all:",
    "--python-version=3.11",
    "--no-input",
    "--disable-pip-version-check",
)
_NPM = ("--silent", "--ignore-scripts")


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """A package that could not be had, and why."""

    package: Package
    reason: str


class _FailedError(Exception):
    """A package cannot be had now; the text says why."""


def fetch(packages: Sequence[Package], folder: Path, progress: Progress) -> list[Missing]:
    """Download into `folder` what is not there yet; returns what could not be had."""
    folder.mkdir(parents=True, exist_ok=True)
    there, missing, failures_in_a_row = fetched(folder), list[Missing](), 0
    for number, package in enumerate(packages):
        progress("fetch", number, len(packages))
        if package in there:
            continue
        command = _command(package)
        if command is None:
            tool = "pip" if package.registry == PYTHON else "npm"
            missing.append(Missing(package, f"{tool} is not on this machine"))
        elif failures_in_a_row == FAILURES_IN_A_ROW_AT_MOST:
            missing.append(Missing(package, "not tried: the packages before it failed in a row"))
        else:
            try:
                _log(folder, package, _download(command, folder))
                failures_in_a_row = 0
            except _FailedError as failure:
                missing.append(Missing(package, str(failure)))
                failures_in_a_row += 1
    progress("fetch", len(packages), len(packages))
    return missing


def fetched(folder: Path) -> dict[Package, Path]:
    """What earlier runs have put into the folder, as it was asked for, and is still there."""
    files: dict[Package, Path] = {}
    log = folder / _LOG
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        with contextlib.suppress(
            ValueError, TypeError, KeyError
        ):  # a line that was being written when all stopped
            row = json.loads(line)
            files[Package(*row["package"])] = folder / row["file"]
    return {package: file for package, file in files.items() if file.exists()}


def unpack(archive: Path, folder: Path) -> int:
    """Write the texts of an archive that the filters keep, as files to be read; returns how many."""
    count = 0
    for text in parts.kept(archive, collections.Counter()):
        place = folder / text.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.content)
        count += 1
    return count


def _command(package: Package) -> list[str] | None:
    """What downloads the package into the folder it is run in; None when the tool for it is not on this machine."""
    if package.registry == NPM:
        npm = shutil.which("npm")
        at = f"@{package.version}" if package.version else ""
        return [npm, "pack", *_NPM, f"{package.name}{at}"] if npm else None
    if importlib.util.find_spec("pip") is None:
        return None
    at = f"=={package.version}" if package.version else ""
    return [sys.executable, "-m", "pip", "download", *_PIP, f"{package.name}{at}"]


def _download(command: Sequence[str], folder: Path) -> Path:
    """The archive, moved to the folder when it is whole."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as place:
        # There: not in the user's workspace, where `python -m pip` would run a `pip.py` that lies there.
        done = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True)
        found = [file for file in Path(place).iterdir() if archives.is_archive(file)]
        if done.returncode or len(found) != 1:
            raise _FailedError(_complaint(done.stderr.decode(errors="replace")))
        return found[0].replace(folder / found[0].name)


def _complaint(messages: str) -> str:
    """The line that says most of what pip or npm wrote."""
    lines = re.findall(r"^(?:ERROR:|npm (?:ERR!|error)) +(?!code|A complete log)(.+)", messages, re.MULTILINE)
    return lines[-1] if lines else "no reason was given"


def _log(folder: Path, package: Package, file: Path) -> None:
    row = {"package": dataclasses.astuple(package), "file": file.name}
    with (folder / _LOG).open("a", encoding="utf-8") as log:
        print(json.dumps(row), file=log)
