"""The sandbox, with real subprocesses: what ends well, what is stopped, and what cannot pass by accident."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tenon_engine.evaluation.sandbox import Limits, Verdict, run_program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the sandbox needs POSIX limits")

SHORT = Limits(seconds=1.5)


def test_a_program_that_runs_to_its_end_passes() -> None:
    assert run_program("assert sum([1, 2]) == 3\n") is Verdict.PASSED


@pytest.mark.parametrize(
    "source",
    [
        "assert 1 == 2",
        "return 1 +",
        "import absent_module",
        "raise SystemExit",
        "x = '\0'",
        "print('\ud800')",
    ],
)
def test_a_program_that_fails_in_any_way_fails(source: str) -> None:
    assert run_program(source) is Verdict.FAILED


@pytest.mark.parametrize(
    "leave",
    ["import sys; sys.exit(0)", "import os; os._exit(0)", "exit()", "quit()", "import os; os.abort()"],
)
def test_leaving_before_the_tests_does_not_pass_whatever_is_printed(leave: str) -> None:
    assert (
        run_program(f"print('ok passed')\nopen('token', 'w').write('ok')\n{leave}\nassert False")
        is Verdict.FAILED
    )


def test_a_token_of_its_own_making_does_not_pass() -> None:
    assert run_program("open('token', 'w').write('0' * 32)\nassert False") is Verdict.FAILED


def test_the_token_cannot_be_read_from_standard_input() -> None:
    assert run_program("import sys\nassert sys.stdin.read() == ''\n") is Verdict.PASSED


def test_waiting_for_input_fails_at_once() -> None:
    assert run_program("input()") is Verdict.FAILED


@pytest.mark.parametrize("source", ["while True: pass", "import time; time.sleep(600)"])
def test_an_endless_program_is_stopped(source: str) -> None:
    assert run_program(source, SHORT) is Verdict.TIMED_OUT


def test_a_memory_hog_is_stopped_by_the_address_space_limit() -> None:
    assert run_program("x = bytearray(2 << 30)") is Verdict.FAILED
    assert run_program("try:\n    x = bytearray(2 << 30)\nexcept MemoryError:\n    pass") is Verdict.PASSED


def test_no_file_grows_beyond_its_limit() -> None:
    source = "f = open('big', 'wb')\nfor _ in range(64): f.write(bytes(1 << 20))\nf.flush()"
    assert run_program(source) is Verdict.FAILED
    assert run_program(source, Limits(file_bytes=128 << 20)) is Verdict.PASSED


def test_a_flood_of_output_does_not_hold_the_program_up() -> None:
    assert run_program("for _ in range(1000): print('x' * 10_000)") is Verdict.PASSED


def test_children_of_a_stopped_program_are_killed(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    # Sixteen at most, in case the sandbox fails; where forking is refused, none is started at all.
    source = f"""
import os, time
for _ in range(4):
    os.fork()
with open({str(note)!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
time.sleep(60)
"""
    assert run_program(source, SHORT) in (Verdict.TIMED_OUT, Verdict.FAILED)
    started = [int(line) for line in note.read_text().split()] if note.exists() else []
    assert all(_ends(pid) for pid in started)


def test_a_child_left_behind_by_a_passing_program_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    source = f"""
import subprocess, sys
try:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open({str(note)!r}, "w").write(str(child.pid))
except BlockingIOError:
    pass  # forking is refused
"""
    assert run_program(source) is Verdict.PASSED
    assert not note.exists() or _ends(int(note.read_text()))


def test_threads_and_exit_hooks_do_not_delay_a_passing_program() -> None:
    source = "import atexit, time\natexit.register(time.sleep, 600)\n"
    assert run_program(source) is Verdict.PASSED


def test_the_program_runs_in_an_empty_folder_of_its_own_that_is_removed(tmp_path: Path) -> None:
    note = tmp_path / "cwd"
    source = f"""
import os
assert os.listdir() == ["program.py"]
open("litter", "w").write("x")
open({str(note)!r}, "w").write(os.getcwd())
"""
    assert run_program(source) is Verdict.PASSED
    assert not Path(note.read_text()).exists()


def test_the_environment_of_the_user_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_FOR_TEST", "1")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    assert run_program("import os\nassert 'SECRET_FOR_TEST' not in os.environ") is Verdict.PASSED
    assert (
        run_program("import sys\nassert '/nowhere' not in sys.path and '' not in sys.path") is Verdict.PASSED
    )


def test_the_future_imports_of_the_sandbox_do_not_reach_the_program() -> None:
    assert run_program("def f(x: int): pass\nassert f.__annotations__ == {'x': int}") is Verdict.PASSED


def _ends(pid: int) -> bool:
    # A kill is delivered at once and takes effect soon: the sleepers would last for a minute.
    deadline = time.monotonic() + 10
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _is_running(pid)


def _is_running(pid: int) -> bool:
    if sys.platform != "linux":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    try:
        # A killed orphan may stay listed as a zombie where nobody reaps it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
