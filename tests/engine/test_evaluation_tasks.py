"""Reading infilling tasks: what is accepted, and what a user is told about the rest."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tenon_engine.errors import InputFileError
from tenon_engine.evaluation.tasks import Task, read_tasks

SAMPLE = Path(__file__).parents[1] / "data" / "infilling_sample.jsonl"
TASK = Task(
    "one", "f", "def f():\n    return ", "\n", "1", "def check(candidate):\n    assert candidate() == 1\n"
)
LINE = json.dumps({name: getattr(TASK, name) for name in Task.__slots__})


def test_the_sample_holds_eight_tasks_with_names_of_their_own() -> None:
    tasks = read_tasks(SAMPLE)
    assert len({task.task_id for task in tasks}) == len(tasks) == 8


def test_a_gzipped_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    packed = tmp_path / "tasks.jsonl.gz"
    packed.write_bytes(gzip.compress(SAMPLE.read_bytes()))
    assert read_tasks(packed) == read_tasks(SAMPLE)


def test_blank_lines_crlf_line_ends_and_unknown_keys_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    line = json.dumps(json.loads(LINE) | {"note": 1})
    path.write_bytes(f"\r\n{line}\r\n\r\n{LINE}".encode())
    assert read_tasks(path) == (TASK, TASK)


def test_a_program_is_prompt_fill_suffix_tests_and_the_call_of_check() -> None:
    assert TASK.program("2") == (
        "def f():\n    return 2\n\ndef check(candidate):\n    assert candidate() == 1\n\ncheck(f)\n"
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no tasks"),
        (b"\n \n", "holds no tasks"),
        (LINE.encode() + b"\n{", "tasks.jsonl:2: not JSON"),
        (LINE.encode() + b"\n\n[]", "tasks.jsonl:3: a task is a JSON object"),
        (
            b'{"task_id": "a", "prompt": 1}',
            "tasks.jsonl:1: the task lacks text for entry_point, prompt, suffix",
        ),
        (LINE.replace('"f"', '"os.abort()"').encode(), "tasks.jsonl:1: entry_point is not a name"),
        (b"[" * 5_000, "tasks.jsonl:1: not JSON"),
        (b"\x1f\x8b\x08\x00", "is not UTF-8 text (byte 1)"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place_of_the_fault(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read_tasks(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gzip_file_that_is_none_or_cut_or_damaged_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(SAMPLE.read_bytes())
    path = tmp_path / "tasks.jsonl.gz"
    for content in (b"plain text", whole[:-20], whole[:40] + b"\xff" * 40 + whole[80:]):
        path.write_bytes(content)
        with pytest.raises(InputFileError, match="cannot be read"):
            read_tasks(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="does not exist"):
        read_tasks(tmp_path / "absent.jsonl")
    with pytest.raises(InputFileError, match="directory"):
        read_tasks(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputFileError, match="not a regular file"):
            read_tasks(tmp_path / "pipe")
