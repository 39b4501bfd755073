"""The loss, taken chunk by chunk with its gradient at once, is the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tenon_engine.training import objective
from tenon_engine.training.objective import Count, Said, Targets, judge, measure, teach

VOCABULARY, HIDDEN, END = 40, 8, 39


@pytest.fixture
def numbers() -> tuple[Tensor, Tensor, Targets]:
    torch.manual_seed(0)
    count = 11
    ids = torch.randint(0, VOCABULARY, (count,))
    shares = torch.rand(count, 16).softmax(-1) * 0.5
    shares[3] = 0
    teacher_ids = torch.stack([torch.randperm(VOCABULARY)[:16] for _ in range(count)])
    targets = Targets(ids, torch.rand(count), teacher_ids, shares)
    return torch.randn(count, HIDDEN), torch.randn(VOCABULARY, HIDDEN), targets


def plain_loss(hidden: Tensor, head: Tensor, targets: Targets) -> Tensor:
    wanted = torch.zeros(len(hidden), VOCABULARY).scatter_add_(1, targets.teacher_ids, targets.teacher_shares)
    own = 1 - targets.teacher_shares.sum(-1, keepdim=True)
    wanted = wanted.scatter_add_(1, targets.ids[:, None], own)
    losses = -(wanted * (hidden @ head.T).log_softmax(-1)).sum(-1)
    return (losses * targets.weights).sum() / targets.weights.sum()


@pytest.mark.parametrize("chunk", [4, 128])
def test_loss_and_gradient_are_those_of_the_plain_formula(
    numbers: tuple[Tensor, Tensor, Targets], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)
    hidden, head, targets = numbers
    ours, theirs = (hidden.clone().requires_grad_() for _ in range(2))
    said, want = judge(ours, head, targets), plain_loss(theirs, head, targets)
    said.loss.backward()
    want.backward()
    assert said.loss.item() == pytest.approx(want.item(), rel=1e-5)
    assert ours.grad is not None and theirs.grad is not None
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    scores = hidden @ head.T
    assert torch.equal(said.is_right, scores.argmax(-1) == targets.ids)
    assert torch.allclose(
        said.log_likelihood, scores.log_softmax(-1)[torch.arange(11), targets.ids], atol=1e-5
    )


def test_the_base_has_no_say_where_the_text_ends_and_never_says_end() -> None:
    torch.manual_seed(1)
    hidden, head = torch.randn(5, HIDDEN), torch.randn(VOCABULARY, HIDDEN)
    head[END] = hidden.sum(0) * 10  # it would say nothing else
    ids, shares = teach(hidden, head, torch.tensor([0, 4, -1, 4]), end_id=END, share=0.5)
    assert (ids < END).all()
    assert shares.sum(-1).tolist() == pytest.approx([0.5, 0.5, 0.0, 0.5])
    assert torch.equal(ids[1], ids[3])
    assert int(ids[0, 0]) == int((head[:END] @ hidden[0]).argmax())


def test_figures_are_by_open_slot_and_the_loss_is_weighted() -> None:
    said = Said(
        torch.tensor(0.0), torch.tensor([-1.0, -3.0, -9.0, -2.0]), torch.tensor([True, False, True, True])
    )
    ids, ranks = torch.tensor([5, 6, END, END]), torch.tensor([1, 2, 0, 1])
    figures = measure(said, ids, torch.tensor([1.0, 0.5, 0.0, 0.5]), ranks, end_id=END)
    assert figures["loss"] == Count(3.5, 2.0)
    assert figures["slot_1"] == Count(2.0, 2.0)
    assert figures["slot_2"] == Count(0.0, 1.0)
    assert figures["slot_3"].mean == 0.0
    assert figures["end"] == Count(1.0, 1.0)
