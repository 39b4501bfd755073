"""The scripted model and the registry: everything a script can do, and everything wrong it can hold."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tenon_engine.config import EngineConfig
from tenon_engine.engine import Engine
from tenon_engine.errors import InputFileError, ModelFailedError, UnknownModelError
from tenon_engine.models import registry
from tenon_engine.wire import ExtraFile, FillRequest, FillStep, SlotState, Stopped

REQUEST = FillRequest.single("x = ", "\n", path="a.py", language="python", extra=(ExtraFile("b.py", "y"),))


def scripted(folder: Path, script: object) -> Engine:
    path = folder / "script.json"
    path.write_text(script if isinstance(script, str) else json.dumps(script), encoding="utf-8")
    return Engine(registry.load(f"scripted:{path}", EngineConfig()))


def test_a_list_is_used_in_turn_and_its_last_entry_repeats(tmp_path: Path) -> None:
    engine = scripted(tmp_path, [{"raw": "1", "confidence": 0.25}, {"raw": "2"}])
    fills = [engine.fill(REQUEST).holes[0] for _ in range(3)]
    assert [(fill.text, fill.confidence) for fill in fills] == [("1", 0.25), ("2", 1.0), ("2", 1.0)]


def test_a_script_may_change_between_two_calls(tmp_path: Path) -> None:
    engine = scripted(tmp_path, {"raw": "1"})
    (tmp_path / "script.json").write_text('{"raw": "2"}', encoding="utf-8")
    assert engine.fill(REQUEST).holes[0].text == "2"


def test_every_call_is_written_down_as_the_engine_made_it(tmp_path: Path) -> None:
    engine = scripted(tmp_path, {"raw": "1"})
    engine.fill(REQUEST)
    engine.fill(REQUEST)
    calls = (tmp_path / "script.json.calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(call) for call in calls] == 2 * [
        {
            "prefix": "x = ",
            "suffix": "\n",
            "language": "python",
            "path": "a.py",
            "max_tokens": 32,
            "candidates": 1,
            "extra": [{"path": "b.py", "text": "y"}],
        }
    ]


def test_the_text_grows_from_the_left_a_word_at_a_time(tmp_path: Path) -> None:
    *steps, _ = scripted(tmp_path, {"raw": "a  + b \n"}).stream(REQUEST)
    canvases = [[slot.text for slot in step.slots] for step in steps if isinstance(step, FillStep)]
    assert canvases == [
        ["a", "", "", ""],
        ["a", "  +", "", ""],
        ["a", "  +", " b", ""],
        ["a", "  +", " b", " \n"],
    ]
    assert isinstance(steps[0], FillStep)
    assert [slot.state for slot in steps[0].slots] == [SlotState.DECIDED] + 3 * [SlotState.OPEN]


def test_as_many_candidates_are_there_as_were_asked_for(tmp_path: Path) -> None:
    engine = scripted(tmp_path, {"raw": "a b", "others": ["c", "d"]})
    for count, texts in ((1, ["a b"]), (2, ["a b", "c"]), (5, ["a b", "c", "d"])):
        fill = engine.fill(dataclasses.replace(REQUEST, candidates=count)).holes[0]
        assert [candidate.text for candidate in fill.candidates] == texts


def test_a_failure_is_the_message_of_the_script(tmp_path: Path) -> None:
    with pytest.raises(ModelFailedError, match=r"^out of memory$"):
        scripted(tmp_path, {"raw": "1", "fail": "out of memory"}).fill(REQUEST)


@pytest.mark.parametrize("entry", [{"hang": True}, {"raw": "1", "delay_ms": 600_000}])
def test_waiting_ends_with_the_deadline_or_a_cancellation(tmp_path: Path, entry: dict[str, object]) -> None:
    engine = scripted(tmp_path, entry)
    late = engine.fill(FillRequest.single("", "", deadline_ms=1))
    cancelled = engine.fill(FillRequest.single("", ""), cancelled=lambda: True)
    assert (late.stopped, cancelled.stopped) == (Stopped.DEADLINE, Stopped.CANCELLED)
    assert late.holes[0].candidates == cancelled.holes[0].candidates == ()


@pytest.mark.parametrize(
    "script",
    [
        *(
            "",
            "{",
            "[]",
            "3",
            "[3]",
            '{"raw": 1}',
            '{"rwa": "x"}',
            '{"raw": "x", "hang": 1}',
            '{"raw": null}',
        ),
        *(
            '{"confidence": NaN}',
            '{"confidence": 1e999}',
            '{"confidence": 1.5}',
            '{"confidence": -1}',
            '{"others": [1]}',
            "[" * 5_000,
        ),
    ],
)
def test_a_malformed_script_is_refused_in_one_line_when_it_is_loaded(tmp_path: Path, script: str) -> None:
    with pytest.raises(InputFileError) as refused:
        scripted(tmp_path, script)
    assert "\n" not in str(refused.value)
    assert "script.json" in str(refused.value)


def test_a_script_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"nowhere\.json cannot be read"):
        registry.load(f"scripted:{tmp_path / 'nowhere.json'}", EngineConfig())


def test_an_unknown_model_is_refused_with_what_is_supported() -> None:
    with pytest.raises(UnknownModelError) as refused:
        registry.load("gpt-9", EngineConfig())
    assert all(name in str(refused.value) for name in registry.names())


def test_the_text_level_never_imports_torch(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "1"}', encoding="utf-8")
    code = (
        "import sys; from tenon_engine.config import EngineConfig; from tenon_engine.engine import Engine;"
        "from tenon_engine.models import registry; from tenon_engine.wire import FillRequest;"
        "Engine(registry.load(sys.argv[1], EngineConfig())).fill(FillRequest.single('', ''));"
        "sys.exit('torch' in sys.modules)"
    )
    search_path = ":".join(part for part in sys.path if part)
    command = [sys.executable, "-c", code, f"scripted:{script}"]
    assert subprocess.run(command, env={"PYTHONPATH": search_path}, check=False).returncode == 0
