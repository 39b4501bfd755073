"""What HTTP and the wire add to a fill: the same requests, to the same script, in this process and through a daemon."""

from __future__ import annotations

import time
from pathlib import Path

from tenon_engine.config import EngineConfig
from tenon_engine.evaluation.load import subject
from tenon_engine.evaluation.load.client import Client, Place
from tenon_engine.evaluation.load.figures import Figures, percentile
from tenon_engine.evaluation.load.typist import Typist
from tenon_engine.models import registry

WARM_UP_FILLS = 20
ANSWER = "sum(each.stock * each.price for each in everything)"


async def measure_overhead(folder: Path, fills: int) -> Figures:
    """Fill in turn here and there; the overhead is the difference of the two times of each request."""
    model = subject.write_script(folder / "overhead.json", [{"raw": ANSWER}])
    engine = registry.load_engine(EngineConfig(model=model))
    typist = Typist(0, of="overhead")
    here_ms, there_ms = [], []
    async with Client(Place.of(subject.start(model))) as client:
        for _ in range(WARM_UP_FILLS + fills):
            request = typist.next_key()
            started = time.perf_counter()
            engine.fill(request)
            here_ms.append((time.perf_counter() - started) * 1e3)
            there_ms.append((await client.fill(request)).latency_ms)
    del here_ms[:WARM_UP_FILLS], there_ms[:WARM_UP_FILLS]
    added_ms = [there - here for here, there in zip(here_ms, there_ms, strict=True)]
    return {
        "fills": fills,
        "in_process_p50_ms": percentile(here_ms, 0.5),
        "in_process_p95_ms": percentile(here_ms, 0.95),
        "http_p50_ms": percentile(there_ms, 0.5),
        "http_p95_ms": percentile(there_ms, 0.95),
        "p50_ms": percentile(added_ms, 0.5),
        "p95_ms": percentile(added_ms, 0.95),
    }
