"""The engine as a child process: started on first use, spoken to in JSON lines, started again after it died.

Owns the process, its back-off and the fills under way; the lines are those of `tenon_engine.serve`.
Does not know what is filled, nor who is told of faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from tenon_engine.wire import FillRequest, FillResult, FillStep, event_from_json, info_from_json, to_json
from tenon_lsp.engine_client import EngineError, EngineFault, EngineInfo, EngineState, StepListener

LINE_BYTES_MAX = 64 << 20
EXIT_GRACE_S = 2.0  # from being told to end to being killed
PAUSE_S_MAX = 30.0

_SERVE = "import sys; sys.path[:] = filter(None, sys.path); from tenon_engine.serve import main; main()"

_Event = FillStep | FillResult | EngineError

logger = logging.getLogger(__name__)


def serve_command(model: str, *, log_level: str = "warning") -> list[str]:
    """The command of an engine with `model`.

    It is `python -m tenon_engine.serve`, but for the folder it is started in: with `-m`, Python would import a
    workspace's `json.py` or `torch.py` in place of the real one.
    """
    return [sys.executable, "-c", _SERVE, "--model", model, "--log-level", log_level]


def _tell_nobody(*news: object) -> None:
    pass


class ChildEngine:
    """An Engine in a process of its own, of which there is one at most.

    `on_fault` is told once per failed start and per death. Until `pause_s` has passed after it, fills fail at once
    with that same fault; then the next one starts the engine again.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        on_fault: Callable[[EngineError], None] = _tell_nobody,
        on_progress: Callable[[str, int | None], None] = _tell_nobody,
        on_state: Callable[[EngineState], None] = _tell_nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info: EngineInfo | None = None
        self._command = command
        self._on_fault = on_fault
        self._on_progress = on_progress
        self._on_state = on_state
        self._clock = clock
        self._state = EngineState.STOPPED
        self._loading: asyncio.Task[_Child] | None = None  # stays when it is done, as long as its child lives
        self._child: _Child | None = None
        self._fill_count = 0
        self._fault: EngineError | None = None
        self._failures_in_a_row = 0
        self._retry_at = 0.0
        self._is_closed = False

    async def fill(self, request: FillRequest, on_step: StepListener | None = None) -> FillResult:
        """See Engine."""
        child = await self._loaded()
        self._fill_count += 1
        self._enter(EngineState.BUSY)
        try:
            result = await child.fill(request, on_step)
        finally:
            self._fill_count -= 1
            if not self._fill_count and self._state is EngineState.BUSY:
                self._enter(EngineState.READY)
        self._failures_in_a_row = 0
        return result

    async def warm(self) -> None:
        """See Engine; what goes wrong is told to `on_fault`."""
        with contextlib.suppress(EngineError):
            await self._loaded()

    async def unload(self) -> None:
        """End the process, by force if need be, and with it every fill under way; the next fill starts another."""
        loading, child = self._loading, self._child
        self._loading = self._child = None
        self._enter(EngineState.STOPPED)
        if child is not None:
            await child.stop()
        elif loading is not None:
            await asyncio.wait([loading])  # it finds that it is not wanted any more, and ends its process

    async def close(self) -> None:
        """See Engine."""
        self._is_closed = True
        await self.unload()

    async def _loaded(self) -> _Child:
        """The child that is ready. Whoever waits may be cancelled: loading goes on."""
        if self._is_closed:
            raise EngineError(EngineFault.DIED, "the engine was closed")
        if self._loading is None:
            if self._fault is not None and self._clock() < self._retry_at:
                raise EngineError(self._fault.code, str(self._fault))
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(_retrieve)
        child = await asyncio.shield(self._loading)
        if child is not self._child:
            raise EngineError(EngineFault.DIED, "the engine ended as soon as it was ready")
        return child

    async def _load(self) -> _Child:
        task = asyncio.current_task()
        self._enter(EngineState.STARTING)
        try:
            child = await _Child.start(self._command, self._on_progress, self._failed)
        except OSError as error:
            sentence = f"the engine cannot be started: {error.strerror or error}"
            fault = EngineError(EngineFault.STARTING_FAILED, sentence)
            if self._loading is task:
                self._failed(fault)
            raise fault from error
        if self._loading is not task:
            await child.stop()
            raise EngineError(EngineFault.DIED, "the engine was stopped")
        self._child = child
        self._enter(EngineState.LOADING)
        self.info = await child.ready
        if self._child is child:  # else it is gone again
            self._enter(EngineState.READY)
        return child

    def _failed(self, fault: EngineError) -> None:
        self._loading = self._child = None
        self._failures_in_a_row += 1
        self._fault = fault
        self._retry_at = self._clock() + pause_s(self._failures_in_a_row)
        self._enter(EngineState.FAILED)
        self._on_fault(fault)

    def _enter(self, state: EngineState) -> None:
        if state is not self._state:
            self._state = state
            self._on_state(state)


