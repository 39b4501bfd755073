"""The engine as a child process, spoken to over its pipes as a parent would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenon_engine.wire import FillRequest, to_json

HANG = {"raw": "", "hang": True}
EXIT_WITHIN_S = 5  # a second is promised; the machine of a test may be busy


class Child:
    """A running engine: `say` a line, `hear` the next one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def say(self, message: object) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def hear_rest(self) -> list[Any]:
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout]

    def hear_until_ready(self) -> Any:
        while "ready" not in (message := self.hear()):
            assert "progress" in message, message
        return message["ready"]

    def fill(self, number: int, *, session: str = "", steps: bool = False, **rest: Any) -> None:
        request = FillRequest.single("x = ", "\n", session=session, **rest)
        self.say({"id": number, "fill": to_json(request), "steps": steps})

    def close(self) -> str:
        """Close its stdin; returns what it has logged by its end."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        return self.process.stderr.read().decode()


@contextlib.contextmanager
def serving(model: str, *options: str, **environment: str) -> Iterator[Child]:
    command = [sys.executable, "-m", "tenon_engine.serve", "--model", model, *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ | environment
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@contextlib.contextmanager
def scripted(folder: Path, *entries: dict[str, object]) -> Iterator[Child]:
    script = folder / "script.json"
    script.write_text(json.dumps(entries), encoding="utf-8")
    with serving(f"scripted:{script}") as child:
        child.hear_until_ready()
        yield child


def calls(folder: Path) -> list[str]:
    path = folder / "script.json.calls.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def wait_for_call(folder: Path) -> None:
    """Until the model has been asked: what hangs says nothing."""
    while not calls(folder):
        time.sleep(0.005)


def outcome(message: Any) -> tuple[int, str, str]:
    """Number, why it stopped, text."""
    (hole,) = message["result"]["holes"]
    texts = [candidate["text"] for candidate in hole["candidates"]]
    return message["id"], message["result"]["stopped"], "".join(texts)


def test_the_model_is_described_once_it_is_loaded(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "1"}')
    with serving(f"scripted:{script}") as child:
        assert child.hear() == {"progress": {"text": f"scripted:{script}: loading", "percent": None}}
        assert child.hear_until_ready() == {
            "model": f"scripted:{script}",
            "prefix_tokens": 480,
            "suffix_tokens": 128,
            "extra_tokens": 256,
        }


def test_steps_come_before_the_result_where_they_are_asked_for(tmp_path: Path) -> None:
    with scripted(tmp_path, {"raw": "1 + 2"}) as child:
        child.fill(7, steps=True)
        heard = [child.hear() for _ in range(4)]
        assert [message.get("step", {}).get("step") for message in heard] == [1, 2, 3, None]
        assert outcome(heard[-1]) == (7, "done", "1 + 2")
        child.fill(8)
        assert outcome(child.hear()) == (8, "done", "1 + 2")


def test_a_fill_may_be_asked_for_before_the_model_is_loaded(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "1"}')
    with serving(f"scripted:{script}") as child:
        child.fill(1)
        child.hear_until_ready()
        assert outcome(child.hear()) == (1, "done", "1")


def test_a_cancelled_fill_stops_and_the_next_one_runs(tmp_path: Path) -> None:
    with scripted(tmp_path, HANG, {"raw": "2"}) as child:
        child.fill(1)
        wait_for_call(tmp_path)
        child.say({"cancel": 1})
        child.fill(2)
        assert [outcome(child.hear()) for _ in range(2)] == [(1, "cancelled", ""), (2, "done", "2")]


def test_a_fill_that_only_waits_is_answered_at_once_when_it_is_cancelled(tmp_path: Path) -> None:
    with scripted(tmp_path, HANG) as child:
        child.fill(1)
        wait_for_call(tmp_path)
        child.fill(2)
        child.say({"cancel": 2})
        assert outcome(child.hear()) == (2, "cancelled", "")
        child.say({"cancel": 1})
        assert outcome(child.hear()) == (1, "cancelled", "")
        assert len(calls(tmp_path)) == 1


def test_the_newest_fill_of_a_session_wins(tmp_path: Path) -> None:
    with scripted(tmp_path, HANG, {"raw": "new"}) as child:
        child.fill(1, session="a.py")
        wait_for_call(tmp_path)
        child.fill(2, session="b.py")
        child.fill(3, session="b.py")
        child.fill(4, session="a.py")
        heard = sorted(outcome(child.hear()) for _ in range(4))
        assert heard == [(1, "cancelled", ""), (2, "cancelled", ""), (3, "done", "new"), (4, "done", "new")]
        assert len(calls(tmp_path)) == 3


def test_fills_without_a_session_do_not_supersede_each_other(tmp_path: Path) -> None:
    with scripted(tmp_path, {"raw": "1", "delay_ms": 50}, {"raw": "2"}) as child:
        child.fill(1)
        child.fill(2)
        assert [outcome(child.hear()) for _ in range(2)] == [(1, "done", "1"), (2, "done", "2")]


def test_a_deadline_is_kept(tmp_path: Path) -> None:
    with scripted(tmp_path, HANG) as child:
        child.fill(1, deadline_ms=20)
        assert outcome(child.hear()) == (1, "deadline", "")


def test_a_model_that_fails_is_an_error_and_the_next_fill_runs(tmp_path: Path) -> None:
    with scripted(tmp_path, {"fail": "numbers\nwere NaN"}, {"raw": "2"}) as child:
        child.fill(1)
        assert child.hear() == {"id": 1, "error": {"code": "model_failed", "message": "numbers were NaN"}}
        child.fill(2)
        assert outcome(child.hear()) == (2, "done", "2")


@pytest.mark.parametrize(
    ("line", "number", "message"),
    [
        (b"{", None, "a line must be JSON"),
        (b"\xff\xfe", None, "a line must be JSON"),
        (b"[" * 100_000, None, "a line must be JSON"),
        (b"[]", None, "a line must be a JSON object"),
        (b"{}", None, "id must be a whole number"),
        (b'{"id": true, "fill": {}}', None, "id must be a whole number"),
        (b'{"cancel": "1"}', None, "cancel must be a whole number"),
        (b'{"id": 5}', 5, "request must be an object, not null"),
        (b'{"id": 5, "fill": {"segments": [1]}}', 5, "request.segments[0] must be text or an object, "),
        (b'{"id": 5, "fill": {"segments": ["a", {}, "b"]}, "steps": 1}', 5, "steps must be true or false"),
        (b'{"id": 5, "fill": {"segments": ["a"]}}', 5, "segments must be text and holes in turn"),
        (
            b'{"id": 5, "fill": {"segments": ["a", {}, "b"], "candidates": 99}}',
            5,
            "candidates must be 1 to 16",
        ),
    ],
)
def test_a_line_that_is_no_request_is_answered_and_survived(
    line: bytes, number: int | None, message: str, tmp_path: Path
) -> None:
    with scripted(tmp_path, {"raw": "1"}) as child:
        child.say(line)
        answer = child.hear()
        assert (answer["id"], answer["error"]["code"]) == (number, "bad_request")
        assert answer["error"]["message"].startswith(message)
        child.fill(6)
        assert outcome(child.hear()) == (6, "done", "1")


def test_a_model_that_cannot_be_loaded_is_one_sentence_and_the_end() -> None:
    with serving("tenon-9000b") as child:
        *_, last = child.hear_rest()
        assert last == {"failed": "there is no model 'tenon-9000b'; supported: tenon-0.5b, scripted:FILE"}
        assert child.process.wait(EXIT_WITHIN_S) == 1


def test_missing_weights_and_no_network_are_the_one_clear_sentence(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("TENON_HOME", "HF_HOME", "HF_HUB_CACHE"), str(tmp_path))
    with serving("tenon-0.5b", TENON_OFFLINE="1", **nowhere) as child:
        *_, last = child.hear_rest()
        assert list(last) == ["failed"]
        assert "tenon model fetch" in last["failed"]
        assert "Traceback" not in child.close()


def test_a_setting_that_is_wrong_is_logged_and_does_not_stop_the_engine(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "1"}')
    with serving(f"scripted:{script}", TENON_MAX_TOKENS="many") as child:
        child.hear_until_ready()
        assert "TENON_MAX_TOKENS" in child.close()


def test_the_end_of_stdin_ends_a_step_that_hangs(tmp_path: Path) -> None:
    with scripted(tmp_path, HANG) as child:
        child.fill(1)
        wait_for_call(tmp_path)
        child.close()
        assert child.process.wait(EXIT_WITHIN_S) == 0


needs_pipes = pytest.mark.skipif(
    not hasattr(os, "mkfifo"), reason="a script that is a named pipe keeps loading"
)


@needs_pipes
def test_the_end_of_stdin_ends_loading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "script.json")
    with serving(f"scripted:{tmp_path / 'script.json'}") as child:
        assert "progress" in child.hear()
        child.close()
        assert child.process.wait(EXIT_WITHIN_S) == 0


def test_a_parent_that_does_not_listen_any_more_ends_the_process(tmp_path: Path) -> None:
    with scripted(tmp_path, {"raw": "1"}) as child:
        assert child.process.stdout is not None
        child.process.stdout.close()
        child.fill(1)
        assert child.process.wait(EXIT_WITHIN_S) == 1


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_an_interrupt_meant_for_the_parent_is_not_obeyed(tmp_path: Path) -> None:
    with scripted(tmp_path, {"raw": "1"}) as child:
        child.process.send_signal(signal.SIGINT)
        child.fill(1)
        assert outcome(child.hear()) == (1, "done", "1")


def test_nothing_but_the_protocol_reaches_stdout(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "1"}')
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "from tenon_engine.models.scripted import ScriptedModel\n"
        "propose = ScriptedModel.propose\n"
        "def loud(*arguments):\n"
        "    print('printed')\n"
        "    os.system('echo shouted')\n"
        "    return propose(*arguments)\n"
        "ScriptedModel.propose = loud\n"
    )
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with serving(f"scripted:{script}", PYTHONPATH=search, PYTHONUNBUFFERED="1") as child:
        child.hear_until_ready()
        child.fill(1)
        assert outcome(child.hear()) == (1, "done", "1")
        logged = child.close()
        assert "printed" in logged and "shouted" in logged


def test_user_text_is_not_logged(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "answer"}')
    with serving(f"scripted:{script}", "--log-level", "info") as child:
        child.hear_until_ready()
        child.say({"id": 1, "fill": to_json(FillRequest.single("hush = ", "\n"))})
        assert outcome(child.hear()) == (1, "done", "answer")
        child.say(b'{"hush": ')
        child.hear()
        logged = child.close()
        assert "fill 1: done" in logged
        assert "hush" not in logged and "answer" not in logged


@pytest.mark.weights
def test_the_embedded_model_fills_and_stops_between_steps() -> None:
    with serving("tenon-0.5b") as child:
        ready = child.hear_until_ready()
        assert (ready["prefix_tokens"], ready["extra_tokens"]) == (480, 256)
        request = FillRequest.single("def add(a, b):\n    return a", "\n\nprint(add(1, 2))\n")
        child.say({"id": 1, "fill": to_json(request), "steps": True})
        *steps, result = _until_result(child)
        assert outcome(result) == (1, "done", " + b")
        assert [message["step"]["step"] for message in steps] == list(range(1, len(steps) + 1))
        child.say(
            {"id": 2, "fill": to_json(FillRequest.single("x = [", "]\n", max_tokens=200)), "steps": True}
        )
        assert child.hear()["step"]["step"] == 1
        child.say({"cancel": 2})
        *_, result = _until_result(child)
        assert outcome(result) == (2, "cancelled", "")


def _until_result(child: Child) -> Iterator[Any]:
    while True:
        yield (message := child.hear())
        if "step" not in message:
            return
