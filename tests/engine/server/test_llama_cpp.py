"""POST /infill with what llama.vim and llama.vscode send, and what they read of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Serve = Callable[..., Any]

HANG = {"raw": "", "hang": True}

VIM_FIELDS = [
    "content",
    "timings/prompt_n",
    "timings/prompt_ms",
    "timings/prompt_per_token_ms",
    "timings/prompt_per_second",
    "timings/predicted_n",
    "timings/predicted_ms",
    "timings/predicted_per_token_ms",
    "timings/predicted_per_second",
    "truncated",
    "tokens_cached",
]


def from_vim(**changes: object) -> dict[str, object]:
    """The request that llama.vim makes while its user types behind `x = `."""
    return {
        "id_slot": 0,
        "input_prefix": "import os\n\n",
        "input_suffix": "\nprint(x)\n",
        "input_extra": [{"text": "y = 3\n", "time": [10, 20], "filename": "b.py"}],
        "prompt": "x = ",
        "n_predict": 128,
        "stop": [],
        "n_indent": 0,
        "top_k": 40,
        "top_p": 0.9,
        "samplers": ["top_k", "top_p", "infill"],
        "stream": False,
        "cache_prompt": True,
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 1000,
        "response_fields": VIM_FIELDS,
        **changes,
    }


def from_vscode(**changes: object) -> dict[str, object]:
    """The request that llama.vscode makes: no choice of fields, so it reads the nested timings."""
    request = from_vim(lora=[{"id": 0, "scale": 0.5}], model="qwen")
    del request["response_fields"], request["id_slot"]
    return {**request, **changes}


def test_llama_vim_gets_the_flat_fields_that_it_asks_for(serve: Serve) -> None:
    rig = serve({"raw": "1 + 2"})
    response = rig.client.post("/infill", json=from_vim())
    answer = response.json()
    assert response.status_code == 200
    assert list(answer) == VIM_FIELDS
    assert (answer["content"], answer["timings/predicted_n"], answer["truncated"]) == ("1 + 2", 3, False)


def test_the_prompt_stands_right_before_the_hole_and_other_files_are_context(serve: Serve) -> None:
    rig = serve()
    rig.client.post("/infill", json=from_vim())
    (call,) = rig.calls()
    assert (call["prefix"], call["suffix"]) == ("import os\n\nx = ", "\nprint(x)\n")
    assert call["extra"] == [{"path": "b.py", "text": "y = 3\n"}]


def test_llama_vscode_gets_all_fields(serve: Serve) -> None:
    answer = serve({"raw": "1 + 2"}).client.post("/infill", json=from_vscode()).json()
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("1 + 2", True, "eos")
    assert answer["tokens_predicted"] == answer["timings"]["predicted_n"] == 3
    assert answer["timings"]["predicted_ms"] >= 0
    assert answer["model"].startswith("scripted:")
    assert isinstance(answer["generation_settings"], dict)


def test_nothing_to_predict_loads_the_model_and_fills_nothing(serve: Serve) -> None:
    rig = serve()
    warm_up = from_vim(input_prefix="", input_suffix="", prompt="", n_predict=0, t_max_predict_ms=1)
    assert rig.client.post("/infill", json={**warm_up, "response_fields": [""]}).json() == {}
    assert rig.client.post("/infill", json=from_vscode(n_predict=0)).json()["content"] == ""
    rig.wait_until(lambda: rig.client.get("/health").json()["state"] == "ready")
    assert rig.calls() == []


@pytest.mark.parametrize(
    ("asked", "canvas"), [(0, None), (1, 1), (31, 31), (32, 32), (128, 32), (-1, 32), (10**30, 32)]
)
def test_a_small_limit_is_the_canvas_and_a_large_one_leaves_it_to_the_engine(
    serve: Serve, asked: int, canvas: int | None
) -> None:
    rig = serve()
    assert rig.client.post("/infill", json=from_vim(n_predict=asked)).status_code == 200
    assert [call["max_tokens"] for call in rig.calls()] == ([] if canvas is None else [canvas])


def test_both_time_limits_together_are_the_deadline(serve: Serve) -> None:
    rig = serve(HANG)
    request = from_vscode(t_max_prompt_ms=20, t_max_predict_ms=30)
    answer = rig.client.post("/infill", json=request).json()
    assert (answer["content"], answer["stop_type"]) == ("", "limit")


def test_a_stop_text_ends_the_content(serve: Serve) -> None:
    rig = serve({"raw": "1 + 2 + 3"})
    answer = rig.client.post("/infill", json=from_vscode(stop=["", "3", " + 2"])).json()
    assert (answer["content"], answer["stop_type"], answer["stopping_word"]) == ("1", "word", " + 2")


def test_a_stream_is_events_of_which_the_last_says_stop(serve: Serve) -> None:
    response = serve({"raw": "1 + 2"}).client.post("/infill", json=from_vscode(stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.removesuffix("\n\n").split("\n\n")
    first, last = (json.loads(block.removeprefix("data: ")) for block in blocks)
    assert (first["content"], first["stop"]) == ("1 + 2", False)
    assert (last["content"], last["stop"]) == ("", True)
    assert "timings" in last


def test_null_is_as_good_as_nothing(serve: Serve) -> None:
    names = (
        "prompt",
        "input_extra",
        "n_predict",
        "t_max_predict_ms",
        "temperature",
        "seed",
        "stop",
        "stream",
    )
    request = {"input_prefix": "x = ", "input_suffix": "\n", **dict.fromkeys(names)}
    response = serve().client.post("/infill", json=request)
    assert (response.status_code, response.json()["content"]) == (200, "1 + 2")


def test_values_beyond_ours_are_taken_for_the_nearest(serve: Serve) -> None:
    request = from_vscode(seed=-1, temperature=-3.5, t_max_predict_ms=10**40)
    assert serve().client.post("/infill", json=request).json()["content"] == "1 + 2"


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_prefix": 5},
        {"input_suffix": None},
        {"input_extra": [{"filename": "a"}]},
        {"stop": "x"},
        {"prompt": [1, 2, 3]},
    ],
)
def test_a_field_that_cannot_be_read_is_named(shared: Any, wrong: dict[str, object]) -> None:
    response = shared.client.post("/infill", json=from_vim(**wrong))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(next(iter(wrong)))


def test_a_client_that_leaves_cancels_its_fill(serve: Serve) -> None:
    rig = serve(HANG, {"raw": "2"}, parallel=1)
    with rig.ask(from_vim(t_max_predict_ms=0), "/infill"):
        rig.wait_for_call()
    assert rig.client.post("/infill", json=from_vim()).json()["content"] == "2"
