"""The sweep: rows are kept as they come, and what is there is not measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenon_engine.errors import InputFileError, StorageError
from tenon_engine.evaluation.sweep import Row, main, sweep

SAMPLE = Path(__file__).parents[1] / "data" / "infilling_sample.jsonl"
SETTINGS = [{"data": "d", "sampler": sampler} for sampler in ("confirm:3", "frontier:1", "topk:2:8")]


def test_rows_are_written_one_by_one_and_an_interrupted_sweep_goes_on_where_it_stopped(
    tmp_path: Path,
) -> None:
    out, measured = tmp_path / "sweep.json", list[str]()

    def measure(sampler: str) -> Row:
        if len(measured) == 2:
            measured.append("interrupted")
            raise KeyboardInterrupt
        measured.append(sampler)
        return {"n": 1, "sampler": sampler}

    with pytest.raises(KeyboardInterrupt):
        list(sweep(SETTINGS, measure, out))
    assert [row["sampler"] for row in json.loads(out.read_text())] == ["confirm:3", "frontier:1"]
    assert list(sweep(SETTINGS, measure, out)) == [{"data": "d", "n": 1, "sampler": "topk:2:8"}]
    assert measured == ["confirm:3", "frontier:1", "interrupted", "topk:2:8"]
    assert [row["sampler"] for row in json.loads(out.read_text())] == [row["sampler"] for row in SETTINGS]


def test_the_same_sampler_on_other_data_is_measured_anew(tmp_path: Path) -> None:
    out = tmp_path / "sweep.json"
    for data in ("d", "e"):
        assert len(list(sweep([{"data": data, "sampler": "s"}], lambda sampler: {"n": 1}, out))) == 1
    assert len(json.loads(out.read_text())) == 2


@pytest.mark.parametrize("content", ["", "{}", "[1]", "[{]"])
def test_a_file_that_holds_no_rows_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    out = tmp_path / "sweep.json"
    out.write_text(content)
    with pytest.raises(InputFileError, match=r"sweep\.json"):
        list(sweep(SETTINGS, lambda sampler: {}, out))
    assert out.read_text() == content


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        list(sweep(SETTINGS, lambda sampler: {}, tmp_path / "absent" / "sweep.json"))


def test_a_model_without_samplers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "x"}')
    assert main([str(SAMPLE), "--out", str(tmp_path / "sweep.json"), "--model", f"scripted:{script}"]) == 2
    assert "has no sampler to sweep" in capsys.readouterr().err
