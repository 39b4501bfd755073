"""Runs a program written by a model in a subprocess with limits, and says whether it ran to its end.

Covered: accidents.
* An endless loop (wall clock and CPU time), a memory hog (address space), a huge file (size per file).
* A flood of processes: none may be started, unless the user is root, whom that limit does not bind. What is
  left of the process group is killed at the end.
* Waiting for input (there is none), noise (output is dropped), litter (it has a temporary folder of its own).
* Leaving early with `sys.exit(0)` or `os._exit(0)`, printing "passed": only a random token, handed back after
  the last line, counts.
* Secrets in environment variables (not passed on), packages of the user's own site folder (`python -I`).

Not covered: malice. The program runs as the user. It can read and delete the user's files, use the network,
fill the disk with many small files, leave the process group (`setsid`) and live on, or find the token in the
memory of its own interpreter. Code that you fear needs a container or a virtual machine around all this.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tenon_engine.errors import BadRequestError

_CHILD = Path(__file__).with_name("sandbox_child.py")


class Verdict(enum.Enum):
    """How a program ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use."""

    seconds: float = 5.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 16 << 20


def run_program(source: str, limits: Limits = Limits()) -> Verdict:
    """Run Python source under `limits`; PASSED only when its last line was reached without an exception."""
    if os.name != "posix":
        raise BadRequestError("Tests run on Linux and macOS only: the sandbox has no limits elsewhere")
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="tenon-sandbox-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Half of a surrogate pair shall fail the program, which cannot decode it, and not the evaluation.
        (folder / "program.py").write_text(source, encoding="utf-8", errors="surrogatepass", newline="")
        if not _ends_in_time(folder, token, limits):
            return Verdict.TIMED_OUT
        return Verdict.PASSED if _read_token(folder) == token else Verdict.FAILED


def _ends_in_time(folder: Path, token: str, limits: Limits) -> bool:
    cpu_seconds = math.ceil(limits.seconds) + 1
    numbers = [str(number) for number in (limits.memory_bytes, limits.file_bytes, cpu_seconds)]
    process = subprocess.Popen(
        [sys.executable, "-I", str(_CHILD), *numbers],
        cwd=folder,
        env={"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(folder), "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.communicate(token.encode(), timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _kill_group(process)
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # The group outlives its leader while children of it run; it is gone only when all are.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_token(folder: Path) -> str:
    try:
        with (folder / "token").open("rb") as file:
            return file.read(64).decode("ascii", errors="replace")
    except OSError:
        return ""
