"""Other people's models behind HTTP: each protocol spoken with a real server, and everything it may answer instead."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from tests.lsp.connection import on_loop, until
from tests.lsp.http_server import Json, Stub, free_port, refusal, serving

from tenon_engine.wire import ExtraFile, FillRequest, FillResult, Hole
from tenon_lsp.engines import engine_for
from tenon_lsp.engines.chat import Chat
from tenon_lsp.engines.client import EngineError, EngineFault, EngineState
from tenon_lsp.engines.connection import Endpoint
from tenon_lsp.engines.health import Listeners
from tenon_lsp.engines.llamacpp import Infill
from tenon_lsp.engines.openai import Completions
from tenon_lsp.engines.question import Dialect
from tenon_lsp.engines.remote import RemoteEngine
from tenon_lsp.settings import EngineKind, EngineSettings

REQUEST = FillRequest.single(
    "def add(a, b):\n    return ", "\n", max_tokens=8, path="a.py", language="python"
)
TOKEN = "sk-very-secret-0123456789"
KINDS = [EngineKind.OPENAI, EngineKind.CHAT, EngineKind.LLAMACPP]


class Stage:
    """A server that answers as told, an engine that asks it, and all that the engine tells."""

    def __init__(self, dialect: Dialect, url: str, *, token: str = "") -> None:
        self.now_s = 0.0
        self.faults: list[EngineError] = []
        self.states: list[EngineState] = []
        listeners = Listeners(on_fault=self.faults.append, on_state=self.states.append)
        endpoint = Endpoint(url, token=token)
        self.engine = RemoteEngine(lambda: endpoint, dialect, listeners, clock=lambda: self.now_s)

    async def fault(self, request: FillRequest = REQUEST) -> EngineError:
        with pytest.raises(EngineError) as caught:
            await self.engine.fill(request)
        return caught.value


def completion(*texts: str, logprobs: list[float] | None = None) -> Json:
    shown = {"token_logprobs": logprobs} if logprobs else None
    choices = [{"index": index, "text": text, "logprobs": shown} for index, text in enumerate(texts)]
    return {"object": "text_completion", "choices": choices, "usage": {"completion_tokens": 3}}


def chat(*contents: str) -> Json:
    return {"choices": [{"message": {"role": "assistant", "content": content}} for content in contents]}


def texts(result: FillResult) -> list[str]:
    return [candidate.text for candidate in result.holes[0].candidates]


async def filled(dialect: Dialect, stub: Stub, request: FillRequest = REQUEST) -> FillResult:
    with serving(stub.app) as url:
        stage = Stage(dialect, url)
        try:
            return await stage.engine.fill(request)
        finally:
            await stage.engine.close()
            assert stage.faults == []


# OpenAI's completions


@on_loop
async def test_completions_send_both_sides_and_take_the_text() -> None:
    stub = Stub(lambda _: completion("a + b", logprobs=[math.log(0.5), math.log(0.5)]))
    result = await filled(Completions("coder"), stub)
    (candidate,) = result.holes[0].candidates
    assert (candidate.text, round(candidate.confidence, 6), result.cost.tokens) == ("a + b", 0.25, 3)
    (asked,) = stub.asked
    assert asked.path == "/v1/completions"
    assert "authorization" not in asked.headers
    assert asked.message == {
        "prompt": "def add(a, b):\n    return ",
        "suffix": "\n",
        "max_tokens": 8,
        "temperature": 0.0,
        "stream": False,
        "model": "coder",
        "logprobs": 1,
    }


@on_loop
async def test_completions_take_several_texts_each_once_and_the_surest_first() -> None:
    def reply(message: Json) -> Json:
        assert (message["n"], message["temperature"], message["seed"]) == (3, 0.7, 7)
        form = completion("a - b", "a + b", "a + b")
        form["choices"][1]["logprobs"] = {"token_logprobs": [-0.1]}
        form["choices"][0]["logprobs"] = {"token_logprobs": [None, -3.0]}
        form["choices"][2]["logprobs"] = {"token_logprobs": [-0.2]}
        return form

    request = FillRequest.single("x = ", "\n", candidates=3, seed=7)
    assert texts(await filled(Completions(), Stub(reply), request)) == ["a + b", "a - b"]


@on_loop
async def test_a_server_without_probabilities_is_asked_for_none_from_then_on() -> None:
    def reply(message: Json) -> Response | Json:
        if "logprobs" in message:
            return JSONResponse({"detail": [{"loc": ["body", "logprobs"], "msg": "Extra logprobs"}]}, 422)
        return completion("1")

    stub = Stub(reply)
    with serving(stub.app) as url:
        stage = Stage(Completions(), url)
        for _ in range(2):
            result = await stage.engine.fill(REQUEST)
            assert (result.holes[0].text, result.holes[0].confidence) == ("1", 1.0)
        await stage.engine.close()
    assert ["logprobs" in asked.message for asked in stub.asked] == [True, False, False]
    assert stage.faults == []


@on_loop
async def test_a_completion_in_the_form_of_a_chat_message_is_one_too() -> None:
    assert texts(await filled(Completions(), Stub(lambda _: chat("a + b")))) == ["a + b"]


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/completions"),
        ("/", "/v1/completions"),
        ("/v1", "/v1/completions"),
        ("/v1/completions", "/v1/completions"),
        ("/v1/fim/completions", "/v1/fim/completions"),
        ("/proxy/v1/", "/proxy/v1/completions"),
        ("/proxy", "/proxy/v1/completions"),
    ],
)
@on_loop
async def test_an_address_may_be_the_servers_or_the_whole_one(base: str, path: str) -> None:
    stub = Stub(lambda _: completion("1"))
    with serving(stub.app) as url:
        stage = Stage(Completions(), url + base)
        await stage.engine.fill(REQUEST)
        await stage.engine.close()
    assert [asked.path for asked in stub.asked] == [path]


@pytest.mark.parametrize("number", [-(10**400), math.inf, -math.inf])
@on_loop
async def test_a_log_probability_out_of_all_bounds_does_no_harm(number: float) -> None:
    answer = json.dumps(completion("1", logprobs=[math.inf, number]))
    stub = Stub(lambda _: Response(answer, media_type="application/json"))
    with serving(stub.app) as url:
        stage = Stage(Completions(), url)
        try:
            result = await stage.engine.fill(REQUEST)
            assert 0 <= result.holes[0].confidence <= 1
        except EngineError as error:
            assert "is not understood (a log probability is no number)" in str(error)
        await stage.engine.close()


# llama.cpp


@pytest.mark.parametrize("base", ["", "/v1", "/v1/"])
@on_loop
async def test_infill_is_asked_beside_the_other_protocols_version(base: str) -> None:
    stub = Stub(lambda _: {"content": "1"})
    with serving(stub.app) as url:
        stage = Stage(Infill(), url + base)
        await stage.engine.fill(REQUEST)
        await stage.engine.close()
    assert [asked.path for asked in stub.asked] == ["/infill"]


@on_loop
async def test_infill_sends_the_line_as_prompt_and_takes_the_content() -> None:
    probabilities = [{"token": "a", "logprob": math.log(0.5)}, {"token": "b", "logprob": math.log(0.8)}]
    stub = Stub(
        lambda _: {"content": "a + b", "tokens_predicted": 2, "completion_probabilities": probabilities}
    )
    request = FillRequest.single(
        "def add(a, b):\n    return ",
        "\n",
        extra=(ExtraFile("b.py", "add(1, 2)\n"),),
        deadline_ms=3000,
        seed=4,
        instruction="add  them",
        language="python",
    )
    result = await filled(Infill(), stub, request)
    (candidate,) = result.holes[0].candidates
    assert (candidate.text, round(candidate.confidence, 6), result.cost.tokens) == ("a + b", 0.4, 2)
    (asked,) = stub.asked
    message = asked.message
    assert 2000 < message.pop("t_max_predict_ms") <= 3000
    assert asked.path == "/infill"
    assert message == {
        "input_prefix": "def add(a, b):\n    # add them\n",
        "prompt": "    return ",
        "input_suffix": "\n",
        "input_extra": [{"filename": "b.py", "text": "add(1, 2)\n"}],
        "n_predict": 32,
        "temperature": 0.0,
        "seed": 4,
        "n_probs": 1,
        "cache_prompt": True,
        "stream": False,
    }


@on_loop
async def test_infill_without_probabilities_is_taken_as_sure() -> None:
    result = await filled(Infill(), Stub(lambda _: {"content": "a + b"}))
    assert (texts(result), result.holes[0].confidence) == (["a + b"], 1.0)


# Chat


@on_loop
async def test_chat_describes_the_hole_and_takes_what_is_in_the_one_block() -> None:
    stub = Stub(lambda _: chat("```python\na + b\n```"))
    request = FillRequest(
        segments=("def add(a, b):\n    return ", Hole(8, "a"), "  # <<<HOLE>>> ```\n"),
        path="pkg/a.py",
        language="python",
        extra=(ExtraFile("b.py", "add(1, 2)"),),
        instruction="add them",
    )
    assert texts(await filled(Chat("big"), stub, request)) == ["a + b"]
    (asked,) = stub.asked
    assert (asked.path, asked.message["model"]) == ("/v1/chat/completions", "big")
    system, user = (message["content"] for message in asked.message["messages"])
    assert "one fenced block" in system
    assert "<<<HOLE1>>>" in system and "````" in system
    assert "pkg/a.py:\n````python\ndef add(a, b):\n    return <<<HOLE1>>>  # <<<HOLE>>> ```\n" in user
    assert "b.py:\n````\nadd(1, 2)\n````" in user
    assert "this stands now:\n````python\na\n````" in user
    assert user.endswith("add them")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("```\na + b\n```", "a + b"),
        ("\n```py\na + b\n```\n", "a + b"),
        ("~~~~\na + b\n~~~~", "a + b"),
        ("````\na + b  # ```\n````", "a + b  # ```"),
        ("```\n```", ""),
        ("a + b", None),
        ("Sure!\n```\na + b\n```", None),
        ("```\na + b\n```\nThis adds them.", None),
        ("```\na\n```\n```\nb\n```", None),
        ("```\na + b", None),
        ("```a + b```", None),
        ("<think>hm</think>```\na\n```", None),
        ("", None),
    ],
)
@on_loop
async def test_chat_that_is_anything_but_one_block_is_no_suggestion(
    content: str, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tenon_lsp")
    result = await filled(Chat(), Stub(lambda _: chat(content)))
    assert texts(result) == ([text] if text else [])
    assert ("did not answer with one fenced block" in caplog.text) == (text is None)
    if text is None:
        assert result.holes[0].reason == "the model did not answer with one fenced block"


@on_loop
async def test_of_several_chat_answers_the_readable_ones_are_taken() -> None:
    stub = Stub(lambda _: chat("Sure!", "```\na + b\n```", "```\nb + a\n```"))
    request = FillRequest.single("x = ", "\n", candidates=3)
    assert texts(await filled(Chat(), stub, request)) == ["a + b", "b + a"]


# What all have in common


@on_loop
async def test_text_is_made_to_fit_both_sides() -> None:
    request = FillRequest.single("    return foo(", ")\nprint(1)\n", candidates=3)
    stub = Stub(lambda _: completion("<|endoftext|>", "return foo(a, b)", "c, d)\nprint(1)"))
    assert texts(await filled(Completions(), stub, request)) == ["a, b", "c, d"]


@on_loop
async def test_several_holes_are_asked_for_one_after_the_other_each_seeing_those_before() -> None:
    stub = Stub(lambda message: completion("1" if message["suffix"].startswith("\ny") else "2"))
    request = FillRequest(segments=("x = ", Hole(4), "\ny = ", Hole(4, "0"), "\n"))
    result = await filled(Completions(), stub, request)
    assert [hole.text for hole in result.holes] == ["1", "2"]
    sides = [(asked.message["prompt"], asked.message["suffix"]) for asked in stub.asked]
    assert sides == [("x = ", "\ny = 0\n"), ("x = 1\ny = ", "\n")]


@on_loop
async def test_line_ends_are_sent_as_lf_and_come_back_as_the_documents() -> None:
    stub = Stub(lambda _: completion("1\r\ny = 2"))
    result = await filled(Completions(), stub, FillRequest.single("a = 0\r\nx = ", "\r\nz = 3\r\n"))
    assert texts(result) == ["1\r\ny = 2"]
    assert "\r" not in stub.asked[0].message["prompt"] + stub.asked[0].message["suffix"]


@on_loop
async def test_any_text_can_be_sent() -> None:
    stub = Stub(lambda _: completion("1"))
    request = FillRequest.single("s = '\ud800\u2028😀'\nx = ", "\n")
    await filled(Completions(), stub, request)
    assert stub.asked[0].message["prompt"] == "s = '\ufffd\u2028😀'\nx = "  # no encoding can hold a half


@on_loop
async def test_text_that_stands_there_already_is_not_offered() -> None:
    request = FillRequest(segments=("x = ", Hole(4, "1"), "\n"))
    assert texts(await filled(Completions(), Stub(lambda _: completion("1")), request)) == []


@on_loop
async def test_a_cancelled_fill_hangs_up() -> None:
    stub = Stub(lambda _: None)
    with serving(stub.app) as url:
        stage = Stage(Completions(), url)
        waiting = asyncio.ensure_future(stage.engine.fill(REQUEST))
        await until(lambda: stub.asked)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: stub.gone)
        stub.reply = lambda _: completion("1")
        assert texts(await stage.engine.fill(REQUEST)) == ["1"]
        await stage.engine.close()
    assert stage.faults == []


# Faults


@pytest.mark.parametrize("dialect", [Completions(), Chat(), Infill()])
@on_loop
async def test_u50_what_a_server_says_about_one_request_is_passed_on_and_the_next_one_is_tried(
    dialect: Dialect,
) -> None:
    stub = Stub(lambda _: refusal(400, "ctx too small"))
    with serving(stub.app) as url:
        stage = Stage(dialect, url)
        for _ in range(2):
            fault = await stage.fault()
            assert fault.code is EngineFault.FAILED
            assert "ctx too small" in str(fault)
            assert stage.states[-1] is EngineState.READY
        assert len(stub.asked) == 2
        await stage.engine.close()
    assert stage.faults == []


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(JSONResponse({}), id="empty object"),
        pytest.param(JSONResponse([]), id="list"),
        pytest.param(JSONResponse({"choices": []}), id="no choices"),
        pytest.param(JSONResponse({"choices": [{"text": 1}]}), id="no text"),
        pytest.param(JSONResponse({"choices": ["a"]}), id="no object"),
        pytest.param(JSONResponse({"content": None}), id="null"),
        pytest.param(PlainTextResponse("<html>hello</html>"), id="a page"),
        pytest.param(PlainTextResponse("[" * 100_000), id="deep"),
        pytest.param(Response(b"\xff\xfe\x00"), id="no text at all"),
        pytest.param(Response(), id="nothing"),
        pytest.param(Response(status_code=204), id="no content"),
    ],
)
@pytest.mark.parametrize("dialect", [Completions(), Chat(), Infill()])
@on_loop
async def test_u50_a_malformed_answer_is_told_once_a_minute_and_asked_for_ever_less_often(
    dialect: Dialect, reply: Response
) -> None:
    stub = Stub(lambda _: reply)
    with serving(stub.app) as url:
        stage = Stage(dialect, url)
        for _ in range(590):  # a key every tenth of a second
            fault = await stage.fault()
            assert fault.code is EngineFault.UNAVAILABLE
            assert "not understood" in str(fault)
            stage.now_s += 0.1
        assert len(stage.faults) == 1
        assert stage.states[-1] is EngineState.FAILED
        assert len(stub.asked) < 15
        await stage.engine.close()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (refusal(401, f"Incorrect API key provided: {TOKEN}."), "Incorrect API key provided: … (status 401)"),
        (refusal(404, "The model `x` does not exist."), "The model `x` does not exist (status 404)"),
        (JSONResponse({"error": "model not loaded"}, 500), "model not loaded (status 500)"),
        (JSONResponse({"detail": "Not Found"}, 404), "Not Found (status 404)"),
        (JSONResponse({"message": "quota"}, 429), "quota (status 429)"),
        (PlainTextResponse("bad\ngateway", 502), "bad gateway (status 502)"),
        (PlainTextResponse("<html>bad gateway</html>", 502), "Bad Gateway (status 502)"),
        (PlainTextResponse("x" * 10_000, 500), "x… (status 500)"),
        (Response(status_code=307, headers={"location": "http://127.0.0.1:9/"}), "Temporary Redirect"),
    ],
)
@on_loop
async def test_u50_u58_a_server_that_refuses_is_quoted_once_without_the_token(
    reply: Response, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stub = Stub(lambda _: reply)
    with serving(stub.app) as url:
        stage = Stage(Completions(), url, token=TOKEN)
        for _ in range(20):
            assert said in str(await stage.fault())
        assert len(stub.asked) == 2  # the second one follows at once, the third after a pause
        assert stub.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
        stage.now_s += 1.0
        stub.reply = lambda _: completion("1")
        assert texts(await stage.engine.fill(REQUEST)) == ["1"]
        await stage.engine.close()
    (fault,) = stage.faults
    assert said in str(fault) and "\n" not in str(fault) and len(str(fault)) < 400
    assert TOKEN not in caplog.text + str(fault)


@on_loop
async def test_u58_a_closed_port_costs_one_message_and_the_server_is_found_when_it_is_back() -> None:
    port = free_port()
    stage = Stage(Completions(), f"http://127.0.0.1:{port}")
    for _ in range(20):
        fault = await stage.fault()
        assert fault.code is EngineFault.UNAVAILABLE
        assert f"127.0.0.1:{port} cannot be reached" in str(fault)
        stage.now_s += 0.2
    assert len(stage.faults) == 1
    stub = Stub(lambda _: completion("1"))
    with serving(stub.app, port=port):
        stage.now_s += 8.0  # the longest pause
        assert texts(await stage.engine.fill(REQUEST)) == ["1"]
        await stage.engine.close()


@on_loop
async def test_a_server_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    stub = Stub(lambda _: refusal(503, "loading model", **{"Retry-After": "20"}))
    with serving(stub.app) as url:
        stage = Stage(Infill(), url)
        for _ in range(19):
            assert "loading model" in str(await stage.fault())
            stage.now_s += 1.0
        assert len(stub.asked) == 1
        stub.reply = lambda _: {"content": "1"}
        stage.now_s += 1.0
        assert texts(await stage.engine.fill(REQUEST)) == ["1"]
        await stage.engine.close()


@on_loop
async def test_a_server_that_does_not_answer_in_time_is_given_up() -> None:
    stub = Stub(lambda _: None)
    with serving(stub.app) as url:
        stage = Stage(Completions(), url)
        request = FillRequest.single("x = ", "\n", deadline_ms=200)
        assert "does not answer" in str(await stage.fault(request))
        await until(lambda: stub.gone)
        await stage.engine.close()
    assert len(stage.faults) == 1


@on_loop
async def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenon_lsp.engines.connection.ANSWER_BYTES_MAX", 1 << 16)
    stub = Stub(lambda _: PlainTextResponse("x" * (1 << 20)))
    with serving(stub.app) as url:
        stage = Stage(Completions(), url)
        assert "it is longer than" in str(await stage.fault())
        await stage.engine.close()


@on_loop
async def test_closing_fails_what_is_under_way_and_all_that_follows() -> None:
    stub = Stub(lambda _: None)
    with serving(stub.app) as url:
        stage = Stage(Completions(), url)
        waiting = asyncio.ensure_future(stage.fault())
        await until(lambda: stub.asked)
        await stage.engine.close()
        assert (await waiting).code is EngineFault.UNAVAILABLE
        assert (await stage.fault()).code is EngineFault.DIED
        await stage.engine.warm()
    assert stage.faults == []


# Settings


@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_the_settings_name_the_kind_the_model_and_the_token(kind: EngineKind, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{TOKEN}\n", encoding="utf-8")
    answers = {"/v1/completions": completion("1"), "/v1/chat/completions": chat("```\n1\n```")}
    stub = Stub(lambda _: answers.get(stub.asked[-1].path, {"content": "1"}))
    with serving(stub.app) as url:
        settings = EngineSettings(url=url, kind=kind, token_file=str(token_file), model="coder")
        engine = engine_for(settings, Listeners())
        assert texts(await engine.fill(REQUEST)) == ["1"]
        assert engine.info is not None and engine.info.model == "coder"
        await engine.close()
    (asked,) = stub.asked
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.message.get("model") == (None if kind is EngineKind.LLAMACPP else "coder")


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read (No such file"), (b"", "does not hold one"), (b"\xc3\xa4", "it is not ASCII")],
)
@on_loop
async def test_a_token_file_that_is_no_use_is_told_and_read_again_later(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    if content is not None:
        token_file.write_bytes(content)
    faults: list[EngineError] = []
    stub = Stub(lambda _: completion("1"))
    with serving(stub.app) as url:
        settings = EngineSettings(url=url, kind=EngineKind.OPENAI, token_file=str(token_file))
        engine = engine_for(settings, Listeners(on_fault=faults.append))
        with pytest.raises(EngineError, match="the token file") as caught:
            await engine.fill(REQUEST)
        assert said in str(caught.value)
        assert stub.asked == []
        token_file.write_text(TOKEN, encoding="ascii")
        assert texts(await engine.fill(REQUEST)) == ["1"]
        await engine.close()
    assert list(map(str, faults)) == [str(caught.value)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with openssl")
    folder = tmp_path_factory.mktemp("certificate")
    chain, key = folder / "chain.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(chain)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    yield chain, key


@on_loop
async def test_u58_a_ca_file_is_trusted_and_without_it_nobody_unknown_is(
    certificate: tuple[Path, Path],
) -> None:
    stub = Stub(lambda _: completion("1"))
    with serving(stub.app, certificate=certificate) as url:
        trusting = EngineSettings(url=url, kind=EngineKind.OPENAI, ca_file=str(certificate[0]))
        engine = engine_for(trusting, Listeners())
        assert texts(await engine.fill(REQUEST)) == ["1"]
        await engine.close()
        stage = Stage(Completions(), url)
        assert "CERTIFICATE_VERIFY_FAILED" in str(await stage.fault())
        await stage.engine.close()
    assert len(stub.asked) == 1


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("junk", "no certificate")])
@on_loop
async def test_a_ca_file_that_is_none_is_told(content: str | None, said: str, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    if content is not None:
        ca_file.write_text(content, encoding="utf-8")
    settings = EngineSettings(url="https://127.0.0.1:9", kind=EngineKind.OPENAI, ca_file=str(ca_file))
    with pytest.raises(EngineError, match="the CA file") as caught:
        await engine_for(settings, Listeners()).fill(REQUEST)
    assert said in str(caught.value)


@on_loop
async def test_a_local_server_is_not_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    assert texts(await filled(Completions(), Stub(lambda _: completion("1")))) == ["1"]


def test_an_endpoint_does_not_show_its_secrets() -> None:
    endpoint = Endpoint("https://user:password@example.com:8443/v1?key=secret", token=TOKEN)
    assert endpoint.name == "example.com:8443"
    assert TOKEN not in repr(endpoint)
    assert json.dumps(endpoint.name)


@pytest.mark.parametrize("url", ["http://[::1", "http://localhost:99999999", "http://user:secret@/"])
@on_loop
async def test_an_address_that_is_none_is_told_in_a_sentence_about_the_setting(url: str) -> None:
    engine = engine_for(EngineSettings(url=url), Listeners())
    with pytest.raises(EngineError, match=r"the setting engine\.url is no address") as caught:
        await engine.fill(REQUEST)
    assert "secret" not in str(caught.value)
    await engine.close()
