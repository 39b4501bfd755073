"""Samplers by name, as settings and flags spell them: `name[:value[:window]]`. One table; no arithmetic."""

from __future__ import annotations

import math

from tenon_engine.errors import BadRequestError
from tenon_engine.plan import ConfirmPlan, ParallelPlan, Plan, Row, Rule
from tenon_engine.sampler import above_margin, above_threshold, entropy_bound, top_k

COUNT_MAX = 1024  # slots of the largest canvas
DEFAULT_FAN, NGRAM_LENGTH, NGRAM_COUNT = 2, 3, 6
RULES: dict[str, tuple[Rule, float]] = {
    "threshold": (above_threshold, 0.9),
    "topk": (top_k, 1),
    "margin": (above_margin, 0.7),
    "entropy": (entropy_bound, 0.1),
}
HELP = (
    "confirm[:FAN[:NGRAM]], left, frontier[:WINDOW[:THRESHOLD]], "
    "threshold|topk|margin|entropy[:VALUE[:WINDOW]], base"
)


def plan_named(name: str) -> Plan[Row]:
    """The plan `name` describes; BadRequestError when it describes none."""
    kind, *rest = name.split(":")
    try:
        values = [float(value) for value in rest]
        return _plan(kind, values)
    except (ValueError, KeyError, IndexError):
        raise BadRequestError(f"unknown sampler {name!r}; there are: {HELP}") from None


def _plan(kind: str, values: list[float]) -> Plan[Row]:
    first, second = (*values, None, None)[:2]
    most = 0 if kind in ("left", "base") else 2
    if len(values) > most or not all(0 <= value < math.inf for value in values):
        raise ValueError
    if kind == "confirm":
        return ConfirmPlan(_count(first, DEFAULT_FAN), _count(second, NGRAM_LENGTH), NGRAM_COUNT)
    if kind == "left":
        return ConfirmPlan(0)
    if kind == "base":
        return ConfirmPlan(0, adapted=False, one_line=True)
    if kind == "frontier":
        return ParallelPlan(above_threshold, 0.9 if second is None else second, _count(first, 8))
    rule, default = RULES[kind]
    value = default if first is None else first
    return ParallelPlan(
        rule, _count(value, 1) if rule is top_k else value, None if second is None else _count(second, 1)
    )


def _count(value: float | None, default: int) -> int:
    if value is None:
        return default
    if value > COUNT_MAX or not value.is_integer():
        raise ValueError
    return int(value)
