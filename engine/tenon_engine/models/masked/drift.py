"""How far logits drift while keys and values around a canvas are kept: `python -m tenon_engine.models.masked.drift`.

Fills holes of a text as ever, and at every step asks the same network for the exact answer, too. Knows no files but
the one it is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from tenon_engine import config as engine_config
from tenon_engine.models.base import HoleRequest
from tenon_engine.models.hub.checkpoint import find
from tenon_engine.models.hub.placement import place
from tenon_engine.models.masked.model import MaskedModel, load
from tenon_engine.models.masked.network import MaskedNetwork, Surroundings
from tenon_engine.progress import silent
from tenon_engine.view import View

REFRESH_STEPS = (1, 2, 4, 8, 16)
HOLES = 20
MAX_TOKENS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """Over all slots that were scored: how far their distributions are from the exact ones (total variation, 0..1)."""

    slots: int
    mean: float
    largest: float
    same_best: float  # share of slots whose most probable id is the exact one


class _Compared:
    """A network that keeps keys and values, and measures itself against one that does not."""

    def __init__(self, network: MaskedNetwork, refresh_steps: int) -> None:
        self._kept = network.with_refresh(refresh_steps)
        self._exact = network.with_refresh(1)
        self.distances: list[float] = []
        self.agreeing = 0

    @torch.inference_mode()
    def forward(self, passes: Sequence[tuple[Surroundings, View]]) -> list[Tensor]:
        """Logits f32 [scored, rows] per pass, as the network that keeps gives them."""
        kept, exact = self._kept.forward(passes), self._exact.forward(passes)
        for mine, right in zip(kept, exact, strict=True):
            self.distances += ((mine.softmax(-1) - right.softmax(-1)).abs().sum(-1) / 2).tolist()
            self.agreeing += int((mine.argmax(-1) == right.argmax(-1)).sum())
        return kept


def measure(model: MaskedModel, holes: Iterable[HoleRequest], refresh_steps: int) -> Drift:
    """The drift over the fills of `holes`."""
    assert isinstance(model.network, MaskedNetwork), "a model that runs its own code keeps nothing"
    network = _Compared(model.network, refresh_steps)
    for hole in holes:
        for _ in model.with_network(network).propose(hole, lambda: None):
            pass
    count = len(network.distances)
    return Drift(count, sum(network.distances) / count, max(network.distances), network.agreeing / count)


def holes_of(text: str) -> Iterator[HoleRequest]:
    """Holes at the ends of lines all over a text, each what the second half of a line leaves open."""
    starts = [index + 1 for index, char in enumerate(text) if char == "\n"]
    for start in starts[:: max(1, len(starts) // HOLES)]:
        end = text.find("\n", start)
        if end - start > 1:
            middle = (start + end) // 2
            yield HoleRequest(
                prefix=text[:middle],
                suffix=text[end:],
                path=None,
                language=None,
                extra=(),
                max_tokens=MAX_TOKENS,
                candidates=1,
                temperature=0.0,
                seed=0,
                session="",
            )


def main() -> None:
    """Print a line per number of steps that keys and values are kept for."""
    parser = argparse.ArgumentParser(description="How far the logits of a masked model drift.")
    parser.add_argument("model", help="hub id or folder of a checkpoint")
    parser.add_argument("file", type=Path, help="a text to put holes into")
    arguments = parser.parse_args()
    config, _ = engine_config.load({}, {"model": arguments.model})
    checkpoint = find(arguments.model, offline=config.offline, progress=silent)
    model = load(checkpoint, place(checkpoint, config), config, silent)
    holes = list(holes_of(arguments.file.read_text(encoding="utf-8")))
    for refresh_steps in REFRESH_STEPS:
        drift = measure(model, holes, refresh_steps)
        sys.stdout.write(
            f"refreshed every {refresh_steps:2} steps: total variation {drift.mean:.4f} on average, "
            f"{drift.largest:.4f} at most, same best id {drift.same_best:.1%} of {drift.slots}\n"
        )


if __name__ == "__main__":
    main()
