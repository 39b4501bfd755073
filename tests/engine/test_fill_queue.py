from __future__ import annotations

import collections
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.errors import BusyError
from tenon_engine.fill_queue import Displaced, Fill, FillQueue
from tenon_engine.wire import FillRequest

SESSIONS = ["", "a", "b", "c"]


def fill(session: str) -> Fill:
    return Fill(FillRequest.single("x", "", session=session), lambda _: None, with_steps=False)


def take(queue: FillQueue) -> Fill:
    taken = queue.next()
    assert taken is not None
    return taken


def test_of_a_session_the_newest_fill_has_the_place_of_the_one_that_waited() -> None:
    queue = FillQueue(limit=9)
    first, other, second = fill("a"), fill("b"), fill("a")
    assert queue.add(first) is None
    assert queue.add(other) is None
    assert queue.add(second) == Displaced(first)
    assert [take(queue), take(queue), queue.next()] == [second, other, None]


def test_of_a_session_the_fill_that_runs_is_stopped_and_the_newest_one_waits_for_it() -> None:
    queue = FillQueue(limit=9)
    first, second = fill("a"), fill("a")
    queue.add(first)
    assert take(queue) is first
    assert queue.add(second) is None
    assert first.is_cancelled
    assert queue.next() is None
    queue.finish(first)
    assert take(queue) is second


def test_fills_without_a_session_do_not_replace_each_other() -> None:
    queue = FillQueue(limit=9)
    fills = [fill("") for _ in range(3)]
    assert [queue.add(each) for each in fills] == [None] * 3
    assert [take(queue) for _ in fills] == fills
    assert not any(each.is_cancelled for each in fills)


def test_a_full_queue_takes_a_newer_fill_of_a_session_that_waits_and_no_other() -> None:
    queue = FillQueue(limit=2)
    queue.add(fill("a"))
    queue.add(fill(""))
    for session in ("", "b"):
        with pytest.raises(BusyError, match="busy: 2 requests wait already") as caught:
            queue.add(fill(session))
        assert caught.value.retry_after_s > 0
    assert queue.add(fill("a")) is not None
    assert len(queue) == 2


def test_in_a_full_queue_the_newest_of_several_without_a_session_makes_room_for_another_session() -> None:
    queue = FillQueue(limit=3)
    crowd = [fill("") for _ in range(3)]
    for each in crowd:
        queue.add(each)
    for session, left in (("a", crowd[2]), ("b", crowd[1])):
        displaced = queue.add(fill(session))
        assert displaced is not None
        assert displaced.fill is left
        assert "busy: 3 requests wait already" in str(displaced.error)
    for session in ("c", ""):
        with pytest.raises(BusyError):
            queue.add(fill(session))
    assert len(queue) == 3


def test_who_is_refused_is_told_to_come_back_when_the_next_fill_is_likely_to_have_ended() -> None:
    queue = FillQueue(limit=1)
    queue.add(fill("a"))
    taken = take(queue)
    taken.started_at -= 30  # it took half a minute
    queue.finish(taken)
    for session in ("b", "c"):
        queue.add(fill(session))
        take(queue)
    queue.add(fill("d"))
    with pytest.raises(BusyError) as caught:
        queue.add(fill("e"))
    assert caught.value.retry_after_s == pytest.approx(15, rel=0.01)


def test_a_refused_fill_stops_nothing() -> None:
    queue = FillQueue(limit=1)
    running = fill("a")
    queue.add(running)
    take(queue)
    queue.add(fill("b"))
    with pytest.raises(BusyError):
        queue.add(fill("a"))
    assert not running.is_cancelled


@given(
    flood=st.sampled_from(["", "flood"]),
    before=st.integers(0, 20),
    between=st.lists(st.integers(0, 5), max_size=12),
    others=st.integers(1, 4),
)
def test_a_session_that_floods_the_queue_starves_no_other(
    flood: str, before: int, between: list[int], others: int
) -> None:
    queue = FillQueue(limit=1000)
    for _ in range(before):
        queue.add(fill(flood))
    for number in range(others):
        queue.add(fill(f"other {number}"))
    served = []
    for count in (*between, *[1] * (2 * others + 2)):
        for _ in range(count):
            queue.add(fill(flood))
        taken = queue.next()
        if taken is not None:
            served.append(taken.request.session)
            queue.finish(taken)
    turns = served[: 2 * others + 1]
    assert set(turns) >= {f"other {number}" for number in range(others)}
    assert all(count == 1 for session, count in collections.Counter(served).items() if session != flood)


@given(st.lists(st.tuples(st.sampled_from(["add", "next", "finish", "drop"]), st.sampled_from(SESSIONS))))
def test_every_fill_leaves_the_queue_once_and_a_session_never_runs_twice(
    events: list[tuple[str, str]],
) -> None:
    queue = FillQueue(limit=4)
    added: list[Fill] = []
    left: list[Fill] = []
    running: list[Fill] = []
    for what, session in events:
        own = [each for each in added if each.request.session == session]
        if what == "add":
            newest = fill(session)
            with contextlib.suppress(BusyError):
                displaced = queue.add(newest)
                added.append(newest)
                left += [displaced.fill] if displaced else []
        elif what == "next" and (taken := queue.next()):
            left.append(taken)
            running.append(taken)
        elif what == "finish" and running:
            queue.finish(running.pop(0))
        elif what == "drop" and own and queue.drop(own[-1]):
            left.append(own[-1])
        sessions = [each.request.session for each in running if each.request.session]
        assert len(set(sessions)) == len(sessions)
        assert queue.is_idle == (len(added) == len(left) and not running)
    left += queue.drop_all()
    assert sorted(map(id, left)) == sorted(map(id, added))
    assert len(queue) == 0
