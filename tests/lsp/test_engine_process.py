"""The engine as a child process, seen from the language server: real processes, killed, hung, closed, started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tenon_engine.wire import FillRequest, FillResult, FillStep, Hole
from tenon_lsp.engine_client import Engine, EngineError, EngineFault, EngineState
from tenon_lsp.engine_process import ChildEngine, pause_s, serve_command

HANG = {"raw": "", "hang": True}
REQUEST = FillRequest.single("x = ", "\n")
T = TypeVar("T")

needs_posix = pytest.mark.skipif(os.name == "nt", reason="signals and named pipes as POSIX has them")


class Stage:
    """A scripted engine and all that it tells: its process ids, states, faults, progress and the model's calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script_path = folder / "script.json"
        self.now_s = 0.0
        self.states: list[EngineState] = []
        self.faults: list[EngineError] = []
        self.progress: list[tuple[str, int | None]] = []

    def script(self, *entries: dict[str, object]) -> None:
        self.script_path.write_text(json.dumps(entries), encoding="utf-8")

    def command(self) -> list[str]:
        """The real one, which first writes its process id down."""
        python, option, code, *rest = serve_command(f"scripted:{self.script_path}")
        pids = str(self.folder / "pids")
        return [python, option, f"import os; print(os.getpid(), file=open({pids!r}, 'a')); {code}", *rest]

    def engine(self, command: list[str] | None = None) -> ChildEngine:
        return ChildEngine(
            command or self.command(),
            on_fault=self.faults.append,
            on_progress=lambda text, percent: self.progress.append((text, percent)),
            on_state=self.states.append,
            clock=lambda: self.now_s,
        )

    @contextlib.asynccontextmanager
    async def running(self, command: list[str] | None = None) -> AsyncIterator[ChildEngine]:
        engine = self.engine(command)
        try:
            yield engine
        finally:
            await engine.close()

    def pids(self) -> list[int]:
        return [int(line) for line in self._lines("pids")]

    def calls(self) -> list[str]:
        return self._lines("script.json.calls.jsonl")

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.script({"raw": "1"})
    return stage


def run(test: Coroutine[Any, Any, T]) -> T:
    """`test` in an event loop of its own that takes no exception for nothing."""
    loose: list[dict[str, Any]] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: loose.append(context))
        return await test

    result = asyncio.run(watched())
    assert loose == []
    return result


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def text_of(engine: Engine, request: FillRequest = REQUEST) -> str:
    return (await engine.fill(request)).holes[0].text


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_first_fill_starts_the_engine_and_the_next_one_finds_it_ready(stage: Stage) -> None:
    async def test() -> None:
        async with stage.running() as engine:
            assert engine.info is None
            assert [await text_of(engine), await text_of(engine)] == ["1", "1"]
            assert engine.info is not None
            assert (engine.info.prefix_tokens, engine.info.suffix_tokens) == (480, 128)

    run(test())
    assert len(stage.pids()) == 1
    assert stage.progress == [(f"scripted:{stage.script_path}: loading", None)]
    names = [state.name for state in stage.states]
    assert names == ["STARTING", "LOADING", "READY", "BUSY", "READY", "BUSY", "READY", "STOPPED"]
    assert stage.faults == []


def test_steps_are_passed_on_before_the_result(stage: Stage) -> None:
    stage.script({"raw": "1 + 2"})

    async def test() -> tuple[FillResult, list[FillStep]]:
        steps: list[FillStep] = []
        async with stage.running() as engine:
            return await engine.fill(REQUEST, steps.append), steps

    result, steps = run(test())
    assert result.holes[0].text == "1 + 2"
    assert [step.step for step in steps] == [1, 2, 3]


def test_several_fills_at_once_get_each_its_own_answer(stage: Stage) -> None:
    stage.script({"raw": "1"}, {"raw": "2"}, {"raw": "3"})

    async def test() -> list[str]:
        async with stage.running() as engine:
            return await asyncio.gather(*(text_of(engine) for _ in range(3)))

    assert run(test()) == ["1", "2", "3"]
    assert len(stage.pids()) == 1


def test_a_request_of_a_megabyte_and_a_step_listener_that_raises_do_no_harm(stage: Stage) -> None:
    def refuse(step: FillStep) -> None:
        raise KeyError(step.step)

    async def test() -> str:
        async with stage.running() as engine:
            with pytest.raises(KeyError):
                await engine.fill(REQUEST, refuse)
            return await text_of(engine, FillRequest.single("é\n" * 500_000, ""))

    assert run(test()) == "1"


