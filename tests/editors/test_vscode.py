"""The extension in a real VS Code, in a browser: what a user types, sees and has in the file at the end.

`vscode/drive.mjs` opens a window and does what a scenario of `vscode/scenarios.mjs` says; here is what must have come
of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.editors.installed import vscode

HERE = Path(__file__).parent / "vscode"
EXTENSION = Path(__file__).parents[2] / "editors" / "vscode"
PATIENCE_S = 280
NOBODY_LISTENS = "http://127.0.0.1:9/simple"

pytestmark = [pytest.mark.editors, pytest.mark.timeout(300)]

Json = dict[str, Any]
Tenon = Callable[..., Path]
Script = Callable[..., str]


@pytest.fixture(scope="module")
def editor() -> Path:
    return vscode()


@pytest.fixture(scope="module")
def extensions(editor: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of extensions with ours, packaged and installed as a user would."""
    if not (EXTENSION / "node_modules").exists():
        pytest.skip("the packages of editors/vscode are not installed: make test-editors")
    folder = tmp_path_factory.mktemp("vscode")
    package = folder / "tenon.vsix"
    run(["npm", "run", "--silent", "package", "--", "--out", str(package)], EXTENSION, os.environ)
    entry = editor / "node_modules/code-server/out/node/entry.js"
    places = ["--user-data-dir", str(folder / "profile"), "--extensions-dir", str(folder / "extensions")]
    run(
        ["node", str(entry), *places, "--install-extension", str(package)],
        folder,
        os.environ | {"HOME": str(folder)},
    )
    return folder / "extensions"


@dataclasses.dataclass(frozen=True, slots=True)
class Driver:
    """Opens windows, each with a profile of its own."""

    editor: Path
    extensions: Path
    work: Path
    shots: Path
    environment: Mapping[str, str]

    def run(self, scenario: str, files: Mapping[str, str], **plan: Any) -> Json:
        """What was seen in a scenario; nothing may have gone wrong in it, and nothing be on the console."""
        form = {
            "editor": str(self.editor),
            "extensions": str(self.extensions),
            "work": str(self.work),
            "shots": str(self.shots),
            "scenario": scenario,
            "files": files,
            "open": next(iter(files)),
            "settings": {"tenon.debounceMs": 0, "tenon.prefetch": False},
        }
        self.work.mkdir()
        path = self.work / "plan.json"
        path.write_text(json.dumps(form | plan), encoding="utf-8")
        result: Json = json.loads(run(["node", str(HERE / "drive.mjs"), str(path)], HERE, self.environment))
        assert "failure" not in result, json.dumps(result, indent=1)[-5000:]
        assert result["complaints"] == []
        return dict(result["seen"])


@pytest.fixture
def driver(
    editor: Path, extensions: Path, tmp_path: Path, shots: Path, environment: dict[str, str]
) -> Iterator[Driver]:
    yield Driver(editor, extensions, tmp_path / "vscode", shots, environment)


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


