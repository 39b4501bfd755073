"""What the engine says of itself: /health, /v1/models, /metrics, /v1/events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenon_engine.server import status

Serve = Callable[..., Any]

FILL = {"segments": ["x = ", {}, "\n"]}


def test_an_engine_is_well_before_it_has_loaded_and_after(serve: Serve) -> None:
    client = serve().client
    assert client.get("/health").json() == {"status": "ok", "state": "idle"}
    client.post("/v1/infill", json=FILL)
    assert client.get("/health").json() == {"status": "ok", "state": "ready"}


def test_an_engine_whose_model_cannot_be_loaded_is_not_well(serve: Serve) -> None:
    rig = serve()
    rig.script.write_text("nonsense")
    assert rig.client.post("/v1/infill", json=FILL).json()["error"]["code"] == "bad_input"
    response = rig.client.get("/health")
    assert (response.status_code, response.json()["state"]) == (503, "failed")


def test_the_models_are_those_it_was_told(serve: Serve) -> None:
    found = serve().client.get("/v1/models").json()
    assert found["object"] == "list"
    assert [(entry["id"], entry["object"]) for entry in found["data"]] == [("tenon-test", "model")]


def test_requests_fills_steps_and_tokens_are_counted(serve: Serve) -> None:
    rig = serve({"raw": "1 + 2"})
    assert rig.metric("tenon_model_loaded") == 0
    for _ in range(2):
        rig.client.post("/v1/infill", json=FILL)
    rig.client.post("/v1/infill", json={})
    rig.client.get("/a-secret-path")
    assert rig.metric('tenon_requests_total{route="/v1/infill",status="200"}') == 2
    assert rig.metric('tenon_requests_total{route="/v1/infill",status="400"}') == 1
    assert rig.metric('tenon_requests_total{route="other",status="404"}') == 1
    assert rig.metric('tenon_fills_total{outcome="done"}') == 2
    assert rig.metric("tenon_denoising_steps_total") == 6
    assert rig.metric("tenon_tokens_total") == 6
    assert rig.metric("tenon_fill_seconds_count") == 2
    assert rig.metric("tenon_model_loaded") == 1
    assert rig.metric("tenon_open_fills") == 0


def test_an_event_stream_tells_how_it_is_and_then_what_changes(serve: Serve) -> None:
    rig = serve()
    with rig.client.stream("GET", "/v1/events") as response:
        lines = response.iter_lines()
        first = json.loads(next(lines))
        assert first == {"state": "idle", "progress": first["progress"], "failure": "", "info": None}
        assert first["progress"].keys() == {"text", "percent"}
        rig.client.post("/v1/infill", json=FILL)
        heard = [json.loads(next(lines))]
        while heard[-1]["state"] != "ready":
            heard.append(json.loads(next(lines)))
        assert heard[-1]["info"]["model"].startswith("scripted:")


def test_a_failure_is_told_with_its_reason(serve: Serve) -> None:
    rig = serve()
    rig.script.write_text("nonsense")
    with rig.client.stream("GET", "/v1/events") as response:
        lines = response.iter_lines()
        rig.client.post("/v1/infill", json=FILL)
        while (event := json.loads(next(lines)))["state"] != "failed":
            pass
        assert "is not valid JSON" in event["failure"]


def test_open_event_streams_are_counted(serve: Serve) -> None:
    rig = serve()
    with rig.client.stream("GET", "/v1/events") as first, rig.client.stream("GET", "/v1/events") as second:
        streams = first.iter_lines(), second.iter_lines()
        assert [json.loads(next(lines))["state"] for lines in streams] == ["idle", "idle"]
        assert rig.app.state.client_count == 2
        assert rig.metric("tenon_event_streams") == 2
    rig.wait_until(lambda: rig.app.state.client_count == 0)
    assert rig.metric("tenon_event_streams") == 0


def test_a_quiet_event_stream_shows_that_it_is_alive(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "KEEP_ALIVE_SECONDS", 0.02)
    with serve().client.stream("GET", "/v1/events") as response:
        lines = response.iter_lines()
        next(lines)
        assert [next(lines), next(lines)] == ["", ""]


def test_an_event_stream_ends_when_the_engine_is_closed(serve: Serve) -> None:
    rig = serve()
    with rig.client.stream("GET", "/v1/events") as response:
        lines = response.iter_lines()
        next(lines)
        rig.worker.close()
        assert [json.loads(line)["state"] for line in lines if line][-1] == "closed"


@pytest.mark.parametrize(
    ("method", "path", "status_code", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/health/", 404, "not_found"),
        ("GET", "/v1/infill", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there_is_said_in_the_common_form(
    shared: Any, method: str, path: str, status_code: int, code: str
) -> None:
    response = shared.client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status_code, code)


def test_the_head_of_an_event_stream_is_refused_for_it_has_no_end(shared: Any) -> None:
    assert shared.client.head("/v1/events").status_code == 405