def test_a_cancelled_fill_stops_the_model_and_the_next_fill_works(stage: Stage) -> None:
    stage.script(HANG, {"raw": "2"})

    async def test() -> str:
        async with stage.running() as engine:
            hanging = asyncio.create_task(engine.fill(REQUEST))
            await until(stage.calls)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return await text_of(engine)

    assert run(test()) == "2"
    assert (len(stage.pids()), len(stage.calls())) == (1, 2)


def test_ten_fills_cancelled_at_once_cost_the_model_nothing(stage: Stage) -> None:
    stage.script(HANG, {"raw": "2"})

    async def test() -> str:
        async with stage.running() as engine:
            hanging = asyncio.create_task(engine.fill(REQUEST))
            await until(stage.calls)
            tasks = [hanging, *(asyncio.create_task(engine.fill(REQUEST)) for _ in range(10))]
            await asyncio.sleep(0)
            for task in reversed(tasks):  # those that wait first
                task.cancel()
            await asyncio.wait(tasks)
            return await text_of(engine)

    assert run(test()) == "2"
    assert len(stage.calls()) == 2


@needs_posix
def test_loading_survives_callers_that_are_cancelled(stage: Stage) -> None:
    stage.script_path.unlink()
    os.mkfifo(stage.script_path)  # reading it takes until somebody writes

    def let_it_load() -> None:
        with stage.script_path.open("w", encoding="utf-8") as pipe:
            real = stage.folder / "real.json"
            real.write_text('{"raw": "1"}', encoding="utf-8")
            real.replace(stage.script_path)  # for the fills to come
            pipe.write("{}")

    async def test() -> str:
        async with stage.running() as engine:
            callers = [
                asyncio.create_task(call) for _ in range(5) for call in (engine.fill(REQUEST), engine.warm())
            ]
            await asyncio.sleep(0)
            for caller in callers:
                caller.cancel()
            await asyncio.wait(callers)
            assert all(caller.cancelled() for caller in callers)
            await until(lambda: stage.progress)
            late = asyncio.create_task(engine.warm())
            await asyncio.sleep(0)
            late.cancel()
            await asyncio.to_thread(let_it_load)
            return await text_of(engine)

    assert run(test()) == "1"
    assert len(stage.pids()) == 1
    assert len(stage.calls()) == 1


@needs_posix
def test_an_engine_that_is_killed_fails_its_fills_and_is_started_again_ever_later(stage: Stage) -> None:
    stage.script(HANG)

    async def kill_in_a_fill(engine: ChildEngine) -> None:
        count = len(stage.calls())
        fills = [asyncio.create_task(engine.fill(REQUEST)) for _ in range(2)]
        await until(lambda: len(stage.calls()) > count)
        os.kill(stage.pids()[-1], signal.SIGKILL)
        for fill in fills:
            with pytest.raises(EngineError, match=r"^the engine ended unexpectedly \(signal 9\)$") as died:
                await fill
            assert died.value.code is EngineFault.DIED

    async def test() -> None:
        async with stage.running() as engine:
            await kill_in_a_fill(engine)
            await kill_in_a_fill(engine)  # it was started again at once
            stage.script({"raw": "1"})
            with pytest.raises(EngineError) as down:
                await engine.fill(REQUEST)
            assert down.value.code is EngineFault.DIED
            await engine.warm()
            assert len(stage.pids()) == 2
            stage.now_s += 1.0
            assert await text_of(engine) == "1"

    run(test())
    assert len(stage.pids()) == 3
    assert [fault.code for fault in stage.faults] == [EngineFault.DIED] * 2
    assert EngineState.FAILED in stage.states


def test_the_pauses_double_up_to_half_a_minute() -> None:
    assert [pause_s(count) for count in (1, 2, 3, 4, 5, 6, 7, 8, 5000)] == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_model_that_fails_fails_the_fill_alone(stage: Stage) -> None:
    stage.script({"fail": "numbers were NaN"}, {"raw": "2"})

    async def test() -> str:
        async with stage.running() as engine:
            with pytest.raises(EngineError, match=r"^numbers were NaN$") as failed:
                await engine.fill(REQUEST)
            assert failed.value.code is EngineFault.FAILED
            return await text_of(engine)

    assert run(test()) == "2"
    assert stage.faults == []


