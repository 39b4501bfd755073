"""The worker over models that run for real: a played one that waits for its cues, the scripted one, the toy."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tenon_engine.diffusion import DiffusionModel, Limits
from tenon_engine.engine import Engine
from tenon_engine.errors import BadRequestError, BusyError, EngineError, ModelFailedError, WeightsMissingError
from tenon_engine.models.base import (
    ContextBudget,
    Draft,
    HoleRequest,
    Proposal,
    Scores,
    StopCheck,
)
from tenon_engine.models.scripted import ScriptedModel
from tenon_engine.models.toy import SPECIAL, ByteTokenizer, ToyContext, ToyNetwork
from tenon_engine.progress import Progress
from tenon_engine.samplers import plan_named
from tenon_engine.wire import Cost, FillRequest, FillResult, FillStep, Slot, SlotState, Stopped
from tenon_engine.worker import Ticket, Worker, WorkerState

WITHIN_S = 60  # for what happens at once; the machine of a test may be busy
CLIENTS = settings(max_examples=25, stateful_step_count=20, deadline=None)

Event = FillStep | FillResult | EngineError


class PlayedModel:
    """Writes what stands before the hole in capitals, a character per step, one step per cue for that text."""

    name = "played"
    device = ""
    reads_instructions = False
    budget = ContextBudget(100, 100, 100)

    def __init__(self) -> None:
        self.begun: queue.Queue[str] = queue.Queue()
        self._cues: dict[str, threading.Semaphore] = {}

    def cue(self, text: str, steps: int = 100) -> None:
        self._semaphore(text).release(steps)

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        self.begun.put(hole.prefix)
        if hole.prefix == "bad":
            raise RuntimeError("no")
        text = hole.prefix.upper()
        for count in range(1, len(text) + 1):
            while not self._semaphore(hole.prefix).acquire(timeout=0.002):
                if stop():
                    return
            draft = Draft(text[:count], 1.0, finished=count == len(text))
            yield Proposal((draft,), (Slot(text[:count], SlotState.DECIDED, 1.0),), Cost(forwards=count))
            if stop():
                return

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        return Scores((), Cost(), finished=True)

    def count_tokens(self, text: str) -> int:
        return len(text)

    def _semaphore(self, text: str) -> threading.Semaphore:
        return self._cues.setdefault(text, threading.Semaphore(0))


class Inbox:
    """A listener, and what it was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ended = threading.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, FillStep):
            self._ended.set()

    def end(self) -> FillResult | EngineError:
        assert self._ended.wait(WITHIN_S)
        event = self.events[-1]
        assert not isinstance(event, FillStep)
        return event

    def result(self) -> FillResult:
        end = self.end()
        assert isinstance(end, FillResult), end
        return end

    @property
    def steps(self) -> int:
        return sum(isinstance(event, FillStep) for event in self.events)


@dataclasses.dataclass(slots=True)
class Stage:
    """A worker with a played model."""

    model: PlayedModel
    worker: Worker

    def ask(self, text: str, session: str = "", deadline_ms: int | None = None) -> tuple[Inbox, Ticket]:
        inbox = Inbox()
        request = FillRequest.single(text, "", session=session, deadline_ms=deadline_ms)
        return inbox, self.worker.submit(request, inbox, with_steps=True)

    def begin(self, text: str, session: str = "") -> tuple[Inbox, Ticket]:
        """Ask, and wait until the model is at it."""
        asked = self.ask(text, session)
        assert self.model.begun.get(timeout=WITHIN_S) == text
        return asked


@pytest.fixture
def opened() -> Iterator[Callable[..., Stage]]:
    """Makes stages; they are closed when the test is over."""
    stages: list[Stage] = []

    def make(**how: int) -> Stage:
        model = PlayedModel()
        stages.append(Stage(model, Worker(lambda _: Engine(model), **how)))
        return stages[-1]

    yield make
    for stage in stages:
        stage.worker.close()


def outcome(inbox: Inbox) -> tuple[Stopped, str]:
    result = inbox.result()
    return result.stopped, result.holes[0].text


def until(worker: Worker, state: WorkerState) -> None:
    """Wait until a worker says that its state is this one."""
    told = threading.Event()
    unsubscribe = worker.subscribe(lambda: told.set() if worker.state is state else None)
    assert worker.state is state or told.wait(WITHIN_S)
    unsubscribe()


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tenon-")]


