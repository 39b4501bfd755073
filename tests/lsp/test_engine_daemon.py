"""The user's own engine in a process of its own: started by the first client, shared, killed, replaced, left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.lsp.connection import on_loop, until
from tests.lsp.script import Script

from tenon_engine import runtime
from tenon_engine.wire import FillRequest
from tenon_lsp.engines import engine_for
from tenon_lsp.engines.client import Engine, EngineError, EngineFault, EngineState
from tenon_lsp.engines.daemon import daemon_engine
from tenon_lsp.engines.health import Listeners
from tenon_lsp.settings import EngineSettings

REQUEST = FillRequest.single("x = ", "\n", session="file:///a.py")

needs_posix = pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")


class Client:
    """One window: its engine, and all that it is told."""

    def __init__(self, model: str) -> None:
        self.faults: list[EngineError] = []
        self.states: list[EngineState] = []
        listeners = Listeners(on_fault=self.faults.append, on_state=self.states.append)
        self.engine: Engine = daemon_engine(model, listeners, idle_minutes=0)

    async def text(self) -> str:
        return (await self.engine.fill(REQUEST)).holes[0].text


@contextlib.asynccontextmanager
async def client(model: str) -> AsyncIterator[Client]:
    one = Client(model)
    try:
        yield one
    finally:
        await one.engine.close()


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder with a short path; what runs in it at the end is ended."""
    with tempfile.TemporaryDirectory(prefix="tenon-") as path:
        monkeypatch.setenv(runtime.FOLDER_VARIABLE, path)
        yield Path(path)
        while left := runtime.running():  # one that only waited for another to end may follow it
            for address in left:
                with contextlib.suppress(runtime.DaemonError):
                    runtime.stop(address)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    script = Script(tmp_path / "script.json")
    script.says("1")
    return script


@pytest.fixture
def model(script: Script) -> str:
    return f"scripted:{script.path}"


@on_loop
async def test_the_first_fill_starts_the_engine_and_other_windows_share_it(model: str) -> None:
    async with client(model) as one, client(model) as other:
        assert one.engine.info is None
        assert [*await asyncio.gather(one.text(), other.text())] == ["1", "1"]
        assert len(runtime.running()) == 1
        await one.engine.close()
        assert await other.text() == "1"
    assert (one.faults, other.faults) == ([], [])
    assert one.states[0] is EngineState.STARTING


@on_loop
async def test_the_engine_of_a_script_ends_with_its_last_client(model: str, script: Script) -> None:
    script.says("1", delay_ms=300)  # a client that leaves sooner may not have been seen
    async with client(model) as one:
        assert await one.text() == "1"
        files = runtime.files_of(model)
    await asyncio.to_thread(wait_until_gone, files)
    assert runtime.running() == []


def wait_until_gone(files: runtime.Files) -> None:
    assert not runtime.is_alive(files, patience_s=10.0)


@needs_posix
@on_loop
async def test_a_killed_engine_is_told_once_and_replaced_by_the_next_fill(model: str, script: Script) -> None:
    async with client(model) as one, client(model) as other:
        assert [await one.text(), await other.text()] == ["1", "1"]
        script.says("1", hang=True)
        script.forget_calls()
        waiting = asyncio.ensure_future(one.engine.fill(REQUEST))
        await until(script.calls)
        (address,) = runtime.running()
        os.kill(address.pid, signal.SIGKILL)
        with pytest.raises(EngineError) as caught:
            await waiting
        assert caught.value.code is EngineFault.DIED
        await until(lambda: other.faults)
        script.says("2")
        started_s = time.monotonic()
        assert [*await asyncio.gather(one.text(), other.text())] == ["2", "2"]
        assert time.monotonic() - started_s < 10.0
        (replacement,) = runtime.running()
        assert replacement.pid != address.pid
    for each in (one, other):
        assert [fault.code for fault in each.faults] == [EngineFault.DIED]
        assert "ended unexpectedly" in str(each.faults[0])


@on_loop
async def test_an_engine_that_was_stopped_by_hand_is_no_fault_and_started_again(model: str) -> None:
    async with client(model) as one:
        assert await one.text() == "1"
        (address,) = runtime.running()
        await asyncio.to_thread(runtime.stop, address)
        await until(lambda: one.states[-1] is EngineState.STOPPED)
        assert await one.text() == "1"
    assert one.faults == []


@on_loop
async def test_an_engine_that_cannot_be_started_says_why_once(folder: Path) -> None:
    async with client("no-such-model") as one:
        for _ in range(3):
            with pytest.raises(EngineError, match="no-such-model") as caught:
                await one.text()
            assert caught.value.code is EngineFault.STARTING_FAILED
        assert len(one.faults) == 1
    folder.chmod(0o755)
    async with client("tenon-0.5b") as one:
        with pytest.raises(EngineError, match="must be yours alone"):
            await one.text()
    folder.chmod(0o700)


@on_loop
async def test_a_caller_that_is_cancelled_while_it_starts_does_not_stop_it(model: str) -> None:
    async with client(model) as one:
        waiting = asyncio.ensure_future(one.text())
        await until(lambda: one.states)
        waiting.cancel()
        assert await one.text() == "1"
    assert one.faults == []


@on_loop
async def test_closing_while_it_starts_takes_no_time_and_leaves_nothing(model: str) -> None:
    async with client(model) as one:
        waiting = asyncio.ensure_future(one.engine.warm())
        await until(lambda: one.states)
        started_s = time.monotonic()
        await one.engine.close()
        assert time.monotonic() - started_s < 3.0
        await waiting
    assert one.faults == []


@on_loop
async def test_u49_without_an_address_the_settings_mean_this_machines_engine(model: str) -> None:
    engine = engine_for(EngineSettings(model=model), Listeners())
    try:
        assert (await engine.fill(REQUEST)).holes[0].text == "1"
        (address,) = runtime.running()
        assert (address.model, address.linger_s) == (model, 0)
    finally:
        await engine.close()
