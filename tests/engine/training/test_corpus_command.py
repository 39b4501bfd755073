"""`tenon train fetch` and `tenon train corpus`, run as the command line runs them, with the real pip and npm."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import pytest
from tests.engine.training.corpus_packages import make_wheel, python_text

from tenon_engine.commands import train
from tenon_engine.errors import BadRequestError
from tenon_engine.progress import silent
from tenon_engine.training import lists, packages
from tenon_engine.training.lists import NPM, PYTHON, Package


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes wheels from, by the user's own settings, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TENON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TENON_CONFIG", str(tmp_path / "no-config.toml"))
    monkeypatch.delenv("TENON_OFFLINE", raising=False)
    return folder


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    train.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["train", *words])
    code: int = arguments.run(arguments)
    return code


def listed(monkeypatch: pytest.MonkeyPatch, *wanted: Package) -> None:
    monkeypatch.setattr(lists, "to_train_on", lambda: wanted)


def test_fetching_and_building_makes_a_corpus(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wheel(index, "one", {"one.py": python_text(1)})
    make_wheel(index, "two", {"two.py": python_text(2)}, licence="AGPL-3.0")
    listed(monkeypatch, Package(PYTHON, "one", "1.0"), Package(PYTHON, "two"))
    assert run("fetch") == 0
    assert run("corpus", "--out", str(tmp_path / "out"), "--workers", "1", "--json") == 0
    output = capsys.readouterr()
    row = json.loads(output.out.splitlines()[-1])
    assert (row["texts"], row["languages"]) == (1, {"python": len(python_text(1))})
    assert (
        "two-1.0-py3-none-any.whl was left out: its licence (AGPL-3.0) is not a permissive one" in output.err
    )


def test_fetching_again_fetches_what_is_missing(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(index, "one", {"one.py": python_text(1)})
    listed(monkeypatch, Package(PYTHON, "one"), Package(PYTHON, "late"))
    assert run("fetch", "--json") == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["missing"] == ["python late"]
    assert "1 not fetched (No matching distribution found for late" in output.err
    assert "run the same command again" in output.err
    wheel.unlink()
    make_wheel(index, "late", {"late.py": python_text(2)})
    assert run("fetch", "--json") == 0


def test_names_choose_from_the_list(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(index, "one", {"one.py": python_text(1)})
    listed(monkeypatch, Package(PYTHON, "one"), Package(PYTHON, "not-there"))
    assert run("fetch", "one") == 0
    with pytest.raises(BadRequestError, match="not in the list of packages: three"):
        run("fetch", "three")


def test_held_out_packages_are_unpacked_to_be_read(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(index, "kept", {"kept/a.py": python_text(1), "kept/b.min.js": "x"})
    monkeypatch.setattr(lists, "held_out", lambda: (Package(PYTHON, "kept"),))
    assert run("fetch", "--held-out", "--into", str(tmp_path / "held")) == 0
    files = [path for path in (tmp_path / "held" / "files").rglob("*") if path.is_file()]
    assert [path.relative_to(tmp_path / "held" / "files").as_posix() for path in files] == ["kept/kept/a.py"]
    assert files[0].read_text() == python_text(1)


def test_after_a_few_failures_in_a_row_the_rest_is_not_tried(index: Path, tmp_path: Path) -> None:
    wanted = [Package(PYTHON, f"absent-{number}") for number in range(5)]
    missing = packages.fetch(wanted, tmp_path / "into", silent)
    assert [each.package for each in missing] == wanted
    assert [each.reason.startswith("not tried") for each in missing] == [False, False, False, True, True]


def test_a_log_that_was_cut_costs_no_more_than_fetching_again(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "one", {"one.py": python_text(1)})
    packages.fetch([Package(PYTHON, "one")], tmp_path / "into", silent)
    log = tmp_path / "into" / "fetched.jsonl"
    log.write_text(log.read_text()[:20])
    assert packages.fetched(tmp_path / "into") == {}
    assert packages.fetch([Package(PYTHON, "one")], tmp_path / "into", silent) == []


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on this machine")
def test_npm_packs_without_running_scripts(tmp_path: Path) -> None:
    source = tmp_path / "thing"
    source.mkdir()
    scripts = {"prepack": "touch ran"}
    (source / "package.json").write_text(
        json.dumps({"name": "thing", "version": "2.0.0", "scripts": scripts})
    )
    wanted = Package(NPM, str(source))  # npm takes a folder for a name
    assert packages.fetch([wanted], tmp_path / "into", silent) == []
    assert packages.fetched(tmp_path / "into") == {wanted: tmp_path / "into" / "thing-2.0.0.tgz"}
    assert not (source / "ran").exists()


def test_without_npm_its_packages_are_skipped_with_a_sentence(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wheel(index, "one", {"one.py": python_text(1)})
    listed(monkeypatch, Package(NPM, "left"), Package(NPM, "right"), Package(PYTHON, "one"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("fetch") == 1
    output = capsys.readouterr()
    assert "2 not fetched (npm is not on this machine): left, right" in output.err
    assert output.out.startswith("1 of 3 packages are in ")


def test_nothing_is_fetched_offline(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENON_OFFLINE", "1")
    with pytest.raises(BadRequestError, match="TENON_OFFLINE forbids"):
        run("fetch")


def test_a_corpus_of_nothing_says_what_to_do(index: Path, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="run `tenon train fetch`"):
        run("corpus", "--out", str(tmp_path / "out"))


def test_a_corpus_is_not_written_into_what_is_read(index: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with pytest.raises(BadRequestError, match="lies within"):
        run("corpus", "--out", str(tmp_path / "project" / "out"), str(tmp_path / "project"))
