"""The way of a fill's events from the threads of a worker to a coroutine."""

from __future__ import annotations

import asyncio

from tenon_engine.server.fills import PENDING_EVENTS_MAX, Inbox
from tenon_engine.wire import FillResult, FillStep

STEPS = [FillStep(0, number, (), 0.0) for number in range(1, 4 * PENDING_EVENTS_MAX)]
END = FillResult((), "model")


def tell(inbox: Inbox, events: tuple[FillStep | FillResult, ...]) -> None:
    for event in events:
        inbox.put(event)


def heard(steps: list[FillStep]) -> list[FillStep | FillResult]:
    """What is read by whoever reads only when everything is there."""

    async def listen() -> list[FillStep | FillResult]:
        inbox = Inbox()
        await asyncio.to_thread(tell, inbox, (*steps, END))
        events = [await inbox.next()]
        while not isinstance(events[-1], FillResult):
            events.append(await inbox.next())
        return events

    return asyncio.run(listen())


def test_all_steps_are_heard_in_order_by_who_keeps_up() -> None:
    few = STEPS[: PENDING_EVENTS_MAX - 1]
    assert heard(few) == [*few, END]


def test_who_is_slow_misses_old_steps_but_never_the_end() -> None:
    assert heard(STEPS) == [*STEPS[1 - PENDING_EVENTS_MAX :], END]


def test_an_event_that_comes_after_its_reader_is_gone_is_nobodys() -> None:
    async def leave() -> Inbox:
        return Inbox()

    asyncio.run(leave()).put(END)