def pause_s(failures_in_a_row: int) -> float:
    """How long an engine stays down: 0, 1, 2, 4 … 30 s."""
    return 0.0 if failures_in_a_row < 2 else min(PAUSE_S_MAX, 2.0 ** min(failures_in_a_row - 2, 30))


def _retrieve(task: asyncio.Task[_Child]) -> None:
    """Look at a failure, so that asyncio does not complain when nobody waits any more."""
    if not task.cancelled():
        task.exception()


class _Child:
    """One process: its lines, the fills that wait for an answer, its end."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        on_progress: Callable[[str, int | None], None],
        on_end: Callable[[EngineError], None],
    ) -> None:
        self.ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        assert process.stdin is not None and process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._on_progress = on_progress
        self._on_end = on_end
        self._numbers = itertools.count(1)
        self._unanswered: dict[int, asyncio.Queue[_Event]] = {}
        self._sentence = ""  # why it ended, where more is known than its exit code
        self._is_stopping = False
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        on_progress: Callable[[str, int | None], None],
        on_end: Callable[[EngineError], None],
    ) -> _Child:
        """Run `command`; its stderr is ours. Raises OSError."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=LINE_BYTES_MAX
        )
        return cls(process, on_progress, on_end)

    async def fill(self, request: FillRequest, on_step: StepListener | None) -> FillResult:
        """Ask, pass on the steps, return the result; a fill that is left unanswered is cancelled."""
        number = next(self._numbers)
        events: asyncio.Queue[_Event] = asyncio.Queue()
        self._unanswered[number] = events
        self._send({"id": number, "fill": to_json(request), "steps": on_step is not None})
        try:
            while True:
                event = await events.get()
                if isinstance(event, EngineError):
                    raise event
                if isinstance(event, FillResult):
                    return event
                if on_step is not None:
                    on_step(event)
        finally:
            if self._unanswered.pop(number, None) is not None:
                self._send({"cancel": number})

    async def stop(self) -> None:
        """Let the process end, and kill it if it does not."""
        self._is_stopping = True
        self._stdin.close()
        await asyncio.wait([self._listening], timeout=EXIT_GRACE_S)
        self._kill()
        await asyncio.wait([self._listening])
        await self._process.wait()

    async def _listen(self) -> None:
        """Take every line up to the end of the process, then fail whatever still waits."""
        try:
            while line := await self._stdout.readline():
                self._take(line)
            await asyncio.wait_for(self._process.wait(), EXIT_GRACE_S)
        except asyncio.TimeoutError:
            self._sentence = "the engine closed its output but did not end"
        except ValueError as error:
            self._sentence = f"the engine wrote what it should not: {error}"
        except asyncio.CancelledError:  # the event loop ends
            self._is_stopping = True
            raise
        finally:
            self._kill()
            await self._process.wait()
            self._finish()

    def _take(self, line: bytes) -> None:
        match json.loads(line):
            case {"progress": {"text": str(text), "percent": int() | None as percent}}:
                self._on_progress(text, percent)
            case {"ready": info} if not self.ready.done():
                self.ready.set_result(info_from_json(info))
            case {"failed": str(sentence)}:
                self._sentence = sentence
            case {"id": int(number), "step": form} | {"id": int(number), "result": form}:
                if number in self._unanswered:  # else it was cancelled
                    self._tell(number, event_from_json(form))
            case {"id": int(number), "error": {"code": str(code), "message": str(sentence)}}:
                is_bad_request = code == EngineFault.BAD_REQUEST.value
                fault = EngineFault.BAD_REQUEST if is_bad_request else EngineFault.FAILED
                self._tell(number, EngineError(fault, sentence))
            case _:
                logger.warning("the engine wrote a line that is not understood (%d bytes)", len(line))

    def _tell(self, number: int, event: _Event) -> None:
        events = self._unanswered.get(number)
        if events is not None:
            events.put_nowait(event)
            if not isinstance(event, FillStep):
                del self._unanswered[number]

    def _send(self, message: Mapping[str, object]) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(json.dumps(message).encode("ascii") + b"\n")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _finish(self) -> None:
        fault = self._fault()
        if not self.ready.done():
            self.ready.set_exception(fault)
            self.ready.exception()  # seen: it may be that nobody waits
        for events in self._unanswered.values():
            events.put_nowait(fault)
        self._unanswered.clear()
        if not self._is_stopping:
            self._on_end(fault)

    def _fault(self) -> EngineError:
        if self._is_stopping:
            return EngineError(EngineFault.DIED, "the engine was stopped")
        is_ready, code = self.ready.done(), self._process.returncode or 0
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        sentence = f"the engine ended {'unexpectedly' if is_ready else 'before it was ready'} ({end})"
        fault = EngineFault.DIED if is_ready else EngineFault.STARTING_FAILED
        return EngineError(fault, self._sentence or sentence)
