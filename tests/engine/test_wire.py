"""The JSON forms of the wire: what is written is read again, and what is not a form is refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.wire import (
    EngineInfo,
    ExtraFile,
    FillRequest,
    FillResult,
    FillStep,
    Hole,
    HoleFill,
    Slot,
    SlotState,
    Stopped,
    event_from_json,
    info_from_json,
    request_from_json,
    to_json,
)

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def over_the_wire(value: FillRequest | FillStep | FillResult | EngineInfo) -> object:
    return json.loads(json.dumps(to_json(value), allow_nan=False))


@given(st.from_type(FillRequest))
def test_a_request_survives_the_wire(request: FillRequest) -> None:
    assert request_from_json(over_the_wire(request)) == request


@given(st.from_type(FillStep) | st.from_type(FillResult))
def test_steps_and_results_survive_the_wire(event: FillStep | FillResult) -> None:
    assert event_from_json(over_the_wire(event)) == event


@given(st.from_type(EngineInfo))
def test_the_description_of_an_engine_survives_the_wire(info: EngineInfo) -> None:
    assert info_from_json(over_the_wire(info)) == info


def test_half_of_a_surrogate_pair_survives_the_wire() -> None:
    request = FillRequest.single("\ud83d", "\ude00")
    assert request_from_json(over_the_wire(request)) == request


def test_what_has_a_default_may_be_left_out() -> None:
    assert request_from_json({"segments": ["a", {}, "b"]}) == FillRequest(segments=("a", Hole(), "b"))
    assert event_from_json({"holes": [], "model": "m"}) == FillResult(holes=(), model="m")


def test_whole_numbers_stand_for_numbers() -> None:
    request = request_from_json({"segments": ["", {"strength": 1}, ""], "temperature": 2})
    assert (request.temperature, type(request.temperature)) == (2.0, float)


def test_the_form_is_plain() -> None:
    step = FillStep(hole=0, step=1, slots=(Slot("a", SlotState.OPEN, 0.5),), elapsed_ms=2.0)
    assert to_json(step) == {
        "hole": 0,
        "step": 1,
        "slots": [{"text": "a", "state": "open", "confidence": 0.5}],
        "elapsed_ms": 2.0,
    }
    result = FillResult((HoleFill((), "why"),), "m", Stopped.CANCELLED)
    assert to_json(result)["stopped"] == "cancelled"
    assert to_json(FillRequest(segments=("", Hole(), ""), extra=(ExtraFile("p", "t"),)))["extra"] == [
        {"path": "p", "text": "t"}
    ]


SEGMENTS = ["a", {}, "b"]


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        (None, "request must be an object, not null"),
        ([], "request must be an object, not a list"),
        ({}, "request lacks the field 'segments'"),
        ({"segments": "abc"}, "request.segments must be a list, not text"),
        ({"segments": ["a", 7]}, "request.segments[1] must be text or an object, not a whole number"),
        (
            {"segments": ["a", {"max_tokens": "8"}]},
            "request.segments[1].max_tokens must be a whole number or null, not text",
        ),
        (
            {"segments": ["a", {"max_tokens": 8.0}]},
            "request.segments[1].max_tokens must be a whole number or null, not a number",
        ),
        ({"segments": ["a", {"size": 8}]}, "request.segments[1] has no field 'size'"),
        ({"segments": SEGMENTS, "seed": True}, "request.seed must be a whole number, not true or false"),
        ({"segments": SEGMENTS, "seed": None}, "request.seed must be a whole number, not null"),
        ({"segments": SEGMENTS, "temperature": float("nan")}, "request.temperature must be a finite number"),
        ({"segments": SEGMENTS, "temperature": 10**400}, "request.temperature must be a finite number"),
        ({"segments": SEGMENTS, "path": 3}, "request.path must be text or null, not a whole number"),
        ({"segments": SEGMENTS, "extra": [{"path": "p"}]}, "request.extra[0] lacks the field 'text'"),
        ({"segments": SEGMENTS, "cursor": 1}, "request has no field 'cursor'"),
        ({"segments": ("a",)}, "request.segments must be a list, not tuple"),
    ],
)
def test_a_form_that_is_no_request_is_refused_with_its_place(form: object, complaint: str) -> None:
    with pytest.raises(ValueError) as refused:
        request_from_json(form)
    assert str(refused.value) == complaint


def test_an_unknown_state_is_refused_with_those_there_are() -> None:
    slot = {"text": "secret", "state": "secret", "confidence": 1.0}
    with pytest.raises(
        ValueError, match=r"^event.slots\[0\].state must be one of fixed, open, provisional, decided$"
    ):
        event_from_json({"hole": 0, "step": 1, "slots": [slot], "elapsed_ms": 0.0})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["segments", "holes"]), inner)
    ),
)


@given(st.sampled_from([request_from_json, event_from_json, info_from_json]), JSON)
def test_whatever_is_not_a_form_is_a_value_error_of_one_line(read: Any, form: object) -> None:
    try:
        read(form)
    except ValueError as error:
        assert "\n" not in str(error)


def test_the_wire_brings_nothing_of_the_engine() -> None:
    code = "import sys, tenon_engine.wire; print(sorted(n for n in sys.modules if n.startswith('tenon')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tenon_engine', 'tenon_engine.wire']"
