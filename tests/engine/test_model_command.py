"""`tenon model list|fetch|path` on a tiny model, run as the command line runs them."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenon_engine import base_weights
from tenon_engine.commands import model
from tenon_engine.errors import WeightsCorruptError, WeightsMissingError

if TYPE_CHECKING:
    from tests.engine.conftest import TinyBase


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TENON_OFFLINE", "1")
    monkeypatch.setenv("TENON_CONFIG", str(tmp_path / "no-config.toml"))
    return tmp_path / "home"


def run(base: TinyBase, *words: str) -> int:
    """Parse the words as `tenon` does, and run the command on the tiny model."""
    parser = argparse.ArgumentParser()
    model.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["model", *words])
    code: int = functools.partial(arguments.run, arguments, base.source)()
    return code


def test_list_says_that_nothing_is_there_and_what_to_do(
    home: Path, tiny_base: TinyBase, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny_base, "list") == 0
    line = capsys.readouterr().out
    assert line == f"tenon-0.5b  not fetched (`tenon model fetch`)  {base_weights.folder_of(home)}\n"
    assert not home.exists()


def test_fetch_from_a_file_makes_the_model_ready(
    home: Path, tiny_base: TinyBase, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny_base, "fetch", "--from", str(tiny_base.path)) == 0
    output = capsys.readouterr()
    assert output.out.startswith(f"tenon-0.5b is ready: {base_weights.folder_of(home)}")
    assert "converting" in output.err
    assert run(tiny_base, "list") == 0
    assert "tenon-0.5b  ready (" in capsys.readouterr().out


def test_fetch_again_checks_what_is_there(
    home: Path, tiny_base: TinyBase, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tiny_base, "fetch", "--from", str(tiny_base.path))
    capsys.readouterr()
    assert run(tiny_base, "fetch") == 0
    progress = capsys.readouterr().err
    assert "checking" in progress
    assert "converting" not in progress


def test_fetch_repairs_converted_weights_that_were_changed(home: Path, tiny_base: TinyBase) -> None:
    run(tiny_base, "fetch", "--from", str(tiny_base.path))
    weights = next(home.rglob("*.safetensors"))
    original = weights.read_bytes()
    weights.write_bytes(original[:-1] + b"\xff")
    assert run(tiny_base, "fetch") == 0
    assert weights.read_bytes() == original


def test_fetch_refuses_another_file(home: Path, tiny_base: TinyBase, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    with pytest.raises(WeightsCorruptError, match=r"other\.gguf is not the expected"):
        run(tiny_base, "fetch", "--from", str(other))


def test_fetch_offline_names_the_two_ways_out(home: Path, tiny_base: TinyBase) -> None:
    with pytest.raises(WeightsMissingError, match=r"`tenon model fetch` when online, or .* --from FILE`"):
        run(tiny_base, "fetch")


def test_path_prints_the_converted_file_and_its_source(
    home: Path, tiny_base: TinyBase, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tiny_base, "fetch", "--from", str(tiny_base.path))
    capsys.readouterr()
    assert run(tiny_base, "path") == 0
    lines = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.suffix for line in lines] == [".safetensors", ".gguf"]
    assert all(line.is_file() for line in lines)


def test_path_of_nothing_is_an_error_that_says_what_to_do(home: Path, tiny_base: TinyBase) -> None:
    with pytest.raises(WeightsMissingError, match="run `tenon model fetch`"):
        run(tiny_base, "path")


def test_list_knows_a_file_that_is_not_converted_yet(
    home: Path, tiny_base: TinyBase, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = base_weights.folder_of(home)
    folder.mkdir(parents=True)
    (folder / tiny_base.source.file_name).write_bytes(tiny_base.path.read_bytes())
    run(tiny_base, "list")
    assert "fetched, not converted yet" in capsys.readouterr().out