def test_a_request_that_contradicts_itself_is_refused(stage: Stage) -> None:
    async def test() -> None:
        async with stage.running() as engine:
            with pytest.raises(EngineError, match="segments must be text and holes in turn") as refused:
                await engine.fill(FillRequest(segments=(Hole(), "a")))
            assert refused.value.code is EngineFault.BAD_REQUEST

    run(test())


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (serve_command("gpt-9"), "there is no model 'gpt-9'; supported: tenon-0.5b, scripted:FILE"),
        ([sys.executable, "-c", "raise SystemExit(7)"], "the engine ended before it was ready (exit code 7)"),
        ([sys.executable, "-c", "print('hello')"], "the engine wrote what it should not: "),
        (
            [sys.executable, "-c", """print('{"ready": {"model": 7}}')"""],
            "the engine wrote what it should not: ",
        ),
        ([sys.executable, "-c", "import os; os.close(1); input()"], "the engine closed its output"),
        (["/nowhere/python"], "the engine cannot be started: No such file or directory"),
    ],
)
def test_an_engine_that_cannot_start_says_so_once_and_does_not_try_on_and_on(
    command: list[str], sentence: str, stage: Stage
) -> None:
    async def test() -> None:
        async with stage.running(command) as engine:
            await engine.warm()
            for _ in range(9):
                with pytest.raises(EngineError) as failed:
                    await engine.fill(REQUEST)
                assert failed.value.code is EngineFault.STARTING_FAILED
                assert str(failed.value).startswith(sentence)

    run(test())
    assert [fault.code for fault in stage.faults] == [EngineFault.STARTING_FAILED] * 2


def test_lines_that_nobody_understands_are_passed_over(stage: Stage) -> None:
    python, option, code, *rest = stage.command()
    lines = ('{"id": 99, "step": {}}', '{"hello": 1}', "[]", '{"progress": {"text": 5, "percent": 5}}')
    noise = f"print(*{lines!r}, sep=chr(10), flush=True)"

    async def test() -> str:
        async with stage.running([python, option, f"{noise}; {code}", *rest]) as engine:
            return await text_of(engine)

    assert run(test()) == "1"


@needs_posix
def test_closing_leaves_no_process_and_no_fill_waiting(stage: Stage) -> None:
    stage.script(HANG)

    async def test() -> None:
        async with stage.running() as engine:
            hanging = asyncio.create_task(engine.fill(REQUEST))
            await until(stage.calls)
            await engine.close()
            assert not is_alive(*stage.pids())
            for fill in (hanging, engine.fill(REQUEST)):
                with pytest.raises(EngineError) as closed:
                    await fill
                assert closed.value.code is EngineFault.DIED

    run(test())
    assert stage.faults == []
    assert stage.states[-1] is EngineState.STOPPED


@needs_posix
def test_closing_ends_a_process_that_does_not_react(stage: Stage) -> None:
    async def test() -> None:
        async with stage.running() as engine:
            await engine.warm()
            os.kill(stage.pids()[-1], signal.SIGSTOP)
            await engine.close()
            assert not is_alive(*stage.pids())

    run(test())
    assert stage.faults == []


@needs_posix
@pytest.mark.parametrize("turns", range(4))
def test_closing_while_it_starts_leaves_no_process(turns: int, stage: Stage) -> None:
    async def test() -> None:
        async with stage.running() as engine:
            warming = asyncio.create_task(engine.warm())
            for _ in range(turns):
                await asyncio.sleep(0)
            await engine.close()
            await warming
            assert not any(map(is_alive, stage.pids()))

    run(test())
    assert stage.faults == []


def test_an_unloaded_engine_is_started_again_by_the_next_fill(stage: Stage) -> None:
    async def test() -> None:
        async with stage.running() as engine:
            assert await text_of(engine) == "1"
            await engine.unload()
            assert stage.states[-1] is EngineState.STOPPED
            assert await text_of(engine) == "1"

    run(test())
    assert len(stage.pids()) == 2
    assert stage.faults == []


@needs_posix
def test_an_event_loop_that_ends_takes_the_process_with_it(stage: Stage) -> None:
    async def test() -> None:
        await stage.engine().warm()

    run(test())
    asyncio.run(until(lambda: not is_alive(*stage.pids())))


def test_modules_of_the_workspace_are_not_imported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json.py", "tenon_engine.py", "torch.py"):
        (stage.folder / name).write_text("raise SystemExit('imported from the workspace')")
    monkeypatch.chdir(stage.folder)

    async def test() -> str:
        async with stage.running() as engine:
            return await text_of(engine)

    assert run(test()) == "1"
