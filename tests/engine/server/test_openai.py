"""POST /v1/completions, as OpenAI's own client for Python uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

Serve = Callable[..., Any]

HANG = {"raw": "", "hang": True}
KEY = "a-token-of-ours"


@pytest.fixture
def connect(serve: Serve) -> Iterator[Callable[..., tuple[Any, openai.OpenAI]]]:
    clients: list[openai.OpenAI] = []

    def start(*entries: dict[str, object], key: str = KEY, **options: Any) -> tuple[Any, openai.OpenAI]:
        rig = serve(*entries, token=KEY, **options)
        clients.append(openai.OpenAI(base_url=f"{rig.url}/v1", api_key=key, max_retries=0))
        return rig, clients[-1]

    yield start
    for client in clients:
        client.close()


def test_prompt_and_suffix_are_the_sides_of_a_hole(connect: Callable[..., Any]) -> None:
    rig, client = connect({"raw": "1 + 2"})
    completion = client.completions.create(
        model="any", prompt="x = ", suffix="\n", max_tokens=12, temperature=0
    )
    (choice,) = completion.choices
    assert (choice.text, choice.finish_reason, choice.index) == ("1 + 2", "stop", 0)
    assert completion.object == "text_completion"
    assert completion.usage.completion_tokens == 3
    (call,) = rig.calls()
    assert (call["prefix"], call["suffix"], call["max_tokens"]) == ("x = ", "\n", 12)


def test_without_a_suffix_the_hole_is_at_the_end(connect: Callable[..., Any]) -> None:
    rig, client = connect()
    assert client.completions.create(model="any", prompt=["x = "]).choices[0].text == "1 + 2"
    assert rig.calls()[0]["suffix"] == ""


def test_n_asks_for_candidates(connect: Callable[..., Any]) -> None:
    rig, client = connect()
    choices = client.completions.create(model="any", prompt="x = ", n=3, seed=-1).choices
    assert [choice.index for choice in choices] == list(range(len(choices)))
    assert rig.calls()[0]["candidates"] == 3


def test_nothing_worth_suggesting_is_an_empty_text(connect: Callable[..., Any]) -> None:
    _, client = connect({"raw": ""})
    assert [choice.text for choice in client.completions.create(model="any", prompt="x").choices] == [""]


@pytest.mark.parametrize("stop", [" + ", [" + 2", " + "]])
def test_a_stop_text_ends_the_text(connect: Callable[..., Any], stop: str | list[str]) -> None:
    _, client = connect({"raw": "1 + 2"})
    assert client.completions.create(model="any", prompt="x = ", stop=stop).choices[0].text == "1"


def test_a_stream_carries_the_text_and_ends(connect: Callable[..., Any]) -> None:
    rig, client = connect({"raw": "1 + 2"})
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage = client.completions.create(model="any", prompt="x = ", suffix="\n", **options)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "1 + 2"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert (usage.choices, usage.usage.completion_tokens) == ([], 3)
    request = {"prompt": "x = ", "stream": True}
    assert rig.client.post("/v1/completions", json=request).text.endswith("\n\ndata: [DONE]\n\n")


def test_the_models_are_listed(connect: Callable[..., Any]) -> None:
    _, client = connect()
    assert [model.id for model in client.models.list()] == ["tenon-test"]


def test_a_wrong_key_is_an_authentication_error_that_does_not_tell_the_right_one(
    connect: Callable[..., Any],
) -> None:
    _, client = connect(key="wrong")
    with pytest.raises(openai.AuthenticationError) as caught:
        client.completions.create(model="any", prompt="x")
    assert KEY not in str(caught.value)


def test_a_bad_request_says_what_is_wrong(connect: Callable[..., Any]) -> None:
    _, client = connect()
    with pytest.raises(openai.BadRequestError, match="n: Input should be less than or equal to 16"):
        client.completions.create(model="any", prompt="x", n=17)
    with pytest.raises(openai.BadRequestError, match="prompt"):
        client.completions.create(model="any", prompt=["x", "y"])


def test_a_failing_model_says_so(connect: Callable[..., Any]) -> None:
    _, client = connect({"raw": "", "fail": "the numbers mean nothing"})
    with pytest.raises(openai.InternalServerError, match="the numbers mean nothing") as caught:
        client.completions.create(model="any", prompt="x")
    assert caught.value.code == "model_failed"


def test_a_client_that_gives_up_cancels_its_fill(connect: Callable[..., Any]) -> None:
    _, client = connect(HANG, {"raw": "2"}, parallel=1)
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(model="any", prompt="x = ", timeout=httpx.Timeout(20, read=0.2))
    assert client.completions.create(model="any", prompt="x = ").choices[0].text == "2"