def test_the_engine_is_loaded_by_the_first_fill(opened: Callable[..., Stage]) -> None:
    stage = opened()
    assert (stage.worker.state, stage.worker.info) == (WorkerState.IDLE, None)
    inbox, _ = stage.ask("abc")
    stage.model.cue("abc")
    assert outcome(inbox) == (Stopped.DONE, "ABC")
    assert inbox.steps == 3
    assert stage.worker.state is WorkerState.READY
    assert stage.worker.info is not None and stage.worker.info.model == "played"


def test_steps_are_told_only_where_they_are_asked_for(opened: Callable[..., Stage]) -> None:
    stage, inbox = opened(), Inbox()
    stage.model.cue("ab")
    stage.worker.submit(FillRequest.single("ab", ""), inbox, with_steps=False)
    assert outcome(inbox) == (Stopped.DONE, "AB")
    assert len(inbox.events) == 1


def test_the_newest_fill_of_a_session_wins(opened: Callable[..., Stage]) -> None:
    stage = opened()
    running, _ = stage.begin("a1", "a")
    waiting, _ = stage.ask("a2", "a")
    stage.model.cue("a3")
    newest, _ = stage.ask("a3", "a")
    assert outcome(running) == outcome(waiting) == (Stopped.CANCELLED, "")
    assert outcome(newest) == (Stopped.DONE, "A3")


def test_a_session_that_floods_the_worker_starves_no_other(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=1)
    first, _ = stage.begin("first")
    flood = [stage.ask(f"flood {number}")[0] for number in range(20)]
    other, _ = stage.ask("other", "b")
    stage.model.cue("first")
    for number in range(20):
        stage.model.cue(f"flood {number}")
    stage.model.cue("other")
    assert [outcome(inbox)[0] for inbox in (first, other, *flood)] == [Stopped.DONE] * 22
    order = [stage.model.begun.get_nowait() for _ in range(21)]
    assert order.index("other") <= 1


def test_a_full_queue_refuses_and_says_when_to_come_again(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=1, queue_limit=2)
    stage.begin("running")
    waiting, _ = stage.ask("a", "a")
    stage.ask("b", "b")
    with pytest.raises(BusyError) as caught:
        stage.ask("c", "c")
    assert caught.value.retry_after_s > 0
    newer, _ = stage.ask("aa", "a")
    assert outcome(waiting) == (Stopped.CANCELLED, "")
    stage.model.cue("running")
    stage.model.cue("aa")
    assert outcome(newer) == (Stopped.DONE, "AA")


def test_a_fill_is_cancelled_between_two_steps_while_others_run(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=2)
    one, ticket = stage.begin("one")
    other, _ = stage.begin("other")
    stage.model.cue("one", steps=1)
    ticket.cancel()
    assert outcome(one) == (Stopped.CANCELLED, "")
    ticket.cancel()
    stage.model.cue("other")
    assert outcome(other) == (Stopped.DONE, "OTHER")
    assert [isinstance(event, FillResult) for event in one.events].count(True) == 1


def test_a_fill_that_waits_is_cancelled_at_once(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=1)
    stage.begin("running")
    waiting, ticket = stage.ask("waiting")
    ticket.cancel()
    assert outcome(waiting) == (Stopped.CANCELLED, "")
    assert len(waiting.result().holes) == 1


def test_time_spent_waiting_is_part_of_the_deadline(opened: Callable[..., Stage]) -> None:
    stage, deadline_ms = opened(parallel=1), 200
    stage.begin("running")
    over_at = time.monotonic() + deadline_ms / 1e3
    late, _ = stage.ask("late", deadline_ms=deadline_ms)
    while time.monotonic() < over_at:
        pass
    stage.model.cue("running")
    assert late.result().stopped is Stopped.DEADLINE
    assert late.result().cost.total_ms < deadline_ms


