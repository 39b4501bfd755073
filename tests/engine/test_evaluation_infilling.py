"""`tenon eval infilling` on the sample, from the command line to the figures, with a scripted model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tenon_engine.cli import main
from tenon_engine.evaluation.infilling import Outcome, summarise, summary_row
from tenon_engine.evaluation.sandbox import Verdict
from tenon_engine.evaluation.tasks import read_tasks

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the sandbox needs POSIX limits")

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "data" / "infilling_sample.jsonl"
SOLUTIONS = [task.canonical_solution for task in read_tasks(SAMPLE)]


def test_right_fills_pass_and_match_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = _evaluate(tmp_path, capsys, SOLUTIONS)
    assert (row["n"], row["pass@1"], row["exact_match"]) == (8, 1.0, 1.0)


def test_wrong_fills_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = _evaluate(tmp_path, capsys, ["raise ValueError"])
    assert (row["n"], row["pass@1"], row["exact_match"]) == (8, 0.0, 0.0)


def test_another_right_answer_passes_without_matching(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = _evaluate(tmp_path, capsys, ["    return sorted([low, value, high])[1]\n"], "--limit", "1")
    assert (row["n"], row["pass@1"], row["exact_match"]) == (1, 1.0, 0.0)


def test_a_fill_that_leaves_the_program_early_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = _evaluate(tmp_path, capsys, ["    print('passed'); import sys; sys.exit(0)\n"], "--limit", "1")
    assert row["pass@1"] == 0.0


def test_every_takes_each_kth_task_and_limit_the_first_of_those(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = _evaluate(tmp_path, capsys, SOLUTIONS[::3], "--every", "3")
    assert (row["n"], row["exact_match"]) == (3, 1.0)
    assert _evaluate(tmp_path, capsys, SOLUTIONS[::3], "--every", "3", "--limit", "2")["n"] == 2


def test_the_model_is_given_both_sides_and_the_language_but_no_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _evaluate(tmp_path, capsys, SOLUTIONS, "--limit", "2", "--max-tokens", "24")
    calls = [json.loads(line) for line in (tmp_path / "script.json.calls.jsonl").read_text().splitlines()]
    tasks = read_tasks(SAMPLE)[:2]
    assert [(call["prefix"], call["suffix"]) for call in calls] == [
        (task.prompt, task.suffix) for task in tasks
    ]
    assert {(call["path"], call["language"], call["max_tokens"]) for call in calls} == {(None, "python", 24)}


def test_json_is_one_line_with_the_published_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = _evaluate(tmp_path, capsys, SOLUTIONS, "--limit", "1", "--sampler", "confirm")
    names = ["n", "pass@1", "exact_match", "steps_per_fill", "tokens_per_step", "p50_ms", "p95_ms", "sampler"]
    assert list(row) == [*names, "ece", "precision_at_coverage", "gate"]
    assert row["sampler"] == "confirm"


def test_without_json_a_table_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_command(tmp_path, SOLUTIONS, "--limit", "1")) == 0
    printed = capsys.readouterr()
    assert "pass@1" in printed.out
    assert "1.0" in printed.out
    assert printed.err == ""  # the bar is for terminals


def test_out_gets_one_line_per_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    _evaluate(tmp_path, capsys, [*SOLUTIONS[:2], "?"], "--limit", "3", "--out", str(out))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["verdict"] for row in rows] == ["passed", "passed", "failed"]
    assert [row["is_exact"] for row in rows] == [True, True, False]
    assert [row["fill"] for row in rows[:2]] == SOLUTIONS[:2]


def test_a_run_with_the_same_out_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.jsonl"
    _evaluate(tmp_path, capsys, [*SOLUTIONS[:2], "?"], "--limit", "3", "--out", str(out))
    row = _evaluate(tmp_path, capsys, SOLUTIONS[3:5], "--limit", "5", "--out", str(out))
    assert (row["n"], row["pass@1"]) == (5, 0.8)
    assert len(out.read_text().splitlines()) == 5
    calls = (tmp_path / "script.json.calls.jsonl").read_text()
    assert calls.count("\n") == 5


def test_calibration_is_measured_on_what_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = _evaluate(tmp_path, capsys, [*SOLUTIONS[:6], "?"])
    assert row["ece"] == 0.25  # the script is sure of everything
    assert row["gate"] == {"coverage": 1.0, "precision": 0.75, "confidence": 1.0}


def test_out_is_never_the_data_and_keeps_what_it_holds_until_a_model_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "tasks.jsonl"
    data.write_bytes(SAMPLE.read_bytes())
    assert main(["eval", "infilling", str(data), "--out", str(data)]) == 2
    _assert_one_line(capsys, "is the file that is read")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("kept")
    assert main(["eval", "infilling", str(data), "--out", str(rows), "--model", "no-such-model"]) == 2
    assert (data.read_bytes(), rows.read_text()) == (SAMPLE.read_bytes(), "kept")


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (("--limit", "0"), "--limit"),
        (("--every", "x"), "--every"),
        (("--max-tokens", "0"), "--max-tokens"),
        (("--out", "/absent/rows.jsonl"), "/absent/rows.jsonl cannot be written"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: tuple[str, str], complaint: str
) -> None:
    assert _exit_code(_command(tmp_path, SOLUTIONS, *extra)) == 2
    _assert_one_line(capsys, complaint)


def test_a_malformed_file_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "tasks.jsonl"
    data.write_text("{}\n")
    assert _exit_code(["eval", "infilling", str(data)]) == 2
    _assert_one_line(capsys, f"{data}:1: the task lacks text for task_id")


def test_an_interrupted_run_prints_what_was_measured_and_exits_with_130(tmp_path: Path) -> None:
    script: list[str | dict[str, object]] = [SOLUTIONS[0], "?", {"hang": True}]
    command = [sys.executable, "-m", "tenon_engine", *_command(tmp_path, script, "--json")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "engine"), str(ROOT / "lsp")])}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        calls = tmp_path / "script.json.calls.jsonl"
        while not (calls.exists() and calls.read_text().count("\n") == 3) and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, complaints
    row = json.loads(printed.splitlines()[-1])
    assert (row["n"], row["pass@1"]) == (2, 0.5)
    assert "Traceback" not in complaints


def test_figures_are_those_computed_by_hand() -> None:
    outcomes = [
        _outcome(verdict=Verdict.PASSED, is_exact=True, forwards=4, tokens=5, total_ms=40),
        _outcome(verdict=Verdict.PASSED, is_exact=False, forwards=2, tokens=2, total_ms=10),
        _outcome(verdict=Verdict.FAILED, is_exact=False, forwards=3, tokens=3, total_ms=30),
        _outcome(verdict=Verdict.TIMED_OUT, is_exact=False, forwards=1, tokens=1, total_ms=20),
    ]
    assert summary_row(summarise(outcomes), "confirm:3") == {
        "n": 4,
        "pass@1": 0.5,
        "exact_match": 0.25,
        "steps_per_fill": 2.5,
        "tokens_per_step": 1.1,
        "p50_ms": 20,
        "p95_ms": 40,
        "sampler": "confirm:3",
    }


def test_the_figures_of_no_task_at_all_are_zero() -> None:
    row = summary_row(summarise([]), "confirm")
    assert {value for name, value in row.items() if name != "sampler"} == {0}


def _evaluate(
    folder: Path, capsys: pytest.CaptureFixture[str], script: Sequence[str], *extra: str
) -> dict[str, object]:
    assert main([*_command(folder, script, *extra), "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    row: dict[str, object] = json.loads(lines[0])
    return row


def _command(folder: Path, script: Sequence[str | dict[str, object]], *extra: str) -> list[str]:
    rows = [{"raw": entry} if isinstance(entry, str) else entry for entry in script]
    path = folder / "script.json"
    path.write_text(json.dumps(rows))
    return ["eval", "infilling", str(SAMPLE), "--model", f"scripted:{path}", *extra]


def _exit_code(command: list[str]) -> int:
    try:
        return main(command)
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


def _assert_one_line(capsys: pytest.CaptureFixture[str], complaint: str) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err
    assert printed.err.count("\n") == 1


def _outcome(*, verdict: Verdict, is_exact: bool, forwards: int, tokens: int, total_ms: float) -> Outcome:
    return Outcome("t", "fill", "", 0.5, verdict, is_exact, forwards, tokens, total_ms)
