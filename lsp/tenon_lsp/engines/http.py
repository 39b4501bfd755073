"""A Tenon engine over HTTP, in its own protocol: fills as JSON lines, its news as a stream that never ends.

Owns the connection and the fills under way. Where the engine is, a function says that is asked for every new
connection. Does not know what is filled, who is told of faults, or whose process the engine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

from tenon_engine.wire import (
    EngineInfo,
    FillRequest,
    FillResult,
    FillStep,
    event_from_json,
    info_from_json,
    to_json,
)
from tenon_lsp.engines.client import EngineError, EngineFault, EngineState, StepListener
from tenon_lsp.engines.connection import Connection, Endpoint, RefusedError
from tenon_lsp.engines.health import Health, Listeners

SESSION_HEADER = "X-Session-Id"  # by which a cluster sends a session to one replica
FILL_ROUTE = "/v1/infill"
NEWS_ROUTE = "/v1/events"
FIRST_NEWS_S = 15.0  # an engine says at once how it is, even while it loads
NEWS_SILENCE_S = 40.0  # the engine says that it is there every 15 s
NEWS_AGAIN_S = 1.0

_STATES = {
    "idle": EngineState.STOPPED,
    "loading": EngineState.LOADING,
    "ready": EngineState.READY,
    "failed": EngineState.FAILED,
    "closed": EngineState.STOPPED,  # it was told to end
}
_LOADING_FAILED = ("unknown_model", "weights_missing", "weights_corrupt", "storage")
_NOT_FOR_US = (401, 403, 404)


@dataclasses.dataclass(frozen=True, slots=True)
class _News:
    """What an engine tells of itself."""

    state: EngineState
    doing: str
    percent: int | None
    info: EngineInfo | None
    failure: str
    is_last: bool


class HttpEngine:
    """An Engine behind HTTP.

    A connection that breaks is told once, as what `lost` makes of it; the next fill, after a pause, looks for the
    engine again. Where `model` is named, an engine with another one refuses. Sessions are made this client's own,
    for other clients have documents of the same name.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        listeners: Listeners,
        *,
        model: str | None = None,
        lost: Callable[[EngineError], EngineError] = lambda error: error,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info: EngineInfo | None = None
        self._locate = locate
        self._model = model
        self._lost = lost
        self._health = Health(listeners, clock)
        self._client_id = uuid.uuid4().hex
        self._linking: asyncio.Task[_Link] | None = None  # stays when it is done, as long as its link holds
        self._link: _Link | None = None
        self._is_closed = False

    async def fill(self, request: FillRequest, on_step: StepListener | None = None) -> FillResult:
        """See Engine."""
        self._health.check()
        link = await self._linked()
        with self._health.filling():
            try:
                return await link.fill(self._message(request, with_steps=on_step is not None), on_step)
            except RefusedError as refusal:
                raise self._judged(link, refusal) from None
            except EngineError as error:
                raise self._dropped(link, error) from None

    async def warm(self) -> None:
        """See Engine; an engine loads when it starts. What goes wrong is told."""
        with contextlib.suppress(EngineError):
            self._health.check()
            await self._linked()

    async def close(self) -> None:
        """See Engine. The engine itself goes on, for others."""
        self._is_closed = True
        link = self._link
        self._linking = self._link = None
        if link is not None:
            await link.close()  # else what is linking finds that it is not wanted any more
        self._health.rest(EngineState.STOPPED)

    def _message(self, request: FillRequest, *, with_steps: bool) -> dict[str, object]:
        message = {**to_json(request), "stream": True, "steps": with_steps}
        if request.session:
            name = f"{self._client_id}/{request.session}"  # it may hold a path, which is nobody's business
            message["session"] = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        if self._model is not None:
            message["model"] = self._model
        return message

    async def _linked(self) -> _Link:
        """The link that holds. Whoever waits may be cancelled: linking goes on."""
        if self._is_closed:
            raise EngineError(EngineFault.DIED, "the engine was closed")
        if self._linking is None:
            self._linking = asyncio.create_task(self._connect())
            self._linking.add_done_callback(_retrieve)
        return await asyncio.shield(self._linking)

    async def _connect(self) -> _Link:
        task = asyncio.current_task()
        self._health.rest(EngineState.STARTING)
        try:
            link = _Link(await Connection.open(self._locate), self._take, self._dropped)
        except EngineError as error:
            if self._linking is task:
                self._linking = None
                self._health.failed(error)
            raise
        if self._linking is task:
            self._link = link
            try:  # of a link that breaks, `_dropped` is told
                await asyncio.wait_for(asyncio.shield(link.first_news), FIRST_NEWS_S)
            except asyncio.TimeoutError:
                raise self._dropped(link, link.silent()) from None
            return link
        await link.close()
        raise EngineError(EngineFault.DIED, "the engine was closed")

    def _take(self, news: _News) -> None:
        self.info = news.info or self.info
        if news.is_last and self._link is not None:
            self._unlink(self._link)
        if news.state is EngineState.FAILED:
            self._health.failed(EngineError(EngineFault.STARTING_FAILED, news.failure))
            return
        self._health.rest(news.state)
        if news.state is EngineState.LOADING and news.doing:
            self._health.progress(news.doing, news.percent)

    def _dropped(self, link: _Link, error: EngineError) -> EngineError:
        """Give a link up, and with it every fill that is under way; what to raise for it."""
        fault = self._lost(error) if link.had_news else error
        if self._link is link:
            self._unlink(link)
            self._health.failed(fault)
        return fault

    def _unlink(self, link: _Link) -> None:
        self._linking = self._link = None
        link.abandon()

    def _judged(self, link: _Link, refusal: RefusedError) -> EngineError:
        """What a refusal means: for this fill alone, for a while, or for the connection."""
        if refusal.kind == EngineFault.BAD_REQUEST.value:
            return EngineError(EngineFault.BAD_REQUEST, refusal.complaint)
        if refusal.kind == EngineFault.BUSY.value:
            fault = EngineError(EngineFault.BUSY, refusal.complaint)
            self._health.pause(fault, refusal.retry_after_s)
            return fault
        if refusal.kind in _LOADING_FAILED:
            fault = EngineError(EngineFault.STARTING_FAILED, refusal.complaint)
            self._health.failed(fault)
            return fault
        if refusal.kind and refusal.status not in _NOT_FOR_US:
            return EngineError(EngineFault.FAILED, refusal.complaint)
        return self._dropped(link, refusal)


