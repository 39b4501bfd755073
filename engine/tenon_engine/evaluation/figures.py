"""Small figures that every evaluation computes."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ratio(numerator: float, denominator: float) -> float:
    """The quotient; 0 of nothing."""
    return numerator / denominator if denominator else 0.0


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return ratio(sum(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else 0.0
