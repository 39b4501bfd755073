"""What the benchmark has to say: times and their percentiles, the machine, the table. Measures nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """How long something took, each time; `target_ms` is for the 95th percentile."""

    name: str
    values_ms: Sequence[float]
    target_ms: float | None = None

    def percentile(self, share: float) -> float:
        """The smallest time that so large a share of all times do not exceed."""
        return sorted(self.values_ms)[max(0, math.ceil(share * len(self.values_ms)) - 1)]

    def figures(self) -> dict[str, Any]:
        """The same in numbers, ready for JSON."""
        return {
            "p50_ms": round(self.percentile(0.5), 3),
            "p95_ms": round(self.percentile(0.95), 3),
            "max_ms": round(max(self.values_ms), 3),
            "count": len(self.values_ms),
            "target_p95_ms": self.target_ms,
        }


class Stopwatch:
    """Collects times under their names."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.values_ms: defaultdict[str, list[float]] = defaultdict(list)
        self._clock = clock

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """The time of a block; nothing where it fails."""
        started_s = self._clock()
        yield
        self.values_ms[name].append((self._clock() - started_s) * 1e3)

    def times(self, name: str, *, of: str, target_ms: float | None = None) -> Iterator[Times]:
        """What was collected under a name, if anything was."""
        if values := self.values_ms[of]:
            yield Times(name, values, target_ms)


def machine() -> str:
    """This machine in words: processor, cores, Python."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def load_average() -> float | None:
    """How many processes wanted to run in the last minute; None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def table(measured: Iterable[Times]) -> Iterator[str]:
    """A line for each, and what missed its target."""
    yield f"{'ms':44}{'p50':>10}{'p95':>10}{'max':>10}{'target':>10}"
    for times in measured:
        values = (times.percentile(0.5), times.percentile(0.95), max(times.values_ms))
        numbers = "".join(f"{value:10.2f}" for value in values)
        target = "" if times.target_ms is None else f"{times.target_ms:10.0f}"
        is_missed = times.target_ms is not None and values[1] > times.target_ms
        yield f"{times.name.replace('_', ' '):44}{numbers}{target}{'  missed' if is_missed else ''}"


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