TYPED = "# \U0001f680 na\u00efve\n"
HELLO = "def hello(name):"
PRINT = "\n    print(name, 1)"
IF = "\n    if name:\n"
CELLS = {
    "cells": [
        {"cell_type": "code", "source": ["x = 1\n"], "metadata": {}, "outputs": [], "execution_count": None}
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def test_what_is_typed_is_continued_and_taken_whole_in_words_and_in_lines(
    driver: Driver, tenon: Tenon, script: Script
) -> None:
    model = script("")
    tenon(model)
    files = {"main.py": TYPED, "cells.ipynb": json.dumps(CELLS)}
    seen = driver.run("typing", files, input={"script": model.partition(":")[2]})
    report(seen, "firstGhostMs", "activation")
    assert seen["whole"]["ghost"] == "llo(name):"
    assert seen["accepted"] == TYPED + HELLO
    assert f"Ready: {model}. The last suggestion took" in seen["status"]["label"]
    assert seen["words"] == ["print(name, 1)", "(name, 1)", "name, 1)"]
    assert seen["callsForTheRest"] == 0
    assert seen["inWords"] == TYPED + HELLO + PRINT
    assert seen["lines"] == ["if name:\n        return 1\n    return 2", "        return 1\n    return 2"]
    assert seen["oneLine"] == TYPED + HELLO + PRINT + IF
    assert seen["allLines"] == TYPED + HELLO + PRINT + IF + "        return 1\n    return 2"
    assert seen["cycled"] == ["first()", "second()", "third()", "first()"]
    assert seen["oneOfThem"].endswith("\n    first()")
    assert (seen["ghostWhileOff"], seen["ghostByHand"]) == (None, "by_hand()")
    assert seen["untitled"] == "in a file that has no name"
    assert seen["notebook"] == "+ 1"
    assert seen["messages"] == []


MEAN = """\
# The mean.
def mean(numbers):
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)

double = ___
"""
SHORTER = """\
# The mean.
def mean(numbers):
    return sum(numbers) / len(numbers)

double = ___
"""


def test_a_selection_is_rewritten_as_asked_and_one_undo_brings_it_back(
    driver: Driver, tenon: Tenon, script: Script
) -> None:
    model = script("")
    tenon(model)
    seen = driver.run("actions", {"main.py": MEAN}, input={"script": model.partition(":")[2]})
    assert seen["rewritten"] == SHORTER
    assert seen["instruction"]
    assert seen["undone"] == MEAN
    assert seen["filled"] == MEAN.replace("___", "numbers * 2")
    assert seen["cancelled"] == MEAN
    assert "return total" in seen["trace"]
    assert seen["unsaved"] == 0  # a trace inserts nothing
    assert len(seen["menu"]) == 8
    assert seen["messages"] == ["Tenon: select the text first."]


def test_an_engine_and_a_server_that_are_killed_come_back(
    driver: Driver, tenon: Tenon, script: Script
) -> None:
    model = script("")
    tenon(model)
    seen = driver.run("life", {"main.py": ""}, input={"script": model.partition(":")[2]})
    assert [seen[name] for name in ("before", "afterEngine", "afterServer")] == ["one", "two", "three"]
    assert seen["saved"] == "a = one\nb = two\nc = three"
    assert seen["messagesOfEngine"] == [
        "Tenon: the engine ended unexpectedly; the next request starts it again"
    ]
    assert seen["messagesOfServer"] == []


def test_what_is_wrong_with_the_program_is_said_once_and_another_one_can_be_chosen(
    driver: Driver, environment: dict[str, str], tenon: Tenon, script: Script, tmp_path: Path
) -> None:
    environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_INDEX_URL": NOBODY_LISTENS}
    silent = program(tmp_path / "silent", "exit 3")
    crashing = program(tmp_path / "crashing", '[ "$1" = --version ] && echo tenon 0.1.0 || exit 4')
    pids = tmp_path / "pids"
    wait = f"echo $$ >> '{pids}'; exec sleep 300"
    hanging = program(tmp_path / "hanging", f'[ "$1" = --version ] && exec echo tenon 0.1.0; {wait}')
    good = str(tenon(script("")).rename(tmp_path / "good"))
    programs = {"silent": silent, "crashing": crashing, "hanging": hanging, "good": good}
    seen = driver.run("trouble", {"main.py": ""}, input={**programs, "pids": str(pids)})
    (missing,) = seen["missing"]
    assert missing.startswith("Tenon: There is no tenon on this machine yet: have it set up")
    assert seen["again"] == [missing]  # it is still there, once
    (offline,) = seen["offline"]
    assert "cannot be reached: connect to the network and try again, or install tenon-ls yourself" in offline
    (does_not_start,) = seen["silent"]
    assert does_not_start.startswith(f"Tenon: {silent} does not start (exit code 3): install")
    (ends,) = seen["crashing"]
    assert ends.startswith(f"Tenon: {crashing} ends again and again (without a word): read the log, then")
    assert seen["status"]["label"].endswith("Click for the log.")
    assert len(set(seen["hanging"])) == 2  # a restart took the place of one that never answered
    assert seen["messagesOfGood"] == []
    assert seen["setUpBesides"] == [offline]


def test_the_settings_of_a_workspace_that_is_not_trusted_start_no_program(
    driver: Driver, tenon: Tenon, script: Script, tmp_path: Path
) -> None:
    tenon(script(""))
    was_here = tmp_path / "was here"
    other = program(tmp_path / "other", f"touch '{was_here}'; exit 1")
    settings = {"tenon.path": other, "tenon.disabled.languages": ["python"]}
    files = {"main.py": "", ".vscode/settings.json": json.dumps(settings)}
    user = {"security.workspace.trust.startupPrompt": "never"}
    seen = driver.run("restricted", files, trusted=False, settings=user)
    assert seen["banner"] == 1
    assert "off for this language" not in seen["status"]["label"]
    assert seen["messages"] == []
    assert not was_here.exists()


BEFORE = """\
def total(prices):
    \"\"\"The sum of all prices.\"\"\"
    result = 0
    for price in prices:
        result += price
    """
AFTER = """

print(total([1, 2, 3]))
"""


@pytest.mark.weights
def test_the_embedded_model_suggests_and_rewrites(driver: Driver, tenon: Tenon) -> None:
    tenon()
    seen = driver.run("embedded", {"main.py": BEFORE + AFTER}, settings={"tenon.deadlineMs": 60_000})
    report(seen, "whole", "firstGhostMs", "status", "preview", "rewritten")
    accepted = BEFORE + "return " + seen["whole"]["ghost"] + AFTER
    assert seen["accepted"] == accepted
    assert "Ready: tenon-0.5b on cpu. The last suggestion took" in seen["status"]["label"]
    assert "·" in seen["preview"]
    head, _, tail = accepted.partition(BEFORE[BEFORE.index("result") : -5])
    assert seen["rewritten"].startswith(head)
    assert seen["rewritten"].endswith(tail)
    assert (seen["rewritten"] != accepted) == (seen["messages"] == [])
    assert "return" in seen["trace"]


def report(seen: Json, *names: str) -> None:
    """What is measured rather than tested, for who runs pytest with -s or reads why it failed."""
    print(json.dumps({name: seen[name] for name in names}, ensure_ascii=False))


def program(path: Path, line: str) -> str:
    """A program of one line of shell."""
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)
