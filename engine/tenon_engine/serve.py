"""`python -m tenon_engine.serve --model NAME`: an engine as a child process, JSON lines on its stdin and stdout.

In    {"id": 1, "fill": FillRequest, "steps": bool}, {"cancel": 1}; the end of stdin ends the process at once
Out   {"progress": {"text", "percent": int or null}} while loading, then {"ready": EngineInfo} or {"failed": sentence};
      {"id": 1, "step": FillStep} where steps were asked for, and one {"id": 1, "result": FillResult} or
      {"id": 1, "error": {"code", "message"}} per fill (id null: of a line that names none)

Owns these lines, the queue of fills and two threads: one reads, the main one owns the model. The newest fill of a
session (but of '', which is none) wins: an older one is answered "cancelled", between two steps if it runs.
Knows nothing of models, documents or editors.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from tenon_engine import config, excerpt
from tenon_engine.commands.loading import STAGES
from tenon_engine.errors import BadRequestError, EngineError
from tenon_engine.wire import FillRequest, FillResult, Hole, HoleFill, Stopped, request_from_json, to_json

if TYPE_CHECKING:
    from tenon_engine.engine import Engine

EXIT_DONE, EXIT_FAILED = 0, 1
INTERNAL_ERROR = "internal_error"

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Serve until stdin ends, or the model cannot be loaded."""
    parser = argparse.ArgumentParser(prog="tenon_engine.serve", description="an engine on stdin and stdout")
    parser.add_argument("--model", required=True, help="a name as `tenon fill --model` takes it")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="warning")
    arguments = parser.parse_args(argv)
    lines_in, lines_out = _take_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c is for the parent, whose end ends this process
    logging.basicConfig(
        level=arguments.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    service = Service(arguments.model, _Answers(lines_out))
    threading.Thread(target=service.listen, args=(lines_in,), daemon=True).start()
    service.work()
    os._exit(EXIT_FAILED)  # as below


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Stdin and stdout for the protocol alone: all else in this process reads nothing there, and prints to stderr."""
    nothing = os.open(os.devnull, os.O_RDWR)  # first: where there is no stderr, it becomes that
    lines_in, lines_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return lines_in, lines_out


class Service:
    """One model and the fills it is asked for: `listen` in a thread of its own, `work` in the main one."""

    def __init__(self, model: str, answers: _Answers) -> None:
        self._model = model
        self._answers = answers
        self._jobs = _Jobs()

    def listen(self, lines: BinaryIO) -> None:
        """Take every line; the process ends with them, whatever the other thread is busy with."""
        try:
            for line in lines:
                self._take(line)
        except Exception as error:
            logger.error("reading failed (%s)", type(error).__name__)
            logger.debug("reading failed", exc_info=True)
        finally:
            os._exit(
                EXIT_DONE
            )  # a normal exit would wait for the step, the download or the model that is under way

    def work(self) -> None:
        """Load the model and fill for ever; returns when it cannot be loaded."""
        engine = self._load()
        if engine is None:
            return
        self._answers.send({"ready": to_json(engine.info)})
        while True:
            self._fill(engine, self._jobs.next())

    def _take(self, line: bytes) -> None:
        number: int | None = None
        try:
            message = _parse(line)
            if "cancel" in message:
                dropped = self._jobs.cancel(_whole_number(message, "cancel"))
            else:
                number = _whole_number(message, "id")
                dropped = self._jobs.add(_job(number, message))
        except ValueError as error:
            self._answers.error(number, BadRequestError.code, str(error))
            return
        for job in dropped:
            self._answers.send({"id": job.number, "result": to_json(self._cancelled(job))})

    def _cancelled(self, job: _Job) -> FillResult:
        """What the engine answers to a fill that is cancelled before its first step."""
        holes = [segment for segment in job.request.segments if isinstance(segment, Hole)]
        nothing = HoleFill((), Stopped.CANCELLED.value)
        return FillResult((nothing,) * len(holes), self._model, Stopped.CANCELLED)

    def _load(self) -> Engine | None:
        try:
            self._report("loading", None)
            settings, complaints = config.load(os.environ, {"model": self._model})
            for complaint in complaints:
                logger.warning("%s", complaint)
            from tenon_engine.models import registry  # what it loads imports torch, a second or two

            return registry.load_engine(settings, self._progress())
        except EngineError as error:
            sentence = str(error)
        except Exception as error:
            logger.debug("loading failed", exc_info=True)
            sentence = f"the model {self._model} cannot be loaded ({type(error).__name__}: {error})"
        self._answers.send({"failed": excerpt.one_line(sentence)})
        return None

    def _progress(self) -> Callable[[str, int, int], None]:
        """A Progress that sends a line per stage and percent, not one per block of bytes."""
        sent: set[tuple[str, int | None]] = set()

        def show(stage: str, done_bytes: int, total_bytes: int) -> None:
            now = stage, min(100, 100 * done_bytes // total_bytes) if total_bytes else None
            if now not in sent:
                sent.add(now)
                self._report(STAGES[stage], now[1])

        return show

    def _report(self, doing: str, percent: int | None) -> None:
        self._answers.send({"progress": {"text": f"{self._model}: {doing}", "percent": percent}})

    def _fill(self, engine: Engine, job: _Job) -> None:
        try:
            for event in engine.stream(job.request, cancelled=lambda: job.is_cancelled):
                if isinstance(event, FillResult):
                    _log(job, event)
                    self._answers.send({"id": job.number, "result": to_json(event)})
                elif job.with_steps:
                    self._answers.send({"id": job.number, "step": to_json(event)})
        except EngineError as error:
            logger.info("fill %d: %s", job.number, error.code)
            self._answers.error(job.number, error.code, str(error))
        except Exception as error:
            logger.debug("fill %d failed", job.number, exc_info=True)
            self._answers.error(job.number, INTERNAL_ERROR, f"the engine failed ({type(error).__name__})")


@dataclasses.dataclass(slots=True, eq=False)
class _Job:
    """One fill; `is_cancelled` is set by the thread that reads, and seen by the other between two steps."""

    number: int
    request: FillRequest
    with_steps: bool
    is_cancelled: bool = False


class _Jobs:
    """The fills that wait and the one that runs, shared by both threads.

    A waiting job leaves once: to whoever calls `next`, or out of `add` or `cancel`; who gets it answers it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Job] = []
        self._running: _Job | None = None

    def add(self, job: _Job) -> list[_Job]:
        """Queue `job`; older ones of its session are stopped, those that only waited are returned."""
        session = job.request.session
        with self._changed:
            dropped = self._drop(lambda older: older.request.session == session) if session else []
            self._waiting.append(job)
            self._changed.notify()
        return dropped

    def cancel(self, number: int) -> list[_Job]:
        """Stop the job with this number, and return it if it only waited."""
        with self._changed:
            return self._drop(lambda job: job.number == number)

    def next(self) -> _Job:
        """Wait for a job; the one before it is done."""
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: self._waiting)
            self._running = self._waiting.pop(0)
            return self._running

    def _drop(self, is_meant: Callable[[_Job], bool]) -> list[_Job]:
        if self._running is not None and is_meant(self._running):
            self._running.is_cancelled = True
        dropped = [job for job in self._waiting if is_meant(job)]
        self._waiting = [job for job in self._waiting if not is_meant(job)]
        return dropped


