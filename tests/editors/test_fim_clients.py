"""What docs/editors/fim-clients.md tells other people's clients to ask, asked of a real engine with a token."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from tests.editors.conftest import SOURCE_FOLDERS
from tests.editors.pages import block

PAGE = "fim-clients.md"
TOKEN = "a-token-of-ours"
PREFIX, SUFFIX, FILL = "def add(a, b):\n    return ", "\n", "a + b"

Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(tmp_path: Path, script: Callable[..., str]) -> Iterator[Ask]:
    """Posts to a route of the page's engine, as who has its token."""
    (tmp_path / "token").write_text(TOKEN, "utf-8")
    arguments = ["--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token"), "--model", script(FILL)]
    command = [sys.executable, "-m", "tenon_engine", "engine", "run", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCE_FOLDERS))}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", engine.stdout.readline())
        assert found is not None
        place = found.group()

        def post(url: str, message: object) -> httpx.Response:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            return httpx.post(url.replace("127.0.0.1:8012", place), json=message, headers=headers, timeout=30)

        yield post
        engine.terminate()


def test_llama_vim_finds_infill(ask: Ask) -> None:
    addresses = set(re.findall(r"'(http://\S+)'", block(PAGE, "vim")))
    (url,) = addresses
    fields = ["content", "timings/predicted_n", "truncated"]
    answer = ask(url, _infill(response_fields=fields)).json()
    assert answer == {"content": FILL, "timings/predicted_n": 3, "truncated": False}


def test_llama_vscode_finds_infill(ask: Ask) -> None:
    settings = json.loads(block(PAGE, "jsonc"))
    answer = ask(settings["llama-vscode.endpoint"] + "/infill", _infill()).json()
    assert (answer["content"], answer["timings"]["predicted_n"]) == (FILL, 3)


def test_continue_gets_a_stream_of_texts(ask: Ask) -> None:
    (base,) = re.findall(r"apiBase: (\S+)", block(PAGE, "yaml"))
    # What is undefined there is left out, what is null is sent.
    request = {"frequency_penalty": None, "presence_penalty": None, "top_p": None, "stop": ["\n\n"]}
    answer = ask(urljoin(base, "completions"), _sides(max_tokens=32, temperature=0.01, **request))
    assert _streamed(answer) == FILL


def test_minuet_gets_a_stream_of_texts(ask: Ask) -> None:
    (url,) = re.findall(r"end_point = '(\S+)'", block(PAGE, "lua"))
    assert _streamed(ask(url, _sides(max_tokens=32))) == FILL


def _infill(**more: object) -> dict[str, object]:
    before, _, line = PREFIX.rpartition("\n")
    sides = {"input_prefix": f"{before}\n", "prompt": line, "input_suffix": SUFFIX, "input_extra": []}
    limits = {"n_predict": 128, "t_max_prompt_ms": 500, "t_max_predict_ms": 4000}
    return {**sides, **limits, "stream": False, "cache_prompt": True, **more}


def _sides(**more: object) -> dict[str, object]:
    return {"model": "tenon-0.5b", "prompt": PREFIX, "suffix": SUFFIX, "stream": True, **more}


def _streamed(answer: httpx.Response) -> str:
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    choices: list[Any] = [json.loads(event)["choices"][0] for event in events]
    return "".join(choice["text"] for choice in choices)
