"""JSON-RPC over the pipes of a process: exact wire forms, cancellations in the middle, replies held back.

Knows framing, ids and processes; what the messages say is the client's business. Tests share one event loop;
`on_loop` runs a test on it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tests.lsp.document import Json

T = TypeVar("T")
P = ParamSpec("P")

PATIENCE_S = 120.0
CANCELLED, CONTENT_MODIFIED, METHOD_NOT_FOUND = -32800, -32801, -32601
ABANDONED = (CANCELLED, CONTENT_MODIFIED)


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """The event loop of all tests."""
    return asyncio.new_event_loop()


def run(work: Awaitable[T], patience_s: float = 240.0) -> T:
    """Run `work` on the tests' event loop."""
    return loop().run_until_complete(asyncio.wait_for(work, patience_s))


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An async test as pytest and hypothesis like it."""

    @functools.wraps(test)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return call


async def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as `condition()` holds: for what no message tells."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.005)


class RefusedError(Exception):
    """An error reply."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]


@dataclasses.dataclass(slots=True)
class Pending:
    """A request under way."""

    connection: Connection
    id: int
    message: asyncio.Future[Json]

    async def reply(self) -> Json:
        """The whole reply, result or error."""
        return await asyncio.wait_for(asyncio.shield(self.message), PATIENCE_S)

    async def result(self) -> Any:
        """The result; an error reply is raised."""
        reply = await self.reply()
        if "error" in reply:
            raise RefusedError(reply["error"])
        return reply["result"]

    async def items(self) -> list[Json]:
        """The items of an inline completion or a completion."""
        return items_of(await self.result())

    async def error_code(self) -> int | None:
        """The code of an error reply, None for a result."""
        reply = await self.reply()
        return int(reply["error"]["code"]) if "error" in reply else None

    def cancel(self) -> None:
        self.connection.send(self.cancellation())

    def cancellation(self) -> Json:
        return {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": self.id}}


def items_of(result: Any) -> list[Json]:
    """The items in any form the protocol allows for them."""
    found = result.get("items", []) if isinstance(result, dict) else result or []
    return list(found)


class Connection:
    """A process that speaks JSON-RPC on its pipes; its stderr goes to a file.

    A subclass says how a request of the process is answered.
    """

    def __init__(self, log_path: Path) -> None:
        self.notifications: list[Json] = []
        self.requests: list[Json] = []  # of the process to us
        self.strays: list[Json] = []  # replies to nothing we asked
        self.held: list[Json] = []  # of those, the ones not answered yet on purpose
        self.hold: set[str] = set()  # methods that wait for `release`
        self.process: asyncio.subprocess.Process
        self._log_path = log_path
        self._ids = itertools.count(1)
        self._pending: dict[int | None, asyncio.Future[Json]] = {}
        self._reader: asyncio.Task[None]

    def answer(self, method: str, params: Json) -> Any:
        """The result of a request of the process; a LookupError when there is no such method."""
        raise LookupError(method)

    async def spawn(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start the process."""
        with self._log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                limit=2**26,
            )
        self._reader = asyncio.ensure_future(self._read())

    async def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the end of the server's process; its exit code."""
        code = await asyncio.wait_for(self.process.wait(), patience_s)
        await self._reader
        return code

    def log(self) -> str:
        """What the server wrote to its stderr."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def send(self, *messages: Json) -> None:
        """Write messages in one piece."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(frame, messages)))

    def prepare(self, method: str, params: Any = None) -> tuple[Pending, Json]:
        """A request that is not sent yet, and its message."""
        number = next(self._ids)
        future: asyncio.Future[Json] = loop().create_future()
        self._pending[number] = future
        if self._reader.done():
            self._hang_up()
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        return Pending(self, number, future), message | ({} if params is None else {"params": params})

    def request(self, method: str, params: Any = None) -> Pending:
        """Send a request."""
        pending, message = self.prepare(method, params)
        self.send(message)
        return pending

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    async def barrier(self) -> None:
        """Return when the server has read everything sent so far."""
        await self.request("workspace/symbol", {"query": ""}).reply()

    async def cancel_all(self) -> None:
        """Cancel every request under way, and wait until each is answered."""
        under_way = [Pending(self, number, future) for number, future in self._pending.items() if number]
        self.send(*(pending.cancellation() for pending in under_way))
        for pending in under_way:
            await pending.reply()

    def release(self) -> None:
        """Answer what was held back, the newest first."""
        while self.held:
            self.send(self._answer(self.held.pop()))

    async def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            try:
                head = await stream.readuntil(b"\r\n\r\n")
                lines = dict(line.split(b": ", 1) for line in head.strip().split(b"\r\n"))
                body = await stream.readexactly(int(lines[b"Content-Length"]))
            except asyncio.IncompleteReadError:
                return self._hang_up()
            self._take(json.loads(body))

    def _hang_up(self) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError(f"the server has left: {self.log()[-2000:]}"))
                future.exception()  # nobody need be waiting for it

    def _take(self, message: Json) -> None:
        if "method" not in message:
            self._settle(message)
        elif "id" not in message:
            self.notifications.append(message)
        else:
            self.requests.append(message)
            if message["method"] in self.hold:
                self.held.append(message)
            else:
                self.send(self._answer(message))

    def _settle(self, message: Json) -> None:
        future = self._pending.pop(message.get("id"), None)
        if future is None:
            self.strays.append(message)
        else:
            future.set_result(message)

    def _answer(self, message: Json) -> Json:
        head = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            return head | {"result": self.answer(message["method"], message.get("params") or {})}
        except LookupError:
            return head | {"error": {"code": METHOD_NOT_FOUND, "message": f"no {message['method']} here"}}


def frame(message: Json) -> bytes:
    """A message as it goes over the wire."""
    body = json.dumps(message, ensure_ascii=False).encode("utf-8")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def children(pid: int) -> list[int]:
    """The processes that `pid` has started, and theirs (Linux)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[0] != "Z":
            parents[int(entry.parent.name)] = int(fields[1])
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [below for child in found for below in children(child)]


def is_alive(pid: int) -> bool:
    """Whether a process runs, zombies aside (Linux)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
