"""Samplers by name: what is no sampler is refused before it can reach any arithmetic."""

from __future__ import annotations

import pytest

from tenon_engine.errors import BadRequestError
from tenon_engine.plan import ConfirmPlan, ParallelPlan
from tenon_engine.samplers import plan_named


@pytest.mark.parametrize(
    "name",
    [
        *("confirm:inf", "frontier:inf", "threshold:0.9:inf", "confirm:1e400", "topk:nan", "threshold:nan"),
        *(
            "left:3",
            "base:1",
            "confirm:1.5",
            "confirm:2000",
            "topk:0.5",
            "topk:inf",
            "entropy:-1",
            "confirm:",
        ),
    ],
)
def test_values_that_mean_nothing_are_an_unknown_sampler(name: str) -> None:
    with pytest.raises(BadRequestError, match="unknown sampler"):
        plan_named(name)


@pytest.mark.parametrize("name", ["confirm", "confirm:0:2", "left", "base"])
def test_drafts_are_confirmed(name: str) -> None:
    assert isinstance(plan_named(name), ConfirmPlan)


@pytest.mark.parametrize("name", ["frontier:8:0.9", "threshold:0.9:4", "topk:2", "margin", "entropy:0.1"])
def test_slots_are_accepted_in_parallel(name: str) -> None:
    assert isinstance(plan_named(name), ParallelPlan)