def test_a_fill_without_a_deadline_does_not_go_on_for_ever(
    opened: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenon_engine.worker.FILL_MS_MAX", 1)
    stage = opened(parallel=1)
    inbox, _ = stage.begin("running")
    over_at = time.monotonic() + 0.002
    while time.monotonic() < over_at:
        pass
    stage.model.cue("running")
    assert inbox.result().stopped is Stopped.DEADLINE


def test_a_model_that_fails_fails_its_own_fill_alone(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=2)
    good, _ = stage.begin("good")
    bad, _ = stage.ask("bad")
    end = bad.end()
    assert isinstance(end, ModelFailedError)
    assert str(end) == "the model played failed (RuntimeError: no)"
    stage.model.cue("good")
    assert outcome(good) == (Stopped.DONE, "GOOD")


def test_a_request_that_makes_no_sense_is_an_error_of_its_fill(opened: Callable[..., Stage]) -> None:
    inbox = Inbox()
    opened().worker.submit(FillRequest(segments=("no hole",)), inbox, with_steps=False)
    assert isinstance(inbox.end(), BadRequestError)


def test_a_listener_that_fails_disturbs_nobody(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=1)

    def failing(event: Event) -> None:
        raise ValueError

    stage.model.cue("a")
    stage.model.cue("b")
    stage.worker.submit(FillRequest.single("a", ""), failing, with_steps=True)
    inbox, _ = stage.ask("b")
    assert outcome(inbox) == (Stopped.DONE, "B")


def test_an_idle_engine_is_dropped_and_loaded_again_when_it_is_wanted() -> None:
    models: list[weakref.ref[PlayedModel]] = []

    def load(progress: Progress) -> Engine:
        model = PlayedModel()
        model.cue("a")
        models.append(weakref.ref(model))
        return Engine(model)

    worker = Worker(load, idle_unload_s=0)
    for _ in range(2):
        inbox = Inbox()
        worker.submit(FillRequest.single("a", ""), inbox, with_steps=False)
        assert outcome(inbox) == (Stopped.DONE, "A")
        until(worker, WorkerState.IDLE)
        assert worker.info is not None
    worker.close()
    gc.collect()
    assert [model() for model in models] == [None, None]
    assert own_threads() == []


def test_an_engine_that_cannot_be_loaded_is_tried_again_when_it_is_wanted(tmp_path: Path) -> None:
    script = tmp_path / "script.json"

    def load(progress: Progress) -> Engine:
        if not script.exists():
            raise WeightsMissingError("there are\nno weights")
        return Engine(ScriptedModel(script))

    worker, request = Worker(load), FillRequest.single("x = ", "\n")
    first, second = Inbox(), Inbox()
    worker.submit(request, first, with_steps=False)
    assert isinstance(first.end(), WeightsMissingError)
    assert (worker.state, worker.failure) == (WorkerState.FAILED, "there are no weights")
    script.write_text('{"raw": "1"}')
    worker.submit(request, second, with_steps=False)
    assert outcome(second) == (Stopped.DONE, "1")
    assert (worker.state, worker.failure) == (WorkerState.READY, "")
    worker.close()


def test_whatever_goes_wrong_while_loading_is_one_sentence() -> None:
    def load(progress: Progress) -> Engine:
        raise OSError("a\nb")

    worker = Worker(load)
    worker.warm()
    until(worker, WorkerState.FAILED)
    assert worker.failure == "the model cannot be loaded (OSError: a b)"
    worker.close()


def test_subscribers_hear_how_far_loading_is() -> None:
    heard: list[tuple[WorkerState, tuple[str, int | None]]] = []

    def load(progress: Progress) -> Engine:
        for done_bytes in (0, 1, 500, 501, 1000):
            progress("fetch", done_bytes, 1000)
        progress("verify", 5, 0)
        return Engine(PlayedModel())

    worker = Worker(load)
    worker.subscribe(lambda: heard.append((worker.state, worker.progress)))
    deaf = worker.subscribe(lambda: heard.append((WorkerState.CLOSED, ("", None))))
    deaf()
    worker.warm()
    until(worker, WorkerState.READY)
    worker.close()
    loading = [("loading", None), *[("fetching", n) for n in (0, 50, 100)], ("checking", None)]
    assert heard[:6] == [*[(WorkerState.LOADING, each) for each in loading], (WorkerState.READY, ("", None))]
    assert set(heard[6:]) == {(WorkerState.CLOSED, ("", None))}


def test_closing_answers_everybody_and_leaves_no_thread(opened: Callable[..., Stage]) -> None:
    stage = opened(parallel=1)
    running, _ = stage.begin("running")
    waiting, _ = stage.ask("waiting")
    stage.worker.close()
    assert outcome(running) == outcome(waiting) == (Stopped.CANCELLED, "")
    assert stage.worker.state is WorkerState.CLOSED
    assert own_threads() == []
    with pytest.raises(BusyError):
        stage.ask("late")
    stage.worker.warm()
    stage.worker.close()
    assert own_threads() == []


def test_closing_while_the_engine_is_loaded_waits_for_it_and_fills_nothing() -> None:
    loading, go_on, inbox, model = threading.Event(), threading.Event(), Inbox(), PlayedModel()

    def load(progress: Progress) -> Engine:
        loading.set()
        assert go_on.wait(WITHIN_S)
        return Engine(model)

    worker = Worker(load)
    worker.submit(FillRequest.single("a", ""), inbox, with_steps=False)
    assert loading.wait(WITHIN_S)
    worker.subscribe(go_on.set)
    worker.close()
    assert outcome(inbox) == (Stopped.CANCELLED, "")
    assert (worker.state, model.begun.empty(), own_threads()) == (WorkerState.CLOSED, True, [])


def toy_engine() -> Engine:
    model: DiffusionModel[ToyContext] = DiffusionModel(
        name="toy",
        network=ToyNetwork(sharpness=2.0),
        tokenizer=ByteTokenizer(),
        special=SPECIAL,
        plan=plan_named("confirm"),
        limits=Limits(prefix_tokens=64, suffix_tokens=16, path_header=False),
    )
    return Engine(model, max_tokens=5)


@functools.cache
def alone(request: FillRequest) -> FillResult:
    """What the toy answers to nobody else."""
    return toy_engine().fill(request)


class Clients(RuleBasedStateMachine):
    """Clients that ask, change their minds and wait; in the end everybody was answered once, and nobody wrongly."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[FillRequest, Inbox, Ticket]] = []

    @initialize(parallel=st.integers(1, 4), idle=st.sampled_from([None, 0.0]), limit=st.integers(2, 8))
    def open(self, parallel: int, idle: float | None, limit: int) -> None:
        self.worker = Worker(self.load, parallel=parallel, idle_unload_s=idle, queue_limit=limit)

    @rule(session=st.sampled_from(["", "a", "b", "c"]), text=st.text("ab(", max_size=12), steps=st.booleans())
    def submit(self, session: str, text: str, steps: bool) -> None:
        request, inbox = FillRequest.single(text, ")\n", session=session), Inbox()
        try:
            ticket = self.worker.submit(request, inbox, with_steps=steps)
        except BusyError:
            assert inbox.events == []
        else:
            self.asked.append((request, inbox, ticket))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.asked:
            data.draw(st.sampled_from(self.asked))[2].cancel()

    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        if self.asked:
            data.draw(st.sampled_from(self.asked))[1].end()

    def teardown(self) -> None:
        for _, inbox, _ in self.asked[::2]:
            inbox.end()  # without anybody's help
        self.worker.close()
        for request, inbox, _ in self.asked:
            *steps, end = inbox.events
            assert all(isinstance(event, FillStep) for event in steps)
            if isinstance(end, BusyError):
                assert not request.session  # it has made room for a session
            else:
                self.check(request, end)
        assert own_threads() == []

    def load(self, progress: Progress) -> Engine:
        return toy_engine()

    def check(self, request: FillRequest, end: Event) -> None:
        assert isinstance(end, FillResult)
        if end.stopped is not Stopped.CANCELLED:
            assert end.holes == alone(request).holes


class ScriptedClients(Clients):
    """The same with a model that fails at times; it answers in turn, whoever asks."""

    script: Path

    def load(self, progress: Progress) -> Engine:
        return Engine(ScriptedModel(self.script))

    def check(self, request: FillRequest, end: Event) -> None:
        if isinstance(end, ModelFailedError):
            assert str(end).startswith("no")  # and more once it failed too often
            return
        assert isinstance(end, FillResult)
        texts = [""] if end.stopped is Stopped.CANCELLED else ["one", "two words"]
        assert end.holes[0].text in texts


def test_every_client_is_answered_once_and_with_its_own_text() -> None:
    run_state_machine_as_test(Clients, settings=CLIENTS)


def test_every_client_is_answered_once_by_a_model_that_fails_at_times(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"raw": "one"}, {"raw": "two words", "delay_ms": 1}, {"fail": "no"}] * 200))
    ScriptedClients.script = script
    run_state_machine_as_test(ScriptedClients, settings=CLIENTS)
