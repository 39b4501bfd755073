"""Whatever is sent, the answer is what the description promises, and the engine goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

JSON = {"Content-Type": "application/json"}
ENDLESS = "/v1/events"


# That text and holes stand in turn cannot be described; and of others' clients all is taken that can be understood.
LEFT_OUT = {
    "/v1/infill": [positive_data_acceptance],
    "/infill": [negative_data_rejection],
    "/v1/completions": [negative_data_rejection],
}


@pytest.fixture(scope="module")
def description(shared: Any) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", shared.app).exclude(path=ENDLESS)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_app_does_as_its_description_says(description: Any, mode: GenerationMode) -> None:
    for found in description.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # nothing that could be wrong

        @settings(max_examples=25, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.call_and_validate(excluded_checks=LEFT_OUT.get(case.path))

        check()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
sides = st.text(max_size=30)
infill_requests = st.fixed_dictionaries(
    {"input_prefix": sides | values, "input_suffix": sides | values},
    optional={
        "prompt": sides | values,
        "input_extra": st.lists(st.fixed_dictionaries({"text": sides, "filename": sides}), max_size=2)
        | values,
        "n_predict": st.integers(-2, 200) | values,
        "t_max_prompt_ms": st.integers(-1, 2000) | values,
        "t_max_predict_ms": st.integers(-1, 2000) | values,
        "temperature": st.floats(0, 2) | values,
        "seed": values,
        "stop": st.lists(sides, max_size=2) | values,
        "stream": st.booleans() | values,
        "response_fields": st.lists(st.sampled_from(["content", "timings/predicted_n", "", "x/y"])) | values,
        "samplers": values,
    },
)
completion_requests = st.fixed_dictionaries(
    {"prompt": sides | st.lists(sides, max_size=2) | values},
    optional={
        "model": values,
        "suffix": sides | values,
        "max_tokens": st.integers(-2, 200) | values,
        "n": st.integers(0, 17) | values,
        "temperature": st.floats(0, 2) | values,
        "seed": values,
        "stop": sides | st.lists(sides, max_size=2) | values,
        "stream": st.booleans() | values,
        "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}) | values,
        "logprobs": values,
    },
)


@settings(max_examples=150)
@given(request=infill_requests | values)
def test_any_infill_request_is_answered_or_refused(shared: Any, request: object) -> None:
    _check(shared, "/infill", json.dumps(request).encode())


@settings(max_examples=150)
@given(request=completion_requests | values)
def test_any_completion_request_is_answered_or_refused(shared: Any, request: object) -> None:
    _check(shared, "/v1/completions", json.dumps(request).encode())


@settings(max_examples=150)
@given(path=st.sampled_from(["/v1/infill", "/infill", "/v1/completions"]), content=st.binary(max_size=200))
def test_any_bytes_are_refused(shared: Any, path: str, content: bytes) -> None:
    _check(shared, path, content)


def _check(rig: Any, path: str, content: bytes) -> None:
    response = rig.client.post(path, content=content, headers=JSON)
    assert response.status_code in (200, 400), response.text
    if response.status_code == 400:
        error = response.json()["error"]
        assert error["code"] == "bad_request" and error["message"] and "\n" not in error["message"]
