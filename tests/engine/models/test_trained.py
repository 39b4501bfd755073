"""The trained tiny checkpoints through the whole engine: what fills a hole is what the text behind it says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.engine.models.train_tiny import DATA, Case, held_out_cases

from tenon_engine.config import EngineConfig
from tenon_engine.engine import Engine
from tenon_engine.models.hub import families
from tenon_engine.progress import silent
from tenon_engine.wire import FillRequest

CASES = held_out_cases(100, seed=2)
OTHERS = [*CASES[1:], CASES[0]]
MANY, FEW = 95, 30  # of a hundred
BYTES_MAX = 1_500_000


@pytest.fixture(scope="module", params=["tiny-llada", "tiny-gemma"])
def engine(request: pytest.FixtureRequest) -> Engine:
    config = EngineConfig(device="cpu", dtype="fp32")
    return Engine(families.load(str(DATA / request.param), config, silent))


def fills(engine: Engine, suffixes: Sequence[str]) -> list[str]:
    """What the engine writes into the cases' holes before these suffixes."""
    return [
        engine.fill(FillRequest.single(case.prefix, suffix, max_tokens=len(case.value))).holes[0].text
        for case, suffix in zip(CASES, suffixes, strict=True)
    ]


def hits(texts: Sequence[str], cases: Sequence[Case]) -> int:
    return sum(text == case.value for text, case in zip(texts, cases, strict=True))


def test_a_hole_that_the_suffix_determines_is_filled_as_it_says(engine: Engine) -> None:
    assert hits(fills(engine, [case.suffix for case in CASES]), CASES) >= MANY


def test_without_the_suffix_nobody_can_know(engine: Engine) -> None:
    assert hits(fills(engine, [""] * len(CASES)), CASES) <= FEW


def test_another_suffix_is_followed_as_well(engine: Engine) -> None:
    texts = fills(engine, [other.suffix for other in OTHERS])
    assert hits(texts, CASES) <= FEW
    assert hits(texts, OTHERS) >= MANY


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-gemma"])
def test_the_checkpoints_are_small_enough_to_be_here(name: str) -> None:
    assert sum(path.stat().st_size for path in (DATA / name).iterdir()) <= BYTES_MAX
