"""The scheduler, with jobs that end when told to and pauses that nobody waits for."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenon_lsp.scheduler import PAUSE_MS_AT_LEAST, PAUSE_MS_AT_MOST, Scheduler, Superseded

A, B = "file:///a.py", "file:///b.py"


class Work:
    """A job that runs until it is told to end, and stops when cancelled as soon as it is allowed to."""

    def __init__(self, *, result: str = "answer", stops_at_once: bool = True) -> None:
        self.result = result
        self.error: Exception | None = None
        self.started = self.running = self.interrupted = self.finished = False
        self.may_end, self.may_stop = asyncio.Event(), asyncio.Event()
        if stops_at_once:
            self.may_stop.set()

    async def __call__(self) -> str:
        self.started = self.running = True
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.interrupted = True
            await self.may_stop.wait()  # a denoising step takes its time
            raise
        finally:
            self.running = False
        self.finished = True
        if self.error is not None:
            raise self.error
        return self.result

    def fail(self, error: Exception) -> None:
        self.error = error
        self.may_end.set()


class Pauses:
    """Stands in for sleeping: a pause is over when told so."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self._over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await self._over.wait()

    def end(self) -> None:
        self._over.set()
        self._over = asyncio.Event()


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def asynchronously(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def settle(turns: int = 20) -> None:
    """Let everything that can go on go on, or only some turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)


def asking(
    scheduler: Scheduler, job: Callable[[], Awaitable[str]], *, uri: str = A, pause_ms: float = 0
) -> asyncio.Task[str]:
    """A request handler in a task of its own, as the server runs them."""
    return asyncio.create_task(scheduler.run(uri, pause_ms, job))


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@asynchronously
async def test_a_job_runs_after_its_pause_and_its_result_is_returned() -> None:
    pauses, work = Pauses(), Work()
    asked = asking(Scheduler(sleep=pauses), work, pause_ms=120)
    await settle()
    assert pauses.asked_s == [0.12]
    assert not work.started
    pauses.end()
    work.may_end.set()
    assert await asked == "answer"
    assert not others()


@asynchronously
async def test_without_a_pause_a_job_starts_at_once() -> None:
    pauses, work = Pauses(), Work()
    work.may_end.set()
    assert await Scheduler(sleep=pauses).run(A, 0, work) == "answer"
    assert pauses.asked_s == []


@asynchronously
async def test_the_newest_of_many_jobs_wins_and_the_others_never_start() -> None:
    pauses = Pauses()
    scheduler = Scheduler(sleep=pauses)
    works = [Work(result=str(number)) for number in range(5)]
    asked = [asking(scheduler, work, pause_ms=30) for work in works]
    await settle()
    pauses.end()
    works[-1].may_end.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results[:-1]] == [Superseded] * 4
    assert results[-1] == "4"
    assert [work.started for work in works] == [False] * 4 + [True]


@asynchronously
async def test_a_newer_job_starts_when_the_older_one_has_really_stopped() -> None:
    scheduler, older, newest = Scheduler(), Work(stops_at_once=False), Work()
    first = asking(scheduler, older)
    await settle()
    second = asking(scheduler, Work())
    await settle()
    third = asking(scheduler, newest)
    await settle()
    assert older.interrupted
    assert not newest.started
    assert not first.done()
    older.may_stop.set()
    newest.may_end.set()
    results = await asyncio.gather(first, second, third, return_exceptions=True)
    assert [type(result) for result in results] == [Superseded, Superseded, str]


@asynchronously
async def test_a_superseded_job_that_ends_all_the_same_gives_no_stale_answer() -> None:
    scheduler = Scheduler()

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "stale"
        return ""

    first = asking(scheduler, stubborn)
    await settle()
    newest = Work()
    newest.may_end.set()
    assert await scheduler.run(A, 0, newest) == "answer"
    with pytest.raises(Superseded):
        await first


@asynchronously
async def test_an_answer_that_a_key_overtakes_on_its_way_is_stale() -> None:
    scheduler, work = Scheduler(), Work()
    asked = asking(scheduler, work)
    await settle()
    work.may_end.set()
    while not work.finished:
        await asyncio.sleep(0)
    scheduler.cancel(A)
    with pytest.raises(Superseded):
        await asked


@asynchronously
async def test_documents_do_not_disturb_each_other() -> None:
    scheduler, one, other = Scheduler(), Work(result="a"), Work(result="b")
    asked = [asking(scheduler, one), asking(scheduler, other, uri=B)]
    await settle()
    assert one.running
    assert other.running
    one.may_end.set()
    other.may_end.set()
    assert await asyncio.gather(*asked) == ["a", "b"]


@asynchronously
async def test_a_cancelled_caller_returns_when_its_job_has_really_stopped() -> None:
    scheduler, work = Scheduler(), Work(stops_at_once=False)
    asked = asking(scheduler, work)
    await settle()
    asked.cancel()
    await settle()
    assert work.interrupted
    assert not asked.done()
    asked.cancel()  # impatient: neither the job's clean-up nor the wait for it is cut short
    await settle()
    assert work.running
    assert not asked.done()
    work.may_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not work.running
    assert not others()


@asynchronously
async def test_a_key_and_then_the_cancelled_request_interrupt_the_job_once() -> None:
    scheduler, work = Scheduler(), Work(stops_at_once=False)
    asked = asking(scheduler, work)
    await settle()
    scheduler.cancel(A)
    await settle()
    asked.cancel()
    await settle()
    assert work.running
    work.may_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await asked


@asynchronously
async def test_a_caller_cancelled_during_the_pause_never_starts_its_job() -> None:
    pauses, work = Pauses(), Work()
    asked = asking(Scheduler(sleep=pauses), work, pause_ms=30)
    await settle()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not work.started
    assert not others()


@asynchronously
async def test_a_cancelled_caller_leaves_a_newer_job_alone() -> None:
    scheduler, older, newer = Scheduler(), Work(stops_at_once=False), Work()
    first = asking(scheduler, older)
    await settle()
    second = asking(scheduler, newer)
    await settle()
    first.cancel()
    older.may_stop.set()
    newer.may_end.set()
    assert await second == "answer"
    with pytest.raises(asyncio.CancelledError):
        await first


@asynchronously
async def test_the_exception_of_a_job_reaches_its_caller_and_the_next_job_runs() -> None:
    scheduler, failing, fine = Scheduler(), Work(), Work()
    failing.fail(ValueError("no numbers"))
    with pytest.raises(ValueError, match="no numbers"):
        await scheduler.run(A, 0, failing)
    fine.may_end.set()
    assert await scheduler.run(A, 0, fine) == "answer"


@asynchronously
async def test_an_answer_that_was_handed_over_is_not_kept_alive() -> None:
    scheduler = Scheduler()

    async def job() -> Work:
        return Work()

    answer = weakref.ref(await scheduler.run(A, 0, job))
    gc.collect()
    assert answer() is None


@asynchronously
async def test_a_key_ends_the_job_and_the_prefetch_of_its_document_alone() -> None:
    scheduler, here, there, prefetch = Scheduler(), Work(), Work(), Work()
    asked = [asking(scheduler, here), asking(scheduler, there, uri=B)]
    scheduler.background(A, prefetch)
    await settle()
    scheduler.cancel(A)
    with pytest.raises(Superseded):
        await asked[0]
    there.may_end.set()
    assert await asked[1] == "answer"
    await settle()
    assert not prefetch.started
    assert not others()


@asynchronously
async def test_background_work_waits_until_no_other_job_runs() -> None:
    scheduler, here, there, prefetch = Scheduler(), Work(), Work(), Work()
    asked = [asking(scheduler, here), asking(scheduler, there, uri=B)]
    await settle()
    scheduler.background(A, prefetch)
    here.may_end.set()
    await settle()
    assert asked[0].result() == "answer"
    assert not prefetch.started
    there.may_end.set()
    await settle()
    assert prefetch.running
    prefetch.may_end.set()
    await settle()
    assert not others()


def test_background_work_yields_to_a_job_of_any_document() -> None:
    async def test(uri: str) -> None:
        scheduler, prefetch, work = Scheduler(), Work(), Work()
        scheduler.background(A, prefetch)
        await settle()
        assert prefetch.running
        work.may_end.set()
        assert await scheduler.run(uri, 0, work) == "answer"
        assert prefetch.interrupted
        assert not others()

    asyncio.run(test(A))
    asyncio.run(test(B))


@asynchronously
async def test_newer_background_work_replaces_older() -> None:
    scheduler, older, newer = Scheduler(), Work(), Work()
    scheduler.background(A, older)
    await settle()
    scheduler.background(A, newer)
    await settle()
    assert older.interrupted
    assert newer.running
    await scheduler.close()


def test_background_work_that_fails_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scheduler, prefetch, work = Scheduler(), Work(), Work()
        prefetch.fail(ValueError("no numbers"))
        scheduler.background(A, prefetch)
        await settle()
        work.may_end.set()
        assert await scheduler.run(A, 0, work) == "answer"

    with caplog.at_level(logging.WARNING):
        asyncio.run(test())
    assert [record.name for record in caplog.records] == ["tenon_lsp.scheduler"]
    assert "no numbers" in caplog.text


@asynchronously
async def test_closing_leaves_no_task_and_nothing_starts_afterwards() -> None:
    scheduler, works = Scheduler(), [Work(stops_at_once=False) for _ in range(3)]
    asked = [asking(scheduler, works[0]), asking(scheduler, works[1], uri=B)]
    await settle()
    asked.append(asking(scheduler, works[2]))
    scheduler.background(B, Work())
    await settle()
    closing = asyncio.create_task(scheduler.close())
    await settle()
    assert not closing.done()
    works[0].may_stop.set()
    works[1].may_stop.set()
    await closing
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results] == [Superseded] * 3
    with pytest.raises(Superseded):
        await scheduler.run(A, 0, Work())
    scheduler.background(A, Work())
    await scheduler.close()
    assert not others()


def test_asked_for_by_hand_there_is_no_pause_and_a_fixed_one_is_kept() -> None:
    scheduler = Scheduler()
    assert scheduler.pause_ms(fixed_ms=300, invoked=True) == 0
    assert scheduler.pause_ms(fixed_ms=None, invoked=True) == 0
    assert scheduler.pause_ms(fixed_ms=300, invoked=False) == 300
    assert scheduler.pause_ms(fixed_ms=0, invoked=False) == 0


def typing(gap_ms: float, *, latency_ms: float) -> float:
    """The pause of a typist who presses a key every `gap_ms`."""
    clock = Clock()
    scheduler = Scheduler(clock)
    for _ in range(20):
        clock.now_s += gap_ms / 1000
        scheduler.cancel(A)
        scheduler.measured(latency_ms)
    return scheduler.pause_ms(fixed_ms=None, invoked=False)


def test_an_engine_that_answers_between_two_keys_is_asked_almost_at_once() -> None:
    assert typing(200, latency_ms=150) == PAUSE_MS_AT_LEAST


def test_a_slow_engine_is_asked_when_the_next_key_is_late() -> None:
    assert typing(200, latency_ms=2000) == pytest.approx(250)
    assert typing(120, latency_ms=2000) == pytest.approx(150)
    assert typing(900, latency_ms=5000) == PAUSE_MS_AT_MOST


def test_between_the_two_the_pause_grows_with_the_latency() -> None:
    assert typing(200, latency_ms=300) == pytest.approx(100)


def test_thinking_and_a_held_key_do_not_count_as_typing() -> None:
    unmeasured = Scheduler()
    unmeasured.measured(2000)
    usual = unmeasured.pause_ms(fixed_ms=None, invoked=False)
    assert typing(5000, latency_ms=2000) == usual
    assert typing(5, latency_ms=2000) == usual


def test_after_slow_answers_the_pause_recovers_with_the_engine() -> None:
    scheduler = Scheduler()
    for _ in range(8):
        scheduler.measured(4000)
    slow = scheduler.pause_ms(fixed_ms=None, invoked=False)
    for _ in range(8):
        scheduler.measured(50)
    assert scheduler.pause_ms(fixed_ms=None, invoked=False) == PAUSE_MS_AT_LEAST < slow


def test_only_keys_count_as_typing() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    scheduler.measured(2000)
    usual = scheduler.pause_ms(fixed_ms=None, invoked=False)
    for _ in range(3):
        clock.now_s += 0.1
        scheduler.drop(A)
    assert scheduler.pause_ms(fixed_ms=None, invoked=False) == usual


@given(latencies=st.lists(st.floats(0, 1e6)), gaps_ms=st.lists(st.floats(0, 1e6)))
def test_an_adaptive_pause_stays_within_its_bounds(latencies: list[float], gaps_ms: list[float]) -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    for gap_ms in gaps_ms:
        clock.now_s += gap_ms / 1000
        scheduler.cancel(A)
    for latency_ms in latencies:
        scheduler.measured(latency_ms)
    assert PAUSE_MS_AT_LEAST <= scheduler.pause_ms(fixed_ms=None, invoked=False) <= PAUSE_MS_AT_MOST


@dataclasses.dataclass(slots=True)
class Asked:
    """A request of the state machine and what must come of it."""

    uri: str
    work: Work
    task: asyncio.Task[str]
    is_wanted: bool = True
    is_cancelled: bool = False


URIS = st.sampled_from([A, B])
TURNS = st.integers(0, 6) | st.just(20)


class Requests(RuleBasedStateMachine):
    """Requests, keys, cancels, prefetches and ends in any order, against what each caller must get."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pauses = Pauses()
        self.scheduler = Scheduler(sleep=self.pauses)
        self.asked: list[Asked] = []
        self.is_closing = False
        self.prefetches: list[tuple[str, Work]] = []

    @rule(uri=URIS, pause_ms=st.sampled_from([0.0, 30.0]), stops_at_once=st.booleans(), turns=TURNS)
    def ask(self, uri: str, pause_ms: float, stops_at_once: bool, turns: int) -> None:
        work = Work(result=str(len(self.asked)), stops_at_once=stops_at_once)

        async def begin() -> str:
            self._unwant(uri)  # as `run` does in the same turn; what came before it began does not touch it
            asked.is_wanted = not self.is_closing
            return await self.scheduler.run(uri, pause_ms, work)

        asked = Asked(uri, work, self.loop.create_task(begin()))
        self.asked.append(asked)
        self.loop.run_until_complete(settle(turns))

    @rule(uri=URIS, stops_at_once=st.booleans(), turns=TURNS)
    def prefetch(self, uri: str, stops_at_once: bool, turns: int) -> None:
        work = Work(stops_at_once=stops_at_once)
        self._do(lambda: self.scheduler.background(uri, work), turns)
        self.prefetches.append((uri, work))

    @rule(uri=URIS, is_key=st.booleans(), turns=TURNS)
    def end_work(self, uri: str, is_key: bool, turns: int) -> None:
        end = self.scheduler.cancel if is_key else self.scheduler.drop

        def act() -> None:
            self._unwant(uri)
            end(uri)

        self._do(act, turns)

    @rule(turns=TURNS)
    def end_pauses(self, turns: int) -> None:
        self._do(self.pauses.end, turns)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), turns=TURNS)
    def cancel_request(self, data: st.DataObject, turns: int) -> None:
        asked = data.draw(st.sampled_from(self.asked))

        def act() -> None:
            if not asked.task.done():
                asked.is_cancelled, asked.is_wanted = True, False
            asked.task.cancel()

        self._do(act, turns)

    @precondition(lambda self: self._works())
    @rule(data=st.data(), error=st.sampled_from([None, ValueError("no numbers")]), turns=TURNS)
    def end_job(self, data: st.DataObject, error: Exception | None, turns: int) -> None:
        work = data.draw(st.sampled_from(self._works()))
        if not work.may_end.is_set():
            work.error = error
        self._do(work.may_end.set, turns)

    @precondition(lambda self: self._works())
    @rule(data=st.data(), turns=TURNS)
    def let_stop(self, data: st.DataObject, turns: int) -> None:
        self._do(data.draw(st.sampled_from(self._works())).may_stop.set, turns)

    @rule()
    def come_to_rest(self) -> None:
        """Whoever still waits then, waits for a wanted job or for one that is stopping; background work has yielded."""
        self.loop.run_until_complete(settle())
        assert all(asked.is_wanted or asked.work.running for asked in self.asked if not asked.task.done())
        if any(asked.is_wanted and asked.work.running for asked in self.asked):
            assert all(work.interrupted for _, work in self.prefetches if work.running)

    @invariant()
    def a_document_has_one_running_job_at_most(self) -> None:
        works = [(asked.uri, asked.work) for asked in self.asked] + self.prefetches
        running = [uri for uri, work in works if work.running]
        assert len(running) == len(set(running))

    @invariant()
    def whoever_was_answered_got_the_right_answer(self) -> None:
        for asked in self.asked:
            if asked.task.done():
                self._check(asked)

    def teardown(self) -> None:
        for work in self._works():
            work.may_stop.set()
        self.loop.run_until_complete(self._close())
        self.loop.run_until_complete(settle())
        for asked in self.asked:
            assert asked.task.done()
            self._check(asked)
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()

    def _check(self, asked: Asked) -> None:
        """Cancelled by its caller, superseded, or the outcome of its own job; never anything else."""
        if asked.is_cancelled:
            assert asked.task.cancelled()
        elif not asked.is_wanted:
            assert isinstance(asked.task.exception(), Superseded)
        elif asked.work.error is not None:
            assert asked.task.exception() is asked.work.error
        else:
            assert asked.task.result() == asked.work.result

    def _unwant(self, uri: str) -> None:
        for asked in self.asked:
            if asked.uri == uri and not asked.task.done():
                asked.is_wanted = False

    def _works(self) -> list[Work]:
        return [asked.work for asked in self.asked] + [work for _, work in self.prefetches]

    async def _close(self) -> None:
        self.is_closing = True
        self._unwant(A)
        self._unwant(B)
        await self.scheduler.close()

    def _do(self, action: Callable[[], object], turns: int) -> None:
        async def act() -> None:
            action()
            await settle(turns)

        self.loop.run_until_complete(act())


TestEveryCallerIsAnsweredOnceAndRightly = Requests.TestCase
