"""A real server on loopback around a real worker, whose model is scripted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from tenon_engine.config import EngineConfig
from tenon_engine.models import registry
from tenon_engine.server.app import build_app
from tenon_engine.server.guard import DEFAULT_LIMITS, Limits
from tenon_engine.server.punctual import PunctualProtocol
from tenon_engine.worker import Worker

LOOPBACK = "127.0.0.1"
NAME = "tenon-test"


@dataclasses.dataclass(frozen=True, slots=True)
class Rig:
    """One engine that listens: `client` talks to it, `script` is what its model reads."""

    worker: Worker
    app: Starlette
    port: int
    client: httpx.Client
    script: Path

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def calls(self) -> list[Any]:
        """What the model was given, call by call."""
        path = Path(f"{self.script}.calls.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_call(self, count: int = 1) -> None:
        """Until the model has been asked: what hangs says nothing."""
        self.wait_until(lambda: len(self.calls()) >= count)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until something is so that nobody tells; the time limit of the test is the limit."""
        while not is_so():
            time.sleep(0.005)

    def connect(self) -> socket.socket:
        connection = socket.create_connection((LOOPBACK, self.port))
        connection.settimeout(20)
        return connection

    def ask(self, message: object, path: str = "/v1/infill") -> socket.socket:
        """A connection on which this was asked, and nothing read yet."""
        connection, content = self.connect(), json.dumps(message).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        return connection

    @contextlib.contextmanager
    def on_unix_socket(self) -> Iterator[httpx.Client]:
        """A client of the same app that listens on a unix socket as well."""
        with tempfile.TemporaryDirectory() as folder:  # a short path: a socket's has 100 bytes
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path := f"{folder}/engine")
            listener.listen()
            transport = httpx.HTTPTransport(uds=path)
            with (
                running(self.app, listener, 10.0),
                httpx.Client(transport=transport, base_url="http://tenon") as client,
            ):
                yield client

    def metric(self, line: str) -> float:
        """The value of one line of /metrics, 0 when it is not there yet."""
        found = [
            text for text in self.client.get("/metrics").text.splitlines() if text.startswith(line + " ")
        ]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    with contextlib.ExitStack() as stack:

        def start(*entries: dict[str, object], **options: Any) -> Rig:
            return stack.enter_context(serving(tmp_path, *entries, **options))

        yield start


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One engine for tests that leave nothing behind."""
    with serving(tmp_path_factory.mktemp("shared")) as rig:
        yield rig


@contextlib.contextmanager
def serving(
    folder: Path,
    *entries: dict[str, object],
    token: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    head_seconds: float = 10.0,
    **scheduling: Any,
) -> Iterator[Rig]:
    """An engine that answers with these entries of a script, in turn."""
    script = folder / "script.json"
    script.write_text(json.dumps(entries or [{"raw": "1 + 2"}]), encoding="utf-8")
    worker = Worker(lambda _: registry.load_engine(EngineConfig(model=f"scripted:{script}")), **scheduling)
    app = build_app(worker, token=token, models=[NAME], limits=limits)
    listener = socket.create_server((LOOPBACK, 0), backlog=2048)
    port = listener.getsockname()[1]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with running(app, listener, head_seconds), httpx.Client(headers=headers, timeout=20) as client:
        client.base_url = f"http://{LOOPBACK}:{port}"
        try:
            yield Rig(worker, app, port, client, script)
        finally:
            worker.close()


@contextlib.contextmanager
def running(app: Starlette, listener: socket.socket, head_seconds: float) -> Iterator[None]:
    protocol = type("Protocol", (PunctualProtocol,), {"head_seconds": head_seconds})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
