"""What a fill's confidence is worth: from the product of its tokens' probabilities to how often such a fill is taken.

Owns the map and its file. How one is fitted is the business of `evaluation.calibration`.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

from tenon_engine.errors import StorageError, WeightsCorruptError

FILE_NAME = "calibration.json"
CONFIDENCE_MIN = 1e-12  # all below is one: nobody takes such a fill
_KNOTS_AT_MOST = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """A strictly rising map of [0, 1] onto itself, linear in the logarithm of the confidence between its knots.

    A knot is a confidence in (0, 1) and its probability; both rise from knot to knot. Beyond the outer knots the
    probability goes half the way that is left, to 0 or to 1, so that the order of two fills never changes.
    """

    knots: tuple[tuple[float, float], ...]
    fill_count: int  # that it was fitted on
    data: str  # where these came from, in words
    adapter_sha256: str = ""  # of the adapter that wrote them

    def __post_init__(self) -> None:
        inner = all(CONFIDENCE_MIN < x < 1 and 0 < y < 1 for x, y in self.knots)
        if not (0 < len(self.knots) <= _KNOTS_AT_MOST and inner and self._rises()):
            raise ValueError("the knots of a calibration lie between 0 and 1 and rise")

    def probability(self, confidence: float) -> float:
        """How likely a fill of this confidence is taken."""
        (_, lowest), (_, highest) = self.knots[0], self.knots[-1]
        places = [math.log(CONFIDENCE_MIN), *(math.log(x) for x, _ in self.knots), 0.0]
        values = [lowest / 2, *(y for _, y in self.knots), (1 + highest) / 2]
        place = math.log(min(max(confidence, CONFIDENCE_MIN), 1.0))
        right = min(max(bisect.bisect_right(places, place), 1), len(places) - 1)
        share = (place - places[right - 1]) / (places[right] - places[right - 1])
        return values[right - 1] + share * (values[right] - values[right - 1])

    def _rises(self) -> bool:
        pairs = itertools.pairwise(self.knots)
        return all(math.log(a) < math.log(c) and b < d for (a, b), (c, d) in pairs)


def load(path: Path) -> Calibration | None:
    """The calibration in a file, None where there is none; WeightsCorruptError for a damaged one."""
    try:
        form = json.loads(path.read_text(encoding="utf-8"))
        return _from_json(form)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise WeightsCorruptError(
            f"{path} is damaged; make it again with `tenon eval calibrate`, or remove it"
        ) from error


def save(calibration: Calibration, path: Path) -> None:
    """Write the file that `load` reads, whole or not at all."""
    form = dataclasses.asdict(calibration)
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(json.dumps(form, indent=1) + "\n", encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _from_json(form: Any) -> Calibration:
    return Calibration(
        knots=tuple((float(x), float(y)) for x, y in form["knots"]),
        fill_count=int(form["fill_count"]),
        data=str(form["data"]),
        adapter_sha256=str(form["adapter_sha256"]),
    )
