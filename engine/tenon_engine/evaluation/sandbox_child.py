"""Runs inside the sandbox's subprocess: takes the limits on, runs `program.py`, then hands the token back.

Started as a script by `sandbox` with `python -I`: it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path


def main() -> None:
    """Run the program of the working folder; arguments: bytes of memory, bytes per file, seconds of CPU."""
    # After the token stdin is at its end: the program can neither read the token there nor wait for input.
    token = sys.stdin.readline()
    source = Path("program.py").read_text(encoding="utf-8")
    token_file = Path("token").resolve()
    memory_bytes, file_bytes, cpu_seconds = map(int, sys.argv[1:4])
    sys.argv[1:] = []
    limit = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 1,  # of the user, this process included: no fork, unless the user is root
    }
    for kind, value in limit.items():
        # Systems refuse single kinds (macOS the address space); the others still hold.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    code = compile(source, "program.py", "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})  # noqa: S102 (what a sandbox is for)
    token_file.write_text(token, encoding="utf-8")
    # Threads or exit hooks of the program shall not hold the verdict up.
    os._exit(0)


if __name__ == "__main__":
    main()
