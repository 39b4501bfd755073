"""A Tenon engine over HTTP: the real app around a real worker with a scripted model, and servers that are no engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.lsp.connection import on_loop, until
from tests.lsp.http_server import Json, free_port, refusal, serving
from tests.lsp.script import Script

from tenon_engine.config import EngineConfig
from tenon_engine.engine import Engine
from tenon_engine.errors import WeightsMissingError
from tenon_engine.models import registry
from tenon_engine.progress import Progress
from tenon_engine.server.app import build_app
from tenon_engine.wire import FillRequest, FillResult, FillStep
from tenon_engine.worker import Worker
from tenon_lsp.engines.client import EngineError, EngineFault, EngineState
from tenon_lsp.engines.connection import Endpoint
from tenon_lsp.engines.health import Listeners
from tenon_lsp.engines.http import HttpEngine

REQUEST = FillRequest.single("x = ", "\n", session="file:///a.py")
TOKEN = "a-very-secret-token"
INFO = {"model": "m", "prefix_tokens": 10, "suffix_tokens": 5, "extra_tokens": 3}
READY: Json = {"state": "ready", "progress": {"text": "", "percent": None}, "failure": "", "info": INFO}
RESULT: Json = {"result": {"holes": [{"candidates": [{"text": "1", "confidence": 0.9}]}], "model": "m"}}


class Stage:
    """An engine behind an address, and all that it tells."""

    def __init__(self, url: str, *, token: str = "", model: str | None = None) -> None:
        self.now_s = 0.0
        self.faults: list[EngineError] = []
        self.states: list[EngineState] = []
        self.progress: list[tuple[str, int | None]] = []
        listeners = Listeners(
            on_fault=self.faults.append,
            on_state=self.states.append,
            on_progress=lambda text, percent: self.progress.append((text, percent)),
        )
        endpoint = Endpoint(url, token=token)
        self.engine = HttpEngine(lambda: endpoint, listeners, model=model, clock=lambda: self.now_s)

    async def text(self, request: FillRequest = REQUEST) -> str:
        return (await self.engine.fill(request)).holes[0].text

    async def fault(self, request: FillRequest = REQUEST) -> EngineError:
        with pytest.raises(EngineError) as caught:
            await self.engine.fill(request)
        return caught.value


@contextlib.asynccontextmanager
async def staged(url: str, *, token: str = "", model: str | None = None) -> AsyncIterator[Stage]:
    stage = Stage(url, token=token, model=model)
    try:
        yield stage
    finally:
        await stage.engine.close()


# The real one


def loaded(script: Script) -> Engine:
    return registry.load_engine(EngineConfig(model=f"scripted:{script.path}"))


@contextlib.contextmanager
def real(
    script: Script,
    *,
    token: str | None = None,
    port: int = 0,
    load: Callable[[Progress], Engine] | None = None,
    **scheduling: Any,
) -> Iterator[str]:
    """The address of a real engine that says what is in the script."""
    worker = Worker(load or (lambda _: loaded(script)), **scheduling)
    app = build_app(worker, token=token, models=["tenon-test"])
    try:
        with serving(app, port=port) as url:
            yield url
    finally:
        worker.close()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    script = Script(tmp_path / "script.json")
    script.says("1")
    return script


@on_loop
async def test_a_fill_is_answered_and_what_is_loaded_becomes_known(script: Script) -> None:
    with real(script) as url:
        async with staged(url) as stage:
            assert stage.engine.info is None
            assert [await stage.text(), await stage.text()] == ["1", "1"]
            await until(lambda: stage.engine.info)
            assert stage.engine.info is not None
            assert (stage.engine.info.prefix_tokens, stage.engine.info.suffix_tokens) == (480, 128)
    assert stage.states[0] is EngineState.STARTING
    assert stage.states[-2:] == [EngineState.READY, EngineState.STOPPED]
    assert EngineState.BUSY in stage.states
    assert stage.faults == []


@on_loop
async def test_steps_are_passed_on_before_the_result(script: Script) -> None:
    script.says("1 + 2")
    steps: list[FillStep] = []
    with real(script) as url:
        async with staged(url) as stage:
            result = await stage.engine.fill(REQUEST, steps.append)
    assert isinstance(result, FillResult)
    assert result.holes[0].text == "1 + 2"
    assert [step.step for step in steps] == [1, 2, 3]


@on_loop
async def test_a_step_listener_that_raises_ends_its_own_fill_alone(script: Script) -> None:
    def listen(_: FillStep) -> None:
        raise KeyError("of the listener")

    with real(script) as url:
        async with staged(url) as stage:
            with pytest.raises(KeyError):
                await stage.engine.fill(REQUEST, listen)
            assert await stage.text() == "1"
    assert stage.faults == []


@on_loop
async def test_sessions_of_two_clients_do_not_supersede_each_other(script: Script) -> None:
    script.says("1", delay_ms=100)
    with real(script) as url:
        async with staged(url) as one, staged(url) as other:
            assert [*await asyncio.gather(one.text(), other.text())] == ["1", "1"]


@on_loop
async def test_the_newest_fill_of_a_session_wins(script: Script) -> None:
    script.says("1", hang=True)
    with real(script) as url:
        async with staged(url) as stage:
            old = asyncio.ensure_future(stage.text())
            await until(script.calls)
            script.says("2")
            assert [await stage.text(), await old] == ["2", ""]


@on_loop
async def test_a_cancelled_fill_stops_the_model(script: Script) -> None:
    script.says("1", hang=True)
    with real(script) as url:
        async with staged(url) as stage:
            waiting = asyncio.ensure_future(stage.text(FillRequest.single("x = ", "\n")))
            await until(script.calls)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            script.says("2")
            assert await stage.text() == "2"
    assert stage.faults == []


@on_loop
async def test_a_model_that_fails_fails_the_fill_alone(script: Script) -> None:
    script.says(fail="out of luck")
    with real(script) as url:
        async with staged(url) as stage:
            fault = await stage.fault()
            assert fault.code is EngineFault.FAILED
            assert "out of luck" in str(fault)
            script.says("1")
            assert await stage.text() == "1"
    assert stage.faults == []


@on_loop
async def test_a_request_that_contradicts_itself_is_refused(script: Script) -> None:
    with real(script) as url:
        async with staged(url) as stage:
            request = FillRequest.single("x = ", "\n", candidates=1000)
            assert (await stage.fault(request)).code is EngineFault.BAD_REQUEST
            assert await stage.text() == "1"
    assert stage.faults == []


@on_loop
async def test_a_busy_engine_is_left_alone_as_long_as_it_says_and_nobody_is_told(script: Script) -> None:
    script.says("1", hang=True)
    anything = FillRequest.single("x = ", "\n")
    with real(script, parallel=1, queue_limit=1) as url:
        async with staged(url) as stage:
            running = asyncio.ensure_future(stage.text(anything))
            await until(script.calls)
            others = [asyncio.ensure_future(stage.text(anything)) for _ in range(2)]
            await until(lambda: any(other.done() for other in others))
            refused, queued = sorted(others, key=lambda other: not other.done())
            fault = refused.exception()
            assert isinstance(fault, EngineError) and fault.code is EngineFault.BUSY
            assert (await stage.fault(anything)).code is EngineFault.BUSY  # without asking
            script.says("1")
            running.cancel()
            assert await queued == "1"
            stage.now_s += 60.0
            assert await stage.text(anything) == "1"
    assert stage.faults == []


@on_loop
async def test_a_model_that_cannot_be_loaded_is_told_once_and_tried_again_later(script: Script) -> None:
    is_there = False

    def load(_: Progress) -> Engine:
        if not is_there:
            raise WeightsMissingError("the weights are not on this machine")
        return loaded(script)

    with real(script, load=load) as url:
        async with staged(url) as stage:
            for _ in range(20):
                assert (await stage.fault()).code is EngineFault.STARTING_FAILED
            assert list(map(str, stage.faults)) == ["the weights are not on this machine"]
            is_there = True
            stage.now_s += 8.0
            assert await stage.text() == "1"
    assert stage.states[-2:] == [EngineState.READY, EngineState.STOPPED]


@on_loop
async def test_an_engine_with_another_model_is_no_engine_of_ours(script: Script) -> None:
    with real(script) as url:
        async with staged(url, model="coder") as stage:
            assert (await stage.fault()).code is EngineFault.STARTING_FAILED
            assert "not the model asked for" in str(stage.faults[0])


@on_loop
async def test_u58_the_token_is_sent_with_every_call_and_never_shown(script: Script) -> None:
    with real(script, token=TOKEN) as url:
        async with staged(url, token=TOKEN) as stage:
            assert await stage.text() == "1"
        async with staged(url, token="wrong-" + TOKEN) as stage:
            for _ in range(20):
                fault = await stage.fault()
                assert fault.code is EngineFault.UNAVAILABLE
                assert "wants its token" in str(fault) and TOKEN not in str(fault)
            assert len(stage.faults) == 1


@on_loop
async def test_u58_a_closed_port_costs_one_message_and_the_engine_is_found_when_it_is_there(
    script: Script,
) -> None:
    port = free_port()
    async with staged(f"http://127.0.0.1:{port}") as stage:
        for _ in range(20):
            assert "cannot be reached" in str(await stage.fault())
            stage.now_s += 0.5
        assert len(stage.faults) == 1
        with real(script, port=port):
            stage.now_s += 8.0  # the longest pause
            assert await stage.text() == "1"


@on_loop
async def test_an_engine_that_was_started_again_is_found_again(script: Script) -> None:
    port = free_port()
    async with staged(f"http://127.0.0.1:{port}") as stage:
        with real(script, port=port):
            assert await stage.text() == "1"
        await until(lambda: stage.faults)
        assert stage.states[-1] is EngineState.FAILED
        with real(script, port=port):
            assert await stage.text() == "1"
    assert len(stage.faults) == 1


@on_loop
async def test_an_engine_that_says_that_it_ends_is_no_fault() -> None:
    odd = Odd([READY, {"state": "closed"}])
    with serving(odd.app) as url:
        async with staged(url) as stage:
            await stage.engine.warm()
            await until(lambda: stage.states[-1] is EngineState.STOPPED)
            odd.news = [READY]
            assert await stage.text() == "1"
    assert stage.faults == []


@on_loop
async def test_an_engine_that_goes_fails_the_fills_that_wait(script: Script) -> None:
    script.says("1", hang=True)
    server = real(script)
    async with staged(server.__enter__()) as stage:
        waiting = [asyncio.ensure_future(stage.fault(FillRequest.single("x", ""))) for _ in range(3)]
        await until(lambda: len(script.calls()) == 3)
        await asyncio.to_thread(server.__exit__, None, None, None)
        assert {fault.code for fault in await asyncio.gather(*waiting)} == {EngineFault.UNAVAILABLE}
    assert len(stage.faults) == 1


@on_loop
async def test_a_closed_engine_answers_nothing_more(script: Script) -> None:
    script.says("1", hang=True)
    with real(script) as url:
        async with staged(url) as stage:
            waiting = asyncio.ensure_future(stage.fault())
            await until(script.calls)
            await stage.engine.close()
            assert (await waiting).code is EngineFault.UNAVAILABLE
            assert (await stage.fault()).code is EngineFault.DIED
            await stage.engine.warm()
    assert stage.faults == []


@on_loop
async def test_any_text_can_be_sent(script: Script) -> None:
    with real(script) as url:
        async with staged(url) as stage:
            assert (
                await stage.text(
                    FillRequest.single("s = '\ud83d\u2028😀\x85'\nx = ", "\ude00\n" + "y\n" * 100_000)
                )
                == "1"
            )


# Others


class Odd:
    """A server that has the routes of an engine and answers them as a test wants."""

    def __init__(
        self, news: Response | Sequence[object] = (READY,), fill: Response | Json | None = None
    ) -> None:
        self.news = news
        self.fill = RESULT if fill is None else fill
        self.news_count = 0
        self.app = Starlette(
            routes=[
                Route("/v1/events", self._news, methods=["GET"]),
                Route("/v1/infill", self._fill, methods=["POST"]),
            ]
        )

    async def _news(self, request: Request) -> Response:
        self.news_count += 1
        if isinstance(self.news, Response):
            return self.news
        return StreamingResponse(self._lines(request, self.news))

    async def _lines(self, request: Request, news: Sequence[object]) -> AsyncIterator[str]:
        for each in news:
            yield f"{json.dumps(each)}\n\n"
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)

    async def _fill(self, _: Request) -> Response:
        return self.fill if isinstance(self.fill, Response) else PlainTextResponse(json.dumps(self.fill))


@pytest.mark.parametrize(
    ("news", "said"),
    [
        (JSONResponse({}), "it is no news of an engine"),
        (JSONResponse([READY]), "it is no news of an engine"),
        (JSONResponse({"state": "asleep"}), "it is no news of an engine"),
        (JSONResponse({"state": ["ready"]}), "it is no news of an engine"),
        (JSONResponse({**READY, "info": {"model": "m"}}), "lacks the field"),
        (PlainTextResponse("<html>hello"), "not JSON"),
        (PlainTextResponse("[" * 100_000), "not JSON"),
        (Response(), "it is empty"),
        (refusal(404, "nothing here"), "nothing here (status 404)"),
        (refusal(502, "bad gateway"), "bad gateway (status 502)"),
    ],
)
@on_loop
async def test_u50_what_is_no_engine_is_told_once(news: Response, said: str) -> None:
    odd = Odd(news)
    with serving(odd.app) as url:
        async with staged(url) as stage:
            for _ in range(20):
                fault = await stage.fault()
                assert fault.code is EngineFault.UNAVAILABLE
                assert said in str(fault)
            assert odd.news_count == 2  # the second one follows at once, the third after a pause
    assert list(map(str, stage.faults)) == [str(fault)]


@pytest.mark.parametrize(
    ("fill", "said"),
    [
        ({}, "no step, result or error"),
        ({"result": {}}, "lacks the field"),
        ({"result": {"holes": "a", "model": "m"}}, "must be a list"),
        ({"step": {"holes": []}}, "lacks the field"),
        (PlainTextResponse("hello"), "not JSON"),
        (PlainTextResponse(""), "it ends without a result"),
        (refusal(404, "nothing here"), "nothing here (status 404)"),
        (refusal(429, "slowly"), "slowly (status 429)"),
    ],
)
@on_loop
async def test_u50_an_answer_that_is_none_is_told_once(fill: Response | Json, said: str) -> None:
    odd = Odd(fill=fill)
    with serving(odd.app) as url:
        async with staged(url) as stage:
            for _ in range(20):
                fault = await stage.fault()
                assert fault.code is EngineFault.UNAVAILABLE
                assert said in str(fault)
            odd.fill = RESULT
            stage.now_s += 8.0
            assert await stage.text() == "1"
    assert len(stage.faults) == 1


@on_loop
async def test_u50_an_error_in_the_middle_of_an_answer_is_passed_on() -> None:
    odd = Odd(fill={"error": {"code": "engine_error", "message": "ctx too small"}})
    with serving(odd.app) as url:
        async with staged(url) as stage:
            for _ in range(3):
                fault = await stage.fault()
                assert (fault.code, str(fault)) == (EngineFault.FAILED, "ctx too small")
                assert stage.states[-1] is EngineState.READY
    assert stage.faults == []


@on_loop
async def test_the_news_of_loading_are_passed_on() -> None:
    loading = [
        {"state": "loading", "progress": {"text": "reading", "percent": percent}} for percent in (None, 5)
    ]
    with serving(Odd([{"state": "idle"}, *loading, READY]).app) as url:
        async with staged(url) as stage:
            await stage.engine.warm()
            await until(lambda: stage.engine.info)
    assert stage.progress == [("reading", None), ("reading", 5)]
    names = [state.name for state in stage.states]
    assert names == ["STARTING", "STOPPED", "LOADING", "READY", "STOPPED"]


@on_loop
async def test_news_that_end_are_asked_for_again() -> None:
    odd = Odd(PlainTextResponse(json.dumps(READY)))
    with serving(odd.app) as url:
        async with staged(url) as stage:
            await stage.engine.warm()
            await until(lambda: odd.news_count == 2)
            assert await stage.text() == "1"
    assert stage.faults == []


@on_loop
async def test_an_engine_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenon_lsp.engines.http.NEWS_SILENCE_S", 0.1)
    with serving(Odd().app) as url:
        async with staged(url) as stage:
            await stage.engine.warm()
            await until(lambda: stage.faults)
    assert "does not answer" in str(stage.faults[0])


@pytest.mark.parametrize("drops", [b"", b"H", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n{"])
@on_loop
async def test_a_server_that_lets_one_in_and_says_nothing_is_told_of(
    monkeypatch: pytest.MonkeyPatch, drops: bytes
) -> None:
    monkeypatch.setattr("tenon_lsp.engines.http.FIRST_NEWS_S", 0.2)

    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(drops)
        await writer.drain()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with staged(f"http://127.0.0.1:{port}") as stage:
            fault = await stage.fault()
            assert str(fault) == f"the engine at 127.0.0.1:{port} does not answer"
            assert [str(each) for each in stage.faults] == [str(fault)]


@on_loop
async def test_closing_while_it_connects_leaves_nothing() -> None:
    with serving(Odd().app) as url:
        for turns in range(0, 60, 3):
            async with staged(url) as stage:
                waiting = asyncio.ensure_future(stage.engine.warm())
                for _ in range(turns):
                    await asyncio.sleep(0)
                await stage.engine.close()
                await waiting
            assert stage.faults == []
