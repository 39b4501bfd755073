"""`tenon doctor`: what it tells, and an exit code that says whether a fill would work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenon_engine import cli
from tenon_engine.base_fetch import OFFICIAL


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENON_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TENON_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["doctor", "--json", *arguments])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_without_base_weights_it_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found = report(capsys)
    assert (code, found["ready"], found["model"]["state"]) == (1, False, "missing")
    assert found["problems"] == [
        f"the base weights are not in {tmp_path / 'models' / 'tenon-0.5b'}: run `tenon model fetch`"
    ]


def test_a_scripted_model_is_ready_when_its_file_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "model.json"
    assert report(capsys, "--model", f"scripted:{script}")[0] == 1
    script.write_text('{"raw": "x"}')
    code, found = report(capsys, "--model", f"scripted:{script}")
    assert (code, found["ready"], found["problems"]) == (0, True, [])


def test_an_unknown_model_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, "--model", "gpt-9")
    assert (code, found["model"]["state"]) == (1, "unusable")
    assert "there is no model 'gpt-9'" in found["problems"][0]


def test_an_adapter_that_is_none_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adapter = tmp_path / "adapter.safetensors"
    monkeypatch.setenv("TENON_ADAPTER", str(adapter))
    for content in (None, b"", b"not safetensors", b"\x02\0\0\0\0\0\0\0{}"):
        if content is not None:
            adapter.write_bytes(content)
        code, found = report(capsys)
        assert (code, found["model"]["state"]) == (1, "unusable")
        assert found["problems"] == [
            f"{adapter} is missing or damaged; reinstall tenon-ls, or set engine.adapter to another file"
        ]


def test_an_unknown_sampler_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model.json").write_text('{"raw": "x"}')
    monkeypatch.setenv("TENON_SAMPLER", "nonsense")
    code, found = report(capsys, "--model", f"scripted:{tmp_path / 'model.json'}")
    assert (code, found["ready"]) == (1, False)
    assert "unknown sampler 'nonsense'" in found["problems"][0]


def test_a_source_file_of_another_size_does_not_count(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "models" / "tenon-0.5b" / OFFICIAL.file_name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    code, found = report(capsys)
    assert (code, found["model"]["state"]) == (1, "missing")


def test_a_home_that_cannot_be_is_a_problem_that_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENON_HOME", f"/{'x' * 300}")
    code, found = report(capsys)
    assert code == 1
    assert found["problems"][0].startswith("/xxx")


def test_packages_and_device_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = report(capsys)
    assert all(found["packages"].values())
    assert found["device"]["threads"] >= 1
    assert found["engine"].startswith(("not running", "running: "))


def test_the_threads_of_the_configuration_are_the_ones_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENON_THREADS", "3")
    assert report(capsys)[1]["device"]["threads"] == 3


def test_settings_that_were_not_understood_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENON_THREADS", "many")
    assert "TENON_THREADS" in report(capsys)[1]["complaints"][0]


def test_people_get_lines_that_end_in_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert (code, lines[-1].split(maxsplit=1)) == (1, ["result:", "a fill would not work"])
    assert [line.split(":")[0] for line in lines[:4]] == ["tenon", "python", "packages", "device"]
