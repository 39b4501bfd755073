"""POST /v1/infill, as a client on the network sees it."""

from __future__ import annotations

import dataclasses
import http.client
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tenon_engine.server.native import InfillLine
from tenon_engine.server.schemas import FillForm, HoleForm, parse, to_request
from tenon_engine.wire import (
    ExtraFile,
    FillRequest,
    FillResult,
    FillStep,
    Hole,
    Stopped,
    event_from_json,
    to_json,
)

Serve = Callable[..., Any]

HANG = {"raw": "", "hang": True}
REQUEST = FillRequest.single("x = ", "\n", path="a.py", language="python")


def body(request: FillRequest = REQUEST, **more: object) -> dict[str, object]:
    return {**to_json(request), **more}


def lines(response: httpx.Response) -> list[Any]:
    found = response.text.splitlines()
    for line in found:
        InfillLine.model_validate_json(line)
    return [json.loads(line) for line in found]


def result(response: httpx.Response) -> FillResult:
    assert response.status_code == 200, response.text
    found = event_from_json(response.json())
    assert isinstance(found, FillResult)
    return found


def error(response: httpx.Response) -> tuple[int, str, str]:
    found = response.json()["error"]
    assert "\n" not in found["message"]
    return response.status_code, found["code"], found["message"]


def test_a_request_of_the_wire_is_answered_with_a_result_of_the_wire(serve: Serve) -> None:
    rig = serve({"raw": "1 + 2", "confidence": 0.5})
    found = result(rig.client.post("/v1/infill", json=body()))
    assert (found.holes[0].text, found.holes[0].confidence, found.stopped) == ("1 + 2", 0.5, Stopped.DONE)
    (call,) = rig.calls()
    assert (call["prefix"], call["suffix"], call["path"], call["language"]) == (
        "x = ",
        "\n",
        "a.py",
        "python",
    )


def test_every_field_of_the_wire_reaches_the_engine() -> None:
    request = FillRequest(
        segments=("a", Hole(3, "b", 0.5), "c", Hole(), "d"),
        path="p",
        language="l",
        extra=(ExtraFile("e", "f"),),
        instruction="i",
        candidates=2,
        temperature=0.5,
        seed=7,
        deadline_ms=100,
        session="s",
    )
    assert to_request(parse(FillForm, json.dumps(body(request)).encode())) == request


def test_what_may_be_left_out_is_what_the_wire_lets_be_left_out() -> None:
    def defaults(kind: type) -> dict[str, object]:
        return {field.name: field.default for field in dataclasses.fields(kind)}

    form = {name: field.default for name, field in FillForm.model_fields.items()}
    for own in ("model", "stream", "steps"):
        del form[own]
    form["extra"] = tuple(form["extra"])
    wire = defaults(FillRequest)
    assert form.keys() == wire.keys()
    assert {n: v for n, v in form.items() if n != "segments"} == {
        n: v for n, v in wire.items() if n != "segments"
    }
    assert {name: field.default for name, field in HoleForm.model_fields.items()} == defaults(Hole)


def test_several_holes_and_candidates_are_answered_in_order(serve: Serve) -> None:
    rig = serve({"raw": "1"}, {"raw": "2"}, {"raw": "1"}, {"raw": "2"})
    request = FillRequest(segments=("x = ", Hole(), "\ny = ", Hole(), "\n"), candidates=3)
    found = result(rig.client.post("/v1/infill", json=body(request)))
    assert [hole.text for hole in found.holes] == ["1", "2"]
    assert rig.calls()[0]["candidates"] == 3


def test_a_stream_tells_every_step_and_ends_with_the_result(serve: Serve) -> None:
    rig = serve({"raw": "1 + 2"})
    response = rig.client.post("/v1/infill", json=body(stream=True, steps=True))
    assert response.headers["content-type"].startswith("application/x-ndjson")
    *steps, last = lines(response)
    events = [event_from_json(line["step"]) for line in steps]
    assert [event.step for event in events if isinstance(event, FillStep)] == [1, 2, 3]
    found = event_from_json(last["result"])
    assert isinstance(found, FillResult) and found.holes[0].text == "1 + 2"


def test_a_stream_without_steps_is_the_result_alone(serve: Serve) -> None:
    (line,) = lines(serve().client.post("/v1/infill", json=body(stream=True)))
    assert line["result"]["holes"][0]["candidates"][0]["text"] == "1 + 2"


@pytest.mark.parametrize("stream", [False, True])
def test_what_goes_wrong_at_once_has_a_status_of_its_own(serve: Serve, stream: bool) -> None:
    rig = serve({"raw": "", "fail": "the numbers mean nothing"})
    found = error(rig.client.post("/v1/infill", json=body(stream=stream, steps=stream)))
    assert found == (500, "model_failed", "the numbers mean nothing")


