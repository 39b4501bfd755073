"""A daemon that is killed under load: how long its clients wait until one that they start themselves answers them.

The clients are one process, as the windows of one editor may be: who first finds the engine gone starts another.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import anyio
import httpx

from tenon_engine import runtime
from tenon_engine.evaluation.load import subject
from tenon_engine.evaluation.load.client import Client, Place, RefusedError
from tenon_engine.evaluation.load.figures import Figures
from tenon_engine.evaluation.load.mixed import PAUSE_S
from tenon_engine.evaluation.load.typist import Typist
from tenon_engine.worker import WorkerState

ANSWERS_BEFORE = 16
PATIENCE_S = 120.0  # after
POLL_S = 0.05
REFUSED_S = 0.2


async def measure_kill(model: str, clients: int) -> Figures:
    """Load, kill, and wait until every client has had an answer again."""
    place = Place.of(await asyncio.to_thread(subject.start, model))
    await subject.warm_up(place, clients)
    search = _Search(model, place)
    typists = asyncio.gather(*(_type(number, search) for number in range(clients)))
    while search.answers_before < ANSWERS_BEFORE and not typists.done():
        await asyncio.sleep(POLL_S)
    search.kill()
    with anyio.move_on_after(PATIENCE_S):
        await asyncio.gather(typists, search.watch())
    waits = sorted(search.answered_s.values())
    return {
        "clients": clients,
        "answers_before": search.answers_before,
        "restarted_s": _seconds(search.restarted_s),
        "loaded_s": _seconds(search.loaded_s),
        "first_answer_s": _seconds(waits[0] if waits else PATIENCE_S),
        "last_answer_s": _seconds(waits[-1] if waits else PATIENCE_S),
        "answered_clients": len(waits),
    }


class _Search:
    """Where the engine is now, and who has had an answer since it was killed."""

    def __init__(self, model: str, place: Place) -> None:
        self.place = place
        self.answers_before = 0
        self.answered_s: dict[int, float] = {}  # by client, since the kill
        self.restarted_s = self.loaded_s = 0.0
        self._model = model
        self._killed: tuple[Place, float] | None = None
        self._starting = asyncio.Lock()

    def kill(self) -> None:
        assert self.place.pid is not None
        os.kill(self.place.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self._killed = (self.place, time.monotonic())

    def note_answer(self, number: int, place: Place) -> None:
        if self._killed is None or self._killed[0] == place:
            self.answers_before += 1
        else:
            self.answered_s.setdefault(number, time.monotonic() - self._killed[1])

    async def watch(self) -> None:
        """Note when the next engine has its weights."""
        while self._killed is None or self.place == self._killed[0] or not await self._is_loaded():
            await asyncio.sleep(POLL_S)
        self.loaded_s = time.monotonic() - self._killed[1]

    async def after(self, lost: Place) -> Place:
        """The engine after the one that was lost."""
        async with self._starting:
            if self.place == lost:
                self.place = Place.of(await asyncio.to_thread(subject.start, self._model))
                if self._killed is not None:
                    self.restarted_s = time.monotonic() - self._killed[1]
        return self.place

    async def _is_loaded(self) -> bool:
        address = await asyncio.to_thread(runtime.find, self._model)
        health = await asyncio.to_thread(runtime.health, address) if address else None
        return health is not None and health["state"] == WorkerState.READY.value


async def _type(number: int, search: _Search) -> None:
    """Go on, wherever the engine is, until this client has had an answer again."""
    typist, place = Typist(number, of="kill"), search.place
    while number not in search.answered_s:
        try:
            await _type_at(place, number, typist, search)
        except httpx.TransportError:
            place = await search.after(place)
        except RefusedError:  # it is ending, or full
            await asyncio.sleep(REFUSED_S)


async def _type_at(place: Place, number: int, typist: Typist, search: _Search) -> None:
    chance = random.Random(number)  # noqa: S311
    async with Client(place, number=number) as client:
        while number not in search.answered_s:
            await client.fill(typist.next_key())
            search.note_answer(number, place)
            await asyncio.sleep(chance.uniform(*PAUSE_S))


def _seconds(value: float) -> float:
    return round(value, 3)
