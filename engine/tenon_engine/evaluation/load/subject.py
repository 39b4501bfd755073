"""Which engine is under load, and how it shows that everybody got their own answer.

Owns the daemons that a run starts, in a runtime folder of its own. Knows nothing of what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tenon_engine import runtime
from tenon_engine.evaluation.load import typist
from tenon_engine.evaluation.load.client import Client, Exchange, Place
from tenon_engine.evaluation.load.typist import Typist

SCRIPTED = "scripted"
SCRIPT_FILLS = 1500  # the model reads its script for each fill: more would measure that
SCRIPT_DELAY_MS = 20.0
WARM_UP_CLIENTS_MAX = 16  # as many contexts as the embedded model keeps


class Subject(Protocol):
    """An engine that runs."""

    @property
    def place(self) -> Place:
        """Where it answers."""
        ...

    @property
    def fills_max(self) -> int | None:
        """How many fills it is good for."""
        ...

    @property
    def is_repeatable(self) -> bool:
        """Whether it answers the same to the same request."""
        ...

    def crossed(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        """Those whose answer seems not to be for who got it."""
        ...


class Model:
    """A model: an answer that names another client's word seems crossed, or is a slip of its own (then always)."""

    fills_max = None
    is_repeatable = True

    def __init__(self, place: Place) -> None:
        self.place = place

    def crossed(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        """See Subject."""
        return [
            exchange
            for exchange in exchanges
            if any(typist.names_another(text, typist.words()[exchange.client]) for text in exchange.texts)
        ]


class Script:
    """A script that numbers its answers: what the model was asked with each number is in its list of calls."""

    fills_max = SCRIPT_FILLS
    is_repeatable = False

    def __init__(self, path: Path) -> None:
        entries = [{"raw": f"answer_{n}", "delay_ms": SCRIPT_DELAY_MS} for n in range(SCRIPT_FILLS)]
        self.place = Place.of(start(write_script(path, entries)))
        self._calls_path = Path(f"{path}.calls.jsonl")

    def crossed(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        """See Subject."""
        calls = [json.loads(line) for line in self._calls_path.read_text(encoding="utf-8").splitlines()]
        asked = {f"answer_{n}": (call["prefix"], call["suffix"]) for n, call in enumerate(calls)}
        return [
            exchange
            for exchange in exchanges
            if asked.get("".join(exchange.texts)) != exchange.request.segments[::2]
        ]


async def warm_up(place: Place, clients: int) -> None:
    """Have the model loaded, and its cache of contexts full if so many clients fill it."""

    async def fill(number: int) -> None:
        async with Client(place, number=number) as client:
            await client.fill(Typist(number, of="warm-up").next_key())

    await asyncio.gather(*map(fill, range(min(clients, WARM_UP_CLIENTS_MAX))))


async def confirmed_crossed(subject: Subject, exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Those that seem crossed, less those that are answered the same when they are alone: they got their own."""
    suspects = subject.crossed(exchanges)
    if not subject.is_repeatable:
        return suspects
    async with Client(subject.place) as client:
        return [exchange for exchange in suspects if not await is_same_alone(client, exchange)]


async def is_same_alone(client: Client, exchange: Exchange) -> bool:
    """Whether the request gets the same text when nothing else is asked."""
    alone = await client.fill(dataclasses.replace(exchange.request, session=""))
    return alone.texts[:1] == exchange.texts[:1]


@contextlib.contextmanager
def private_runtime() -> Iterator[Path]:
    """A folder where this run's daemons are, which end with it."""
    with tempfile.TemporaryDirectory(prefix="tenon-", ignore_cleanup_errors=True) as name:
        os.environ[runtime.FOLDER_VARIABLE] = name
        try:
            yield Path(name)
        finally:
            for address in runtime.running():
                runtime.stop(address)


def start(model: str) -> runtime.Address:
    """Start that model's daemon, as an editor would."""
    return runtime.start(model, linger_s=None)


def write_script(path: Path, entries: Sequence[dict[str, object]]) -> str:
    """Write a script; the name of its model."""
    path.write_text(json.dumps(entries), encoding="utf-8")
    return f"{runtime.SCRIPTED_PREFIX}{path}"
