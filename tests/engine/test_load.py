"""The load script against real daemons around scripted models, and that its checks notice what they are for."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenon_engine import runtime
from tenon_engine.evaluation.load import typist
from tenon_engine.evaluation.load.client import Exchange, Place
from tenon_engine.evaluation.load.figures import missed, percentile, table
from tenon_engine.evaluation.load.subject import Model, Script, confirmed_crossed
from tenon_engine.evaluation.load.typist import Typist
from tenon_engine.wire import Candidate, FillRequest, FillResult, Hole, HoleFill

pytestmark = pytest.mark.skipif(os.name == "nt", reason="unix sockets and signals")

SHORT = ("--clients", "6", "--seconds", "1", "--keys", "2", "--overhead", "5")
PARTS = {
    "overhead": {"fills", "in_process_p50_ms", "in_process_p95_ms", "http_p50_ms", "http_p95_ms"}
    | {"p50_ms", "p95_ms"},
    "mixed": {"clients", "seconds", "answered", "answered_with_text", "left", "busy", "other", "others"}
    | {"reused", "p50_ms", "p95_ms", "fills_per_second", "tokens_per_second", "crossed"}
    | {"memory_mb", "memory_growth"},
    "throughput": {"clients", "keys", "one", "many", "fills_ratio", "tokens_ratio", "reused", "crossed"},
    "kill": {"clients", "answers_before", "restarted_s", "loaded_s", "first_answer_s", "last_answer_s"}
    | {"answered_clients"},
}
HEAD = {"machine", "model", "load_average_before", "load_average_after", "missed"}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tenon-") as name:  # short: a socket's path is
        monkeypatch.setenv(runtime.FOLDER_VARIABLE, name)
        yield Path(name)
        for left in runtime.running():
            runtime.stop(left)


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenon_engine.evaluation.load", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def exchange(client: int, request: FillRequest, *texts: str) -> Exchange:
    candidates = tuple(Candidate(text, 1.0) for text in texts)
    return Exchange(client, request, FillResult((HoleFill(candidates),), "m"), 1.0, 0.0)


def test_a_run_measures_everything_and_every_client_gets_its_own_answers() -> None:
    report = report_of(load("--model", "scripted", "--kill", "--json", *SHORT))
    assert {part: set(report[part]) for part in PARTS} == PARTS
    assert set(report) == {*PARTS, *HEAD}
    mixed, throughput, kill = report["mixed"], report["throughput"], report["kill"]
    assert mixed["answered_with_text"] == mixed["answered"] > 0
    assert mixed["crossed"] == mixed["other"] == mixed["busy"] == throughput["crossed"] == 0
    assert (throughput["one"]["fills"], throughput["many"]["fills"]) == (4, 32)
    assert kill["answered_clients"] == 6 and kill["answers_before"] > 0


def test_an_engine_that_runs_already_is_measured_where_it_is(folder: Path) -> None:
    script = folder / "script.json"
    script.write_text(json.dumps({"raw": "1"}))
    address = runtime.start(f"scripted:{script}", linger_s=None)
    report = report_of(load("--socket", str(address.socket), "--json", *SHORT))
    assert set(report) == {"mixed", "throughput", *HEAD}
    assert report["mixed"]["asked_again"] == report["mixed"]["same_again"] > 0
    assert report["mixed"]["memory_mb"] == {"start": None, "middle": None, "end": None}
    assert runtime.health(address) is not None


def test_an_engine_that_is_not_there_is_said_in_one_sentence(folder: Path) -> None:
    done = load("--socket", str(folder / "nobody.sock"), *SHORT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_an_answer_with_the_word_of_another_client_is_crossed() -> None:
    model, request = Model(Place("http://localhost")), FillRequest.single("", "")
    own, other = typist.words()[:2]
    mine = exchange(0, request, f"{own}.stock <= {own}.reorder_level", f"min({own}s)")
    another = exchange(0, request, "pass", f"{other}.stock")
    misled = dataclasses.replace(mine, client=1)
    assert model.crossed([mine, another, misled]) == [another, misled]


def test_a_slip_of_the_model_that_it_repeats_when_it_is_alone_is_not_crossed(folder: Path) -> None:
    own, other = typist.words()[:2]
    script = folder / "script.json"
    script.write_text(json.dumps({"raw": f"{other}.stock"}))
    address = runtime.start(f"scripted:{script}", linger_s=None)
    request = FillRequest.single("a = ", "\n", session=own)
    slip, taken = exchange(0, request, f"{other}.stock"), exchange(0, request, f"{other}.level")
    assert asyncio.run(confirmed_crossed(Model(Place.of(address)), [slip, taken])) == [taken]


def test_a_scripted_answer_that_was_made_for_another_request_is_crossed(folder: Path) -> None:
    script = Script(folder / "script.json")
    calls = [{"prefix": "a = ", "suffix": "\n"}, {"prefix": "b = ", "suffix": "\n"}]
    (folder / "script.json.calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls))
    first, second = (FillRequest.single(prefix, "\n") for prefix in ("a = ", "b = "))
    assert not script.crossed([exchange(0, first, "answer_0"), exchange(1, second, "answer_1")])
    assert len(script.crossed([exchange(0, first, "answer_1"), exchange(1, second, "answer_0")])) == 2
    assert len(script.crossed([exchange(0, first)])) == 1


def test_a_client_types_on_in_one_document_then_in_the_next() -> None:
    client = Typist(3, of="test")
    requests = [client.next_key() for _ in range(200)]
    by_session: dict[str, list[FillRequest]] = {}
    for request in requests:
        by_session.setdefault(request.session, []).append(request)
    assert len(by_session) > 1
    for session in by_session.values():
        prefixes = [str(request.segments[0]) for request in session]
        assert sorted(set(prefixes), key=len) == prefixes
    assert all(request.segments[1] == Hole() and client.word in str(request.segments) for request in requests)


def test_every_client_has_words_of_its_own() -> None:
    words = typist.words()
    assert len(set(words)) == len(words) == typist.WORDS_MAX
    document = str(Typist(7, of="test").next_key().segments)
    assert typist.words_in(document) == {words[7]}


def test_a_missed_target_is_named() -> None:
    report = {"overhead": {"p95_ms": 5.1}, "kill": {"first_answer_s": 9.0}, "machine": "m"}
    assert missed(report) == ["overhead.p95_ms ≤ 5"]
    assert [line for line in table(report) if line.endswith("missed")] != []


def test_a_percentile_is_one_of_the_values() -> None:
    assert (percentile([3, 1, 2], 0.5), percentile([3, 1, 2], 0.95), percentile([], 0.5)) == (2, 3, None)