def _retrieve(task: asyncio.Task[_Link]) -> None:
    """Look at a failure, so that asyncio does not complain when nobody waits any more."""
    if not task.cancelled():
        task.exception()


class _Link:
    """One connection, and the task that reads the engine's news on it."""

    def __init__(
        self,
        connection: Connection,
        on_news: Callable[[_News], None],
        on_end: Callable[[_Link, EngineError], object],
    ) -> None:
        self.first_news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._on_news = on_news
        self._on_end = on_end
        self._closing: asyncio.Task[None] | None = None
        self._listening = asyncio.create_task(self._listen())

    @property
    def had_news(self) -> bool:
        """Whether there is, or was, an engine at the other end."""
        return self.first_news.done() and self.first_news.exception() is None

    def silent(self) -> EngineError:
        """What to say of an other end that lets one in and says nothing."""
        return self._connection.silent()

    async def fill(self, message: Mapping[str, object], on_step: StepListener | None) -> FillResult:
        """Ask, pass on the steps, return the result; leaving early closes the answer, which cancels the fill."""
        session = str(message.get("session", ""))
        headers = {SESSION_HEADER: session} if session else {}
        async with self._connection.answer("POST", FILL_ROUTE, message, headers=headers) as response:
            async for line in self._connection.documents(response):
                event = self._event(line)
                if isinstance(event, FillResult):
                    return event
                if on_step is not None:
                    on_step(event)
        raise self._connection.malformed("it ends without a result")

    def abandon(self) -> None:
        """Close it, without waiting for that; fills under way fail."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())

    async def close(self) -> None:
        """The same, and wait."""
        self.abandon()
        assert self._closing is not None
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._listening.cancel()
        if not self.first_news.done():
            self._fail(EngineError(EngineFault.DIED, "the engine was closed"))
        await self._connection.close()

    def _event(self, line: object) -> FillStep | FillResult:
        match line:
            case {"error": {"code": str(kind), "message": str(complaint)}}:
                raise RefusedError(complaint, status=200, complaint=complaint, kind=kind)
            case {"step": form} | {"result": form}:
                with self._understanding():
                    return event_from_json(form)
        raise self._connection.malformed("a line of it is no step, result or error")

    async def _listen(self) -> None:
        """Take the news; where the engine ends the stream but not itself, ask for it again."""
        try:
            while True:
                await self._listen_once()
                if not self.had_news:
                    raise self._connection.malformed("it is empty")
                await asyncio.sleep(NEWS_AGAIN_S)
        except EngineError as error:
            self._on_end(self, error)
            if not self.first_news.done():
                self._fail(error)

    async def _listen_once(self) -> None:
        connection = self._connection
        async with connection.answer("GET", NEWS_ROUTE, silence_s=NEWS_SILENCE_S) as response:
            async for line in connection.documents(response):
                with self._understanding():
                    news = _news(line)
                self._on_news(news)
                if not self.first_news.done():
                    self.first_news.set_result(None)

    def _fail(self, error: EngineError) -> None:
        self.first_news.set_exception(error)
        self.first_news.exception()  # seen: it may be that nobody waits

    @contextlib.contextmanager
    def _understanding(self) -> Iterator[None]:
        """A ValueError is of what the engine has sent."""
        try:
            yield
        except ValueError as error:
            raise self._connection.malformed(str(error)) from None


def _news(form: object) -> _News:
    """The news that `form` says; ValueError when it says none."""
    match form:
        case {"state": str(name), **rest} if name in _STATES:
            pass
        case _:
            raise ValueError("it is no news of an engine")
    match rest.get("progress"):
        case {"text": str(doing), "percent": int() | None as percent}:
            pass
        case _:
            doing, percent = "", None
    info = None if rest.get("info") is None else info_from_json(rest["info"])
    failure = rest.get("failure")
    sentence = failure if isinstance(failure, str) and failure else "the engine's model cannot be loaded"
    return _News(_STATES[name], doing, percent, info, sentence, is_last=name == "closed")
