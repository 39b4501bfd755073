"""The benchmark runs against the real server and says what it promises; how fast anything is, is not tested."""

from __future__ import annotations

import json

import pytest

from tenon_lsp.bench import __main__ as bench

STAGES = ("change", "parse", "place", "gate", "recall", "window", "related", "fit")
BY_SIZE = (
    *(f"stage_{stage}" for stage in STAGES),
    "own_share",
    "suggest_with_instant_engine",
    "did_change",
    "did_change_and_cheap_request",
    "keystroke_to_reply",
    "typed_through",
)


def test_the_json_line_has_every_figure_and_the_storm(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--json", "--starts", "1", "--keys", "4", "--storm", "20"]) == 0
    figures = json.loads(capsys.readouterr().out)
    storm = figures.pop("storm")
    assert figures.pop("machine")
    assert "load_average" in figures
    del figures["load_average"]
    assert {*figures} == {
        "initialize",
        "cancel_to_error_reply",
        "cancel_to_next_answer",
        *(f"cheap_request_{lines}" for lines in bench.LINE_COUNTS),
        *(f"{name}_{lines}" for name in BY_SIZE for lines in bench.LINE_COUNTS),
    }
    assert all(each["count"] and 0 <= each["p50_ms"] <= each["p95_ms"] for each in figures.values())
    assert storm["keys"] == 20
    assert storm["answers"]
    assert (storm["stale_answers"], storm["exceptions"], storm["exit_code"]) == (0, 0, 0)


def test_the_table_names_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--starts", "1", "--keys", "1"]) == 0
    table = capsys.readouterr().out
    assert "initialize" in table
    assert "own share 20000" in table
