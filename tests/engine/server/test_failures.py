"""A model that fails fill after fill: told on the wire, dropped, and loaded anew for the next request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenon_engine.errors import BadRequestError, ModelFailedError, OutOfMemoryError
from tenon_engine.failures import FAILURES_MAX, FailureCount
from tenon_engine.wire import FillResult, Stopped

FILL = {"segments": ["x = ", {}, "\n"]}
ILL = {"fail": "the model's numbers are not finite"}
WELL = {"raw": "1 + 2"}
DONE = FillResult((), "m")


@pytest.fixture
def rig(serve: Callable[..., Any]) -> Any:
    return serve(*[ILL] * FAILURES_MAX)


def test_u51_a_model_that_fails_three_times_in_a_row_is_ill_and_says_so(rig: Any) -> None:
    for _ in range(FAILURES_MAX):
        assert rig.client.get("/health").status_code == 200
        assert rig.client.post("/v1/infill", json=FILL).json()["error"]["code"] == "model_failed"
    response = rig.client.get("/health")
    assert (response.status_code, response.json()["state"]) == (503, "failed")
    assert response.json()["failure"].startswith("the model's numbers are not finite")


def test_u51_it_is_loaded_anew_by_the_next_request(rig: Any) -> None:
    for _ in range(FAILURES_MAX):
        rig.client.post("/v1/infill", json=FILL)
    rig.script.write_text(json.dumps(WELL))
    result = rig.client.post("/v1/infill", json=FILL).json()
    assert result["holes"][0]["candidates"][0]["text"] == "1 + 2"
    assert rig.client.get("/health").json() == {"status": "ok", "state": "ready"}


def test_u51_an_editor_that_listens_is_told(rig: Any) -> None:
    with rig.client.stream("GET", "/v1/events") as response:
        lines = response.iter_lines()
        for _ in range(FAILURES_MAX):
            rig.client.post("/v1/infill", json=FILL)
        while (event := json.loads(next(lines)))["state"] != "failed":
            pass
        assert "numbers are not finite" in event["failure"]


def test_u51_a_success_in_between_makes_all_well(serve: Callable[..., Any]) -> None:
    almost = [*[ILL] * (FAILURES_MAX - 1), WELL] * 3
    client = serve(*almost).client
    for _ in almost:
        client.post("/v1/infill", json=FILL)
        assert client.get("/health").status_code == 200


def test_only_what_the_model_did_is_counted() -> None:
    count = FailureCount()
    stopped = FillResult((), "m", Stopped.CANCELLED)
    for end in (ModelFailedError("a"), stopped, BadRequestError("b"), OutOfMemoryError("c"), stopped):
        assert count.judge(end) is None
    last = ModelFailedError("d")
    assert count.judge(last) is last


@pytest.mark.parametrize("ends", [[DONE], [ModelFailedError("a"), DONE], [OutOfMemoryError("a")] * 2])
def test_a_model_that_answers_now_and_then_is_not_ill(ends: list[Any]) -> None:
    judge: Callable[[Any], object] = FailureCount().judge
    assert [judge(end) for end in ends] == [None] * len(ends)
