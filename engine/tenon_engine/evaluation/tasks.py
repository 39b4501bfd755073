"""Infilling tasks from a HumanEval-Infilling file (`.jsonl` or `.jsonl.gz`, one JSON object a line).

Knows nothing of engines, nor of how a program is run.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from pathlib import Path

from tenon_engine import source_file
from tenon_engine.errors import InputFileError


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A program with one hole; `test` defines `check`, which is called with the function `entry_point`."""

    task_id: str
    entry_point: str
    prompt: str
    suffix: str
    canonical_solution: str
    test: str

    def program(self, fill: str) -> str:
        """The program that raises unless `fill` in the hole passes the tests."""
        return f"{self.prompt}{fill}{self.suffix}\n{self.test}\ncheck({self.entry_point})\n"


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Every task of the file, in order; blank lines are skipped."""
    lines = _read_text(path).split("\n")
    tasks = tuple(
        _parse_task(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    )
    if not tasks:
        raise InputFileError(f"{path} holds no tasks")
    return tasks


def _read_text(path: Path) -> str:
    content = source_file.read_bytes(path)
    try:
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path} is not UTF-8 text (byte {error.start})") from error
    # A cut gzip file ends in EOFError, a damaged one in zlib.error, which is no OSError.
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputFileError(f"{path} cannot be read: {reason}") from error


def _parse_task(line: str, place: str) -> Task:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{place}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise InputFileError(f"{place}: a task is a JSON object")
    names = [field.name for field in dataclasses.fields(Task)]
    wrong = [name for name in names if not isinstance(row.get(name), str)]
    if wrong:
        raise InputFileError(f"{place}: the task lacks text for {', '.join(wrong)}")
    if not row["entry_point"].isidentifier():
        raise InputFileError(f"{place}: entry_point is not a name: {row['entry_point']!r}")
    return Task(**{name: row[name] for name in names})
