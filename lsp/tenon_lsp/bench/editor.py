"""The smallest editor there can be: a server process, its messages, documents. Knows nothing of what is measured."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tenon_lsp.bench.documents import PACKAGES
from tenon_lsp.convert import ACCEPTED_COMMAND
from tenon_lsp.positions import Encoding
from tenon_lsp.text import Text

PATIENCE_S = 60.0  # for one reply
AUTOMATIC, INVOKED = 2, 1

Json = dict[str, Any]


class ServerLeft(Exception):  # noqa: N818
    """The server has ended, or answers no more."""


@dataclasses.dataclass(slots=True)
class Document:
    """An open document."""

    uri: str
    text: Text
    version: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """A message of the server, and when it came."""

    message: Json
    at_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and how long it took from the moment when the request was written."""

    message: Json
    elapsed_ms: float

    @property
    def texts(self) -> list[str]:
        """What an inline completion offers."""
        return [item["insertText"] for item in self.message.get("result", {}).get("items", [])]


class Editor:
    """A server that runs with a scripted model, from its start on; leaving the `with` block ends it.

    Messages are made first and sent afterwards, so that making them is not measured.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_path = folder / "server.log"
        self._script_path = folder / "script.json"
        self._ids = itertools.count(1)
        self._arrivals: queue.SimpleQueue[Arrival | None] = queue.SimpleQueue()
        self.says("")
        command = [sys.executable, "-m", "tenon_engine", "lsp", "--model", f"scripted:{self._script_path}"]
        sources = os.pathsep.join(str(package.parent) for package in PACKAGES)
        self._started_s = time.perf_counter()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": sources},
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Editor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.ask(self.request("shutdown"))
            self.send(notification("exit"))
            self.process.wait(PATIENCE_S)
        self.process.kill()
        self.process.wait()

    def initialize(self, **settings: object) -> float:
        """Introduce ourselves; how long it took from the start of the process to the reply, in ms."""
        parameters = {
            "processId": os.getpid(),
            "rootUri": self.folder.as_uri(),
            "capabilities": {"textDocument": {"inlineCompletion": {}}},
            "initializationOptions": settings,
        }
        request = self.request("initialize", parameters)
        self.send(request)
        arrival = self.reply_to(request)
        self.send(notification("initialized", {}))
        return (arrival.at_s - self._started_s) * 1e3

    def says(self, raw: str, **entry: object) -> None:
        """What the model answers from now on."""
        draft = self._script_path.with_suffix(".new")
        draft.write_text(json.dumps({"raw": raw, **entry}), encoding="utf-8")
        draft.replace(self._script_path)

    def call_bytes(self) -> int:
        """How much the model has written down of what it was asked: it grows with every call."""
        calls = Path(f"{self._script_path}.calls.jsonl")
        return calls.stat().st_size if calls.exists() else 0

    def open(self, name: str, language: str, source: str) -> Document:
        """Open a document."""
        document = Document(f"{self.folder.as_uri()}/{name}", Text.of(source))
        item = {"uri": document.uri, "languageId": language, "version": document.version, "text": source}
        self.send(notification("textDocument/didOpen", {"textDocument": item}))
        return document

    def change(self, document: Document, start: int, end: int, new: str) -> Json:
        """The message of an edit; the document has it already."""
        edit = {"range": {"start": _position(document, start), "end": _position(document, end)}, "text": new}
        document.text = document.text.edited(start, end, new)
        return self._changed(document, edit)

    def replace(self, document: Document, source: str) -> Json:
        """The message of a new text; the document has it already."""
        document.text = Text.of(source)
        return self._changed(document, {"text": source})

    def inline(self, document: Document, offset: int, trigger: int = AUTOMATIC) -> Json:
        """The request for an inline completion."""
        place = {"textDocument": {"uri": document.uri}, "position": _position(document, offset)}
        return self.request("textDocument/inlineCompletion", place | {"context": {"triggerKind": trigger}})

    def probe(self) -> Json:
        """A request that costs nothing: its reply says that everything before it has been read."""
        return self.request("workspace/executeCommand", {"command": ACCEPTED_COMMAND, "arguments": []})

    def request(self, method: str, params: Json | None = None) -> Json:
        """A request with a number of its own."""
        return notification(method, params) | {"id": next(self._ids)}

    def ask(self, *messages: Json) -> Reply:
        """Send messages in one piece, and wait for the reply to the last one."""
        started_s = self.send(*messages)
        arrival = self.reply_to(messages[-1])
        return Reply(arrival.message, (arrival.at_s - started_s) * 1e3)

    def send(self, *messages: Json) -> float:
        """Write messages in one piece; when that began."""
        assert self.process.stdin is not None
        piece = b"".join(map(_frame, messages))
        started_s = time.perf_counter()
        self.process.stdin.write(piece)
        self.process.stdin.flush()
        return started_s

    def reply_to(self, request: Json) -> Arrival:
        """The reply to a request; whatever comes before it is dropped."""
        while (arrival := self.next_arrival()).message.get("id") != request["id"]:
            pass
        return arrival

    def next_arrival(self) -> Arrival:
        """The next message of the server."""
        try:
            arrival = self._arrivals.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise ServerLeft(f"the server does not answer, see {self.log_path}") from None
        if arrival is None:
            raise ServerLeft(f"the server has left, see {self.log_path}")
        return arrival

    def _changed(self, document: Document, change: Json) -> Json:
        document.version += 1
        head = {"uri": document.uri, "version": document.version}
        return notification("textDocument/didChange", {"textDocument": head, "contentChanges": [change]})

    def _listen(self) -> None:
        for body in self._bodies():
            at_s = time.perf_counter()
            self._arrivals.put(Arrival(json.loads(body), at_s))
        self._arrivals.put(None)

    def _bodies(self) -> Iterator[bytes]:
        stream = self.process.stdout
        assert stream is not None
        while lines := [*iter(lambda: stream.readline().strip(), b"")]:
            head = dict(line.lower().split(b": ", 1) for line in lines)
            yield stream.read(int(head[b"content-length"]))


def notification(method: str, params: Json | None = None) -> Json:
    """A message that nobody answers."""
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def cancellation(request: Json) -> Json:
    """The message that a request is not wanted any more."""
    return notification("$/cancelRequest", {"id": request["id"]})


def _position(document: Document, offset: int) -> Json:
    return dataclasses.asdict(document.text.position(offset, Encoding.UTF_16))


def _frame(message: Json) -> bytes:
    body = json.dumps(message).encode("ascii")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
