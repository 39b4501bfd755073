"""What a load run has to say: percentiles, rates, memory, the machine, the table. Measures no engine."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""Numbers by name, ready for JSON."""

TARGETS: Mapping[tuple[str, str], tuple[str, float]] = {
    ("overhead", "p95_ms"): ("≤", 5.0),
    ("mixed", "other"): ("≤", 0),
    ("mixed", "crossed"): ("≤", 0),
    ("mixed", "memory_growth"): ("≤", 1.1),
    ("throughput", "fills_ratio"): ("≥", 2.0),
    ("kill", "first_answer_s"): ("≤", 10.0),
}


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that so large a share of all does not exceed; None of nothing."""
    return round(sorted(values)[max(0, math.ceil(share * len(values)) - 1)], 3) if values else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """Their quotient, where there is one."""
    return round(part / whole, 3) if part is not None and whole else None


def memory_mb(pid: int | None) -> float | None:
    """The resident memory of a process; None where it, or a system that says, is elsewhere."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    sizes = (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))
    return next((round(size, 1) for size in sizes), None)


def machine() -> str:
    """This machine in words: processor, cores, system, Python."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def load_average() -> float | None:
    """How many processes wanted to run in the last minute; None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def missed(report: Mapping[str, Any]) -> list[str]:
    """The targets that were measured and not met."""
    return [
        f"{part}.{name} {sign} {target:g}"
        for (part, name), (sign, target) in TARGETS.items()
        if part in report and not _is_met(report[part][name], sign, target)
    ]


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """A line for each figure, with its target where it has one."""
    for part, figures in report.items():
        if not isinstance(figures, dict):
            yield f"{part.replace('_', ' '):32}{_shown(figures)}"
            continue
        yield f"\n{part.replace('_', ' ')}"
        for name, value in figures.items():
            line = f"  {name.replace('_', ' '):30}{_shown(value)}"
            sign, target = TARGETS.get((part, name), ("", 0.0))
            verdict = "" if _is_met(value, sign, target) else ", missed"
            yield f"{line:48}{sign} {target:g}{verdict}" if sign else line


def _is_met(value: float | None, sign: str, target: float) -> bool:
    """Whether a figure meets its target, as one that cannot be measured here does."""
    if not sign or value is None:
        return True
    return value >= target if sign == "≥" else value <= target


def _shown(value: object) -> str:
    match value:
        case dict():
            return (
                ", ".join(f"{name.replace('_', ' ')} {_shown(each)}" for name, each in value.items())
                or "none"
            )
        case list():
            return ", ".join(map(_shown, value)) or "none"
        case float():
            return f"{value:g}"
        case None:
            return "-"
    return str(value)


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
