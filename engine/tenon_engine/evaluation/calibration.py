"""How far a confidence can be believed: reliability, precision at coverage, and the calibration that sets it right.

Knows nothing of engines or fills: outcomes come in, figures come out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from tenon_engine.calibration import CONFIDENCE_MIN, Calibration

BINS = 10
COVERAGES = tuple(tenth / 10 for tenth in range(1, 11))
KNOTS_AT_MOST = 20
_PER_KNOT_AT_LEAST = 10  # fewer outcomes say little about a share
_CONFIDENCE_MAX = 1 - 1e-9
_APART = 1 + 1e-6  # the ratio of two knots at least


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A fill that was offered with `confidence`, and whether it was right."""

    confidence: float
    right: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Bin:
    """Outcomes of like confidence: how sure the model was of them on average, and which share of them was right."""

    count: int
    confidence: float
    right: float


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """Of the surest outcomes, the share `coverage` of all, the share that is right; the least sure has `confidence`."""

    coverage: float
    precision: float
    confidence: float


def reliability(outcomes: Sequence[Outcome]) -> tuple[Bin, ...]:
    """At most ten bins with the same number of outcomes each (give or take one), the least sure first."""
    return tuple(_bin(group) for group in _groups(outcomes, BINS))


def ece(outcomes: Sequence[Outcome]) -> float:
    """Expected calibration error over the bins of `reliability`; 0 for no outcomes."""
    bins = reliability(outcomes)
    total = sum(each.count * abs(each.confidence - each.right) for each in bins)
    return total / len(outcomes) if outcomes else 0.0


def precision_at_coverage(
    outcomes: Sequence[Outcome], coverages: Sequence[float] = COVERAGES
) -> tuple[Point, ...]:
    """How precise the surest outcomes are, for each share of all; what was not offered has confidence 0."""
    ranked = _ranked(outcomes)
    counts = [max(1, round(coverage * len(ranked))) for coverage in coverages]
    return tuple(_point(ranked, count) for count in counts) if ranked else ()


def widest(outcomes: Sequence[Outcome], precision: float) -> Point | None:
    """The highest coverage at which the share `precision` is right; None where none is.

    Outcomes of the same confidence are inside or outside together: its confidence is a gate that can be set.
    """
    ranked = _ranked(outcomes)
    ends = [n for n in range(1, len(ranked)) if ranked[n - 1].confidence > ranked[n].confidence]
    points = [_point(ranked, count) for count in (*ends, len(ranked))] if ranked else []
    return next((point for point in reversed(points) if point.precision >= precision), None)


def row(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The figures under their published names, rounded; the error is of what was offered, the coverage of all."""
    return {
        "ece": round(ece(offered(outcomes)), 4),
        "precision_at_coverage": [point_row(point) for point in precision_at_coverage(outcomes)],
    }


def point_row(point: Point) -> dict[str, float]:
    """A point, rounded."""
    return {name: round(value, 4) for name, value in dataclasses.asdict(point).items()}


def offered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those with any confidence: there is a fill."""
    return [outcome for outcome in outcomes if outcome.confidence > 0]


def cross_validated(groups: Sequence[Sequence[Outcome]]) -> list[Outcome]:
    """The outcomes of all groups, each group calibrated by what fits the others; two groups at least."""
    calibrated = []
    for group in groups:
        fitted = isotonic([outcome for other in groups if other is not group for outcome in other])
        calibrated += [
            dataclasses.replace(each, confidence=fitted.probability(each.confidence)) for each in group
        ]
    return calibrated


def isotonic(outcomes: Sequence[Outcome], *, data: str = "", adapter_sha256: str = "") -> Calibration:
    """The calibration that fits `outcomes`: pool adjacent violators over groups of equal count.

    Barlow et al., Statistical Inference under Order Restrictions (1972); shares are smoothed by half an outcome on
    each side, so that a few outcomes never make a certainty. At least one outcome is needed.
    """
    assert outcomes, "nothing to fit"
    groups = _groups(outcomes, min(KNOTS_AT_MOST, max(1, len(outcomes) // _PER_KNOT_AT_LEAST)))
    pooled: list[_Pool] = []
    for group in groups:
        pooled.append(_Pool.of(group))
        while len(pooled) > 1 and not pooled[-2].is_below(pooled[-1]):
            last = pooled.pop()
            pooled[-1] += last
    knots = tuple((pool.confidence, pool.share) for pool in pooled)
    return Calibration(knots, len(outcomes), data, adapter_sha256)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pool:
    """Neighbouring outcomes that share one probability."""

    count: int
    right: int
    log_sum: float

    @staticmethod
    def of(group: Sequence[Outcome]) -> _Pool:
        logs = (math.log(min(max(each.confidence, CONFIDENCE_MIN * 2), _CONFIDENCE_MAX)) for each in group)
        return _Pool(len(group), sum(each.right for each in group), sum(logs))

    @property
    def confidence(self) -> float:
        return math.exp(self.log_sum / self.count)

    @property
    def share(self) -> float:
        return (self.right + 0.5) / (self.count + 1)

    def is_below(self, other: _Pool) -> bool:
        return self.share < other.share and self.confidence * _APART < other.confidence

    def __add__(self, other: _Pool) -> _Pool:
        return _Pool(self.count + other.count, self.right + other.right, self.log_sum + other.log_sum)


def _ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The surest first; of the same confidence, wrong ones first: nobody shall profit from their order."""
    return sorted(outcomes, key=lambda each: (-each.confidence, each.right))


def _groups(outcomes: Sequence[Outcome], count: int) -> Iterator[list[Outcome]]:
    """`outcomes` by rising confidence in so many groups, none empty."""
    ordered = _ranked(outcomes)[::-1]
    count = min(count, len(ordered))
    for number in range(count):
        yield ordered[number * len(ordered) // count : (number + 1) * len(ordered) // count]


def _bin(group: Sequence[Outcome]) -> Bin:
    count = len(group)
    return Bin(
        count, sum(each.confidence for each in group) / count, sum(each.right for each in group) / count
    )


def _point(ranked: Sequence[Outcome], count: int) -> Point:
    right = sum(each.right for each in ranked[:count])
    return Point(count / len(ranked), right / count, ranked[count - 1].confidence)
