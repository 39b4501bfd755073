"""The length of a hole is not known: canvases of several lengths are denoised together, and the suffix picks.

How sure a model is of a fill says nothing of its length; how well the suffix behind it fits does. Owns which candidates
go on. Knows no text and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon_engine.denoise import Network, Track, denoise
from tenon_engine.models.gemma.network import Frame
from tenon_engine.models.gemma.uniform import UniformPlan, UniformRow

LENGTHS = 4
KEPT = 2  # after the first step

Candidate = Track[Frame, UniformRow]


def lengths(most: int) -> list[int]:
    """What a hole of at most `most` tokens may need: all of them, half, a quarter, an eighth."""
    return list(dict.fromkeys(-(-most >> halvings) for halvings in range(LENGTHS)))


def search(
    network: Network[Frame], plan: UniformPlan, candidates: Sequence[Candidate], *, wanted: int
) -> Iterator[list[Candidate]]:
    """Denoise `candidates`; after each forward those that are left, the ones whose suffix fits best first.

    After the first, only as many are left as are wanted, two at least; the last forward, if there is a choice, reads
    what they wrote.
    """
    next(denoise(network, plan, candidates))
    kept = _best(candidates)[: max(KEPT, wanted)]
    yield kept
    for _ in denoise(network, plan, kept):
        yield kept
    if len(kept) > 1:
        network.forward([(each.context, plan.look(each.row)) for each in kept])
        yield _best(kept)


def _best(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda each: -each.context.suffix_log_probability)
