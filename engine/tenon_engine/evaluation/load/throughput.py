"""One client against eight at once: the same keys, each client in its own document, whose context is there already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tenon_engine.evaluation.load.client import Client, Exchange, Place, reused_share
from tenon_engine.evaluation.load.figures import Figures, percentile, ratio
from tenon_engine.evaluation.load.subject import Subject, confirmed_crossed
from tenon_engine.evaluation.load.typist import Typist

MANY_CLIENTS = 8
ROUNDS = 2  # in turn, for a machine is not always equally fast


async def measure_throughput(subject: Subject, keys: int) -> Figures:
    """Let each client type that many keys, as fast as it is answered."""
    one, many = _Total(), _Total()
    if subject.fills_max is not None:
        keys = min(keys, subject.fills_max // (ROUNDS * (MANY_CLIENTS + 1)) - 1)
    for number in range(ROUNDS):
        one.add(*await _type_together(subject.place, 1, keys, first=number, of=f"one-{number}"))
        many.add(*await _type_together(subject.place, MANY_CLIENTS, keys, first=number, of=f"many-{number}"))
    exchanges = one.exchanges + many.exchanges
    ratios = [
        ratio(many.figures()[rate], one.figures()[rate]) for rate in ("fills_per_second", "tokens_per_second")
    ]
    return {
        "clients": MANY_CLIENTS,
        "keys": keys,
        "one": one.figures(),
        "many": many.figures(),
        "fills_ratio": ratios[0],
        "tokens_ratio": ratios[1],
        "reused": reused_share(exchanges),
        "crossed": len(await confirmed_crossed(subject, exchanges)),
    }


class _Total:
    """What so many clients got, all rounds together."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._seconds = 0.0

    def add(self, exchanges: Sequence[Exchange], seconds: float) -> None:
        self.exchanges += exchanges
        self._seconds += seconds

    def figures(self) -> Figures:
        tokens = sum(each.cost.tokens for each in self.exchanges)
        return {
            "fills": len(self.exchanges),
            "p50_ms": percentile([each.latency_ms for each in self.exchanges], 0.5),
            "fills_per_second": ratio(len(self.exchanges), self._seconds),
            "tokens_per_second": ratio(tokens, self._seconds),
        }


async def _type_together(
    place: Place, clients: int, keys: int, *, first: int, of: str
) -> tuple[list[Exchange], float]:
    """All answers, and how long that took: from when every context is there."""
    async with AsyncExitStack() as connections:
        pairs = [
            (await connections.enter_async_context(Client(place, number=number)), Typist(number, of=of))
            for number in range(first, first + clients)
        ]
        await asyncio.gather(*(_type(client, typist, 1) for client, typist in pairs))
        started = time.perf_counter()
        typed = await asyncio.gather(*(_type(client, typist, keys) for client, typist in pairs))
        seconds = time.perf_counter() - started
    return [exchange for exchanges in typed for exchange in exchanges], seconds


async def _type(client: Client, typist: Typist, keys: int) -> list[Exchange]:
    return [await client.fill(typist.next_key()) for _ in range(keys)]