class _Answers:
    """Lines to the parent, whole ones from either thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._writing = threading.Lock()

    def send(self, message: Mapping[str, object]) -> None:
        """Write one line; the process ends when nobody reads it."""
        line = json.dumps(message).encode("ascii") + b"\n"
        try:
            with self._writing:
                self._stream.write(line)
                self._stream.flush()
        except OSError:
            os._exit(EXIT_FAILED)

    def error(self, number: int | None, code: str, message: str) -> None:
        """Answer a fill, or a line that is none, with what is wrong."""
        self.send({"id": number, "error": {"code": code, "message": excerpt.one_line(message)}})


def _parse(line: bytes) -> dict[str, object]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("a line must be JSON") from None
    if not isinstance(message, dict):
        raise ValueError("a line must be a JSON object")
    return message


def _whole_number(message: Mapping[str, object], key: str) -> int:
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key} must be a whole number")
    return value


def _job(number: int, message: Mapping[str, object]) -> _Job:
    with_steps = message.get("steps", False)
    if not isinstance(with_steps, bool):
        raise ValueError("steps must be true or false")
    return _Job(number, request_from_json(message.get("fill")), with_steps)


def _log(job: _Job, result: FillResult) -> None:
    cost = result.cost
    logger.info(
        "fill %d: %s, %d forwards, %d of %d context tokens reused, context %.0f ms, denoising %.0f ms, total %.0f ms",
        job.number,
        result.stopped.value,
        cost.forwards,
        cost.reused_tokens,
        cost.context_tokens,
        cost.context_ms,
        cost.denoise_ms,
        cost.total_ms,
    )


if __name__ == "__main__":
    main()
