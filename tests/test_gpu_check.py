"""The script of GPU checks runs here, too: on the CPU, with everything that needs no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_check.py"


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    found = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    (line,) = found.stdout.splitlines()
    return found.returncode, json.loads(line)


def test_the_checks_pass_on_the_cpu() -> None:
    code, report = run("--device", "cpu", "--quick")
    failed = {name: check for name, check in report["checks"].items() if check.get("ok") is False}
    assert (failed, code, report["ok"]) == ({}, 0, True)
    for family in ("llada", "dream", "dreamon", "gemma"):
        for check in ("other device", "cache", "together", "repeatable", "candidates", "bench"):
            assert report["checks"][f"{family}: {check}"]["ok"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_fails_nobody() -> None:
    code, report = run()
    assert code == 0
    assert report.keys() == {"skipped"}