def test_what_goes_wrong_later_is_the_last_line(serve: Serve) -> None:
    rig = serve({"raw": "1"}, {"raw": "", "fail": "the numbers mean nothing"})
    request = FillRequest(segments=("x = ", Hole(), "\ny = ", Hole(), "\n"))
    first, last = lines(rig.client.post("/v1/infill", json=body(request, stream=True, steps=True)))
    assert first["step"]["hole"] == 0
    assert last["error"]["message"] == "the numbers mean nothing"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "Invalid JSON"),
        (b"[]", "object"),
        (b'{"segments": ["", {}, ""]', "Invalid JSON"),
        (b'{"segments": ["", {}, ""], "secret": 1}', "secret"),
        (b'{"segments": ["", {"secret": 1}, ""]}', "segments.1.hole.secret"),
        (b'{"segments": ["", "secret", ""]}', "text and holes in turn"),
        (b'{"segments": [{}, "secret", {}]}', "text and holes in turn"),
        (b'{"segments": ["", {}]}', "at least 3"),
        (b'{"segments": ["", 5, ""]}', "segments.1.hole"),
        (b'{"segments": ["", {"max_tokens": "5"}, ""]}', "max_tokens"),
        (b'{"segments": ["", {"max_tokens": 1025}, ""]}', "max_tokens"),
        (b'{"segments": ["", {"strength": NaN}, ""]}', "strength"),
        (b'{"segments": ["", {}, ""], "candidates": 17}', "candidates"),
        (b'{"segments": ["", {}, ""], "candidates": true}', "candidates"),
        (b'{"segments": ["", {}, ""], "seed": -1}', "seed"),
        (b'{"segments": ["", {}, ""], "temperature": 1e999}', "temperature"),
        (b'{"segments": ["", {}, ""], "deadline_ms": 0}', "deadline_ms"),
        (b'{"segments": ["", {}, ""], "deadline_ms": 1' + b"0" * 400 + b"}", "deadline_ms"),
        (b'{"segments": ["\xff", {}, ""]}', "unicode"),
        (b'{"segments": ["\\ud800", {}, ""]}', "Invalid JSON"),
        (b'{"segments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        (b"{" + b",".join(b'"secret%d":1' % n for n in range(1000)) + b"}", "1001 places"),
    ],
)
def test_a_bad_request_is_refused_in_one_sentence(shared: Any, content: bytes, sentence: str) -> None:
    before = shared.calls()
    response = shared.client.post("/v1/infill", content=content, headers={"Content-Type": "application/json"})
    status, code, message = error(response)
    assert (status, code) == (400, "bad_request")
    assert sentence in message
    assert shared.calls() == before


def test_another_model_than_the_one_served_is_unknown(serve: Serve) -> None:
    client = serve().client
    assert error(client.post("/v1/infill", json=body(model="gpt")))[:2] == (404, "unknown_model")
    assert client.post("/v1/infill", json=body(model="tenon-test")).status_code == 200


def test_a_full_queue_says_when_to_come_again(serve: Serve) -> None:
    rig = serve(HANG, parallel=1, queue_limit=1)
    with rig.ask(body()):
        rig.wait_for_call()
        waiting = rig.ask(body())
        rig.wait_until(lambda: rig.metric("tenon_open_fills") == 2)
        response = rig.client.post("/v1/infill", json=body())
        assert error(response)[:2] == (503, "busy")
        assert int(response.headers["retry-after"]) >= 1
        assert rig.metric('tenon_fills_total{outcome="busy"}') == 1
        waiting.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_fill(serve: Serve, stream: bool) -> None:
    rig = serve(HANG, {"raw": "2"}, parallel=1)
    with rig.ask(body(stream=stream, steps=stream)):
        rig.wait_for_call()
    # The one thread is free again only when the first fill has ended.
    assert result(rig.client.post("/v1/infill", json=body())).holes[0].text == "2"
    assert rig.metric('tenon_fills_total{outcome="abandoned"}') == 1
    assert rig.metric("tenon_open_fills") == 0


def test_a_client_that_leaves_between_two_steps_cancels_its_fill(serve: Serve) -> None:
    rig = serve({"raw": "1"}, HANG, {"raw": "2"}, parallel=1)
    request = body(FillRequest(segments=("x = ", Hole(), "\ny = ", Hole(), "\n")), stream=True, steps=True)
    with rig.client.stream("POST", "/v1/infill", json=request) as response:
        assert "step" in json.loads(next(response.iter_lines()))
        rig.wait_for_call(2)
    assert result(rig.client.post("/v1/infill", json=body())).holes[0].text == "2"


def test_the_deadline_of_a_request_holds(serve: Serve) -> None:
    rig = serve(HANG)
    request = dataclasses.replace(REQUEST, deadline_ms=50)
    assert result(rig.client.post("/v1/infill", json=body(request))).stopped is Stopped.DEADLINE


def test_the_newest_request_of_a_session_ends_the_older_one(serve: Serve) -> None:
    rig = serve(HANG, {"raw": "2"})
    request = body(dataclasses.replace(REQUEST, session="one"))
    with rig.ask(request) as older:
        rig.wait_for_call()
        assert result(rig.client.post("/v1/infill", json=request)).holes[0].text == "2"
        answer = http.client.HTTPResponse(older)
        answer.begin()
        assert json.loads(answer.read())["stopped"] == "cancelled"
