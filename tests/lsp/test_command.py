"""`tenon lsp`: what it says of bad usage, and that a port serves one client alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "tenon_engine", "lsp"]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(str(Path(__file__).parents[2] / name) for name in ("engine", "lsp"))
}


@pytest.mark.parametrize("port", ["-1", "99999", "x"])
def test_a_bad_port_is_one_line(port: str) -> None:
    done = subprocess.run([*COMMAND, f"--tcp={port}"], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def message(content: dict[str, object]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **content}).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


INITIALIZE = message({"id": 1, "method": "initialize", "params": {"processId": None, "capabilities": {}}})


def read(stream: socket.SocketIO) -> dict[str, object]:
    length = 0
    while (line := stream.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    data = b""
    while len(data) < length:
        data += stream.read(length - len(data)) or b""
    answer: dict[str, object] = json.loads(data)
    return answer


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "x"}')
    command = [*COMMAND, "--tcp", "0", "--model", f"scripted:{script}"]
    environment = ENVIRONMENT | {"TENON_RUNTIME": str(tmp_path / "run")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r":(\d+)$", process.stderr.readline().strip())
        assert found is not None
        yield int(found.group(1))
        process.kill()


def test_a_port_serves_the_first_client_that_speaks_the_protocol_and_nobody_else(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as page:
        page.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        with contextlib.suppress(ConnectionResetError):
            assert page.recv(100) == b""
    with socket.create_connection(("127.0.0.1", port)) as editor:
        editor.sendall(INITIALIZE)
        stream = editor.makefile("rb", buffering=0)
        assert read(stream)["id"] == 1
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=2)
        editor.sendall(message({"id": 2, "method": "shutdown"}))
        assert read(stream)["id"] == 2
