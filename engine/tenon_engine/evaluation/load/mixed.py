"""Many clients at once, each in documents of its own: typing on, beginning another, wanting candidates, leaving.

A client asks again a moment after its answer. Owns what is counted. Every answer is checked.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections import Counter
from collections.abc import Sequence

import anyio
import httpx

from tenon_engine.evaluation.load import typist as typing
from tenon_engine.evaluation.load.client import Client, Exchange, Place, RefusedError, reused_share
from tenon_engine.evaluation.load.figures import Figures, memory_mb, percentile, ratio
from tenon_engine.evaluation.load.subject import Subject, confirmed_crossed, is_same_alone, warm_up
from tenon_engine.evaluation.load.typist import Typist
from tenon_engine.wire import Stopped

NEW_DOCUMENT_SHARE = 0.05
SEVERAL_SHARE = 0.1
SEVERAL_CANDIDATES = 3
LEAVING_SHARE = 0.1
PAUSE_S = (0.05, 0.25)  # between an answer and the next key
ASKED_AGAIN = 32
BUSY_STATUS = 503


@dataclasses.dataclass(slots=True)
class Tally:
    """What came of the requests so far."""

    exchanges: list[Exchange] = dataclasses.field(default_factory=list)
    left: int = 0
    busy: int = 0
    other: Counter[str] = dataclasses.field(default_factory=Counter)


async def measure_mixed(subject: Subject, clients: int, seconds: float) -> Figures:
    """Let them type for so long, then wait for the last answers."""
    await warm_up(subject.place, clients)
    tally = Tally()
    began = time.monotonic()
    until = began + seconds
    fills_max = None if subject.fills_max is None else subject.fills_max // clients - 1
    typists = (_type(number, subject.place, until, fills_max, tally) for number in range(clients))
    memory, _ = await asyncio.gather(_memory(subject.place.pid, seconds), asyncio.gather(*typists))
    again = await _ask_again(subject, tally.exchanges)
    return _figures(tally, clients=clients, began=began, until=until) | {
        "crossed": len(await confirmed_crossed(subject, tally.exchanges)),
        **again,
        "memory_mb": memory,
        "memory_growth": ratio(memory["end"], memory["middle"]),
    }


async def _type(number: int, place: Place, until: float, fills_max: int | None, tally: Tally) -> None:
    chance = random.Random(number)  # noqa: S311
    typist = Typist(number, of="mixed")
    asked, latency_s = 0, 0.0
    async with Client(place, number=number) as client:
        while time.monotonic() < until and (fills_max is None or asked < fills_max):
            if chance.random() < NEW_DOCUMENT_SHARE:
                typist.begin_document(skipped_holes=chance.randrange(typing.hole_count()))
            patience_s = chance.uniform(0, latency_s) if chance.random() < LEAVING_SHARE else None
            started = time.monotonic()
            await _press(
                client, typist, tally, several=chance.random() < SEVERAL_SHARE, patience_s=patience_s
            )
            if patience_s is None:
                latency_s = time.monotonic() - started
            asked += 1
            await asyncio.sleep(chance.uniform(*PAUSE_S))


async def _press(
    client: Client, typist: Typist, tally: Tally, *, several: bool, patience_s: float | None
) -> None:
    """One key, and what comes of it; the client leaves when that takes too long for it."""
    request = typist.next_key(candidates=SEVERAL_CANDIDATES if several else 1)
    try:
        with anyio.move_on_after(patience_s) as leaving:
            exchange = await client.fill(request)
            if exchange.result.stopped is Stopped.DONE:
                tally.exchanges.append(exchange)
            else:
                tally.other[f"stopped: {exchange.result.stopped.value}"] += 1
        tally.left += leaving.cancelled_caught
    except RefusedError as refusal:
        if refusal.status == BUSY_STATUS and refusal.retry_after_s:
            tally.busy += 1
            await asyncio.sleep(refusal.retry_after_s)
        else:
            tally.other[str(refusal)] += 1
    except httpx.HTTPError as error:
        tally.other[type(error).__name__] += 1


async def _memory(pid: int | None, seconds: float) -> dict[str, float | None]:
    """Before the load, in the middle of it, and at its end."""
    start = memory_mb(pid)
    await asyncio.sleep(seconds / 2)
    middle = memory_mb(pid)
    await asyncio.sleep(seconds / 2)
    return {"start": start, "middle": middle, "end": memory_mb(pid)}


async def _ask_again(subject: Subject, exchanges: Sequence[Exchange]) -> Figures:
    """Whether a request that is alone is answered the same, of a sample.

    Sums in another order may differ in their last bit, and an even choice then falls the other way.
    """
    if not subject.is_repeatable:
        return {}
    sample = random.Random(0).sample(exchanges, min(ASKED_AGAIN, len(exchanges)))  # noqa: S311
    async with Client(subject.place) as client:
        same = sum([await is_same_alone(client, exchange) for exchange in sample])
    own = sum(typing.words()[each.client] in typing.words_in("\n".join(each.texts)) for each in exchanges)
    return {
        "naming_their_own": ratio(own, len(exchanges)),
        "asked_again": len(sample),
        "same_again": same,
    }


def _figures(tally: Tally, *, clients: int, began: float, until: float) -> Figures:
    last = max((exchange.ended_s for exchange in tally.exchanges), default=until)
    seconds = min(last, until) - began  # a script may be at its end before
    latencies_ms = [exchange.latency_ms for exchange in tally.exchanges]
    in_time = [exchange for exchange in tally.exchanges if exchange.ended_s <= until]
    return {
        "clients": clients,
        "seconds": round(seconds, 3),
        "answered": len(tally.exchanges),
        "answered_with_text": sum(any(exchange.texts) for exchange in tally.exchanges),
        "left": tally.left,
        "busy": tally.busy,
        "other": tally.other.total(),
        "others": dict(tally.other),
        "reused": reused_share(tally.exchanges),
        "p50_ms": percentile(latencies_ms, 0.5),
        "p95_ms": percentile(latencies_ms, 0.95),
        "fills_per_second": ratio(len(in_time), seconds),
        "tokens_per_second": ratio(sum(each.cost.tokens for each in in_time), seconds),
    }
