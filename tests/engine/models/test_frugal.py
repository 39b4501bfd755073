"""A model whose device runs out of memory, which no test can make happen: what is dropped, tried again, and said."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from tenon_engine.engine import Engine
from tenon_engine.errors import OutOfMemoryError
from tenon_engine.models.base import ContextBudget, Draft, HoleRequest, Proposal, Scores, StopCheck
from tenon_engine.models.frugal import TOKENS_MIN, FrugalModel
from tenon_engine.wire import Cost, FillRequest, FillStep, Slot, SlotState

ON_CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
ON_CPU = RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.")


class HungryModel:
    """Fills with an x per token where that fits, and fails in its second step where it does not."""

    name = "hungry"
    device = "cpu"
    reads_instructions = True
    budget = ContextBudget(7, 8, 9)

    def __init__(self, room: int, error: Exception = ON_CUDA) -> None:
        self.room = room  # tokens of all candidates together
        self.asked: list[tuple[int, int]] = []
        self.forgotten = 0
        self._error = error

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        self.asked.append((hole.max_tokens, hole.candidates))
        yield self._proposal(1)
        if hole.max_tokens * hole.candidates > self.room:
            raise self._error
        yield self._proposal(hole.max_tokens)

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        if len(text) > self.room and self.forgotten < 1:
            raise self._error
        return Scores((), Cost(forwards=1), finished=True)

    def count_tokens(self, text: str) -> int:
        return len(text)

    def forget(self) -> None:
        self.forgotten += 1

    def _proposal(self, size: int) -> Proposal:
        text = "x" * size
        return Proposal((Draft(text, 1.0, finished=True),), (Slot(text, SlotState.DECIDED, 1.0),), Cost())


def request(max_tokens: int, candidates: int = 1) -> FillRequest:
    return FillRequest.single("a = ", "\n", max_tokens=max_tokens, candidates=candidates)


@pytest.mark.parametrize("error", [ON_CUDA, ON_CPU, MemoryError()])
def test_half_the_canvas_is_tried_until_it_fits(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    model = HungryModel(20, error)
    engine = Engine(FrugalModel(model))
    with caplog.at_level(logging.WARNING):
        *steps, result = engine.stream(request(64))
        engine.fill(request(64))
    assert [size for size, _ in model.asked] == [64, 32, 16] * 2
    assert result.holes[0].text == "x" * 16  # type: ignore[union-attr]
    assert [step.step for step in steps if isinstance(step, FillStep)] == [1, 2, 3, 4]
    assert model.forgotten == 4
    assert [record.name for record in caplog.records] == ["tenon_engine.models.frugal"]


def test_candidates_are_halved_too() -> None:
    model = HungryModel(40)
    Engine(FrugalModel(model)).fill(request(32, candidates=4))
    assert model.asked == [(32, 4), (16, 2)]


def test_what_does_not_fit_at_all_is_one_sentence_that_says_what_to_do() -> None:
    model = HungryModel(0)
    with pytest.raises(OutOfMemoryError, match="no memory left for a canvas of 8 tokens") as caught:
        Engine(FrugalModel(model)).fill(request(20))
    assert [size for size, _ in model.asked] == [20, 10, TOKENS_MIN]
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None  # it would hold the tensors of the step that failed


def test_the_smallest_canvas_is_tried_again_without_the_caches() -> None:
    model = HungryModel(0)
    with pytest.raises(OutOfMemoryError):
        Engine(FrugalModel(model)).fill(request(5))
    assert (model.asked, model.forgotten) == ([(5, 1), (5, 1)], 2)


def test_a_score_is_tried_once_more_without_the_caches() -> None:
    model = HungryModel(3)
    scores = FrugalModel(model).score(hole(), "long text", lambda: None)
    assert (scores.finished, model.forgotten) == (True, 1)


def test_a_score_that_does_not_fit_without_them_either_is_refused() -> None:
    class Hopeless(HungryModel):
        def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
            raise ON_CPU

    with pytest.raises(OutOfMemoryError):
        FrugalModel(Hopeless(0)).score(hole(), "text", lambda: None)


def test_other_failures_are_passed_on() -> None:
    fault = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    model = HungryModel(0, fault)
    with pytest.raises(RuntimeError) as caught:
        list(FrugalModel(model).propose(hole(), lambda: None))
    assert caught.value is fault
    assert (len(model.asked), model.forgotten) == (1, 0)


def test_it_is_the_model_in_all_else() -> None:
    model = FrugalModel(HungryModel(8))
    assert (model.name, model.budget, model.reads_instructions) == ("hungry", HungryModel.budget, True)
    assert model.count_tokens("abc") == 3


def hole() -> HoleRequest:
    return HoleRequest(
        prefix="a = ",
        suffix="\n",
        path=None,
        language=None,
        extra=(),
        max_tokens=16,
        candidates=1,
        temperature=0.0,
        seed=0,
        session="",
    )
