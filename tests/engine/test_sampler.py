"""Samplers against tables computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tenon_engine.sampler import (
    Prediction,
    above_margin,
    above_threshold,
    confirmed,
    entropy_bound,
    predict,
    top_k,
)

PROBABILITIES = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.45, 0.05], [0.05, 0.9, 0.05], [0.4, 0.3, 0.3]])


@pytest.fixture
def prediction() -> Prediction:
    return predict(PROBABILITIES.log())


def test_predict_gives_best_id_probability_margin_and_entropy(prediction: Prediction) -> None:
    assert prediction.ids.tolist() == [0, 0, 1, 0]
    assert prediction.probability.tolist() == pytest.approx([0.7, 0.5, 0.9, 0.4])
    assert prediction.margin.tolist() == pytest.approx([0.5, 0.05, 0.85, 0.1])
    by_hand = [-sum(p * math.log(p) for p in row) for row in PROBABILITIES.tolist()]
    assert prediction.entropy.tolist() == pytest.approx(by_hand)


def test_a_forbidden_id_is_never_predicted_and_has_no_entropy() -> None:
    prediction = predict(torch.tensor([[-torch.inf, 1.0, 1.0]]))
    assert prediction.ids.tolist() == [1]
    assert prediction.entropy.tolist() == pytest.approx([math.log(2)])


def test_first_rank_takes_the_next_best_id_in_the_first_slot_alone(prediction: Prediction) -> None:
    second = predict(PROBABILITIES.log(), first_rank=1)
    assert second.ids.tolist() == [1, 0, 1, 0]
    assert second.probability.tolist() == pytest.approx([0.2, 0.5, 0.9, 0.4])


def test_sampling_is_repeatable_by_seed_and_reports_the_models_own_probability() -> None:
    def draw(seed: int) -> Prediction:
        logits = PROBABILITIES.log().repeat(8, 1)
        return predict(logits, temperature=1.5, generator=torch.Generator().manual_seed(seed))

    assert draw(1).ids.tolist() == draw(1).ids.tolist()
    assert draw(1).ids.tolist() != draw(2).ids.tolist()
    for slot, (token, probability) in enumerate(zip(draw(1).ids, draw(1).probability, strict=True)):
        assert float(probability) == pytest.approx(float(PROBABILITIES[slot % 4, token]))


def test_threshold_accepts_what_exceeds_it(prediction: Prediction) -> None:
    assert above_threshold(prediction, 0.6) == [0, 2]
    assert above_threshold(prediction, 0.95) == []


def test_top_k_accepts_the_k_most_probable(prediction: Prediction) -> None:
    assert top_k(prediction, 1) == [2]
    assert top_k(prediction, 3) == [0, 1, 2]


def test_margin_accepts_clear_winners(prediction: Prediction) -> None:
    assert above_margin(prediction, 0.4) == [0, 2]


def test_entropy_bound_accepts_the_most_certain_slots_while_the_others_entropies_stay_within(
    prediction: Prediction,
) -> None:
    # entropies 0.802, 0.856, 0.394, 1.089: in order of certainty 2, 0, 1, 3,
    # with sums of the others 0, 0.394, 1.196, 2.052
    assert entropy_bound(prediction, 0.0) == [2]
    assert entropy_bound(prediction, 0.4) == [0, 2]
    assert entropy_bound(prediction, 1.2) == [0, 1, 2]
    assert entropy_bound(prediction, 3.0) == [0, 1, 2, 3]


def test_confirmed_counts_the_leading_drafts_the_model_agrees_with() -> None:
    assert confirmed([4, 5, 6], [4, 5, 7, 8]) == 2
    assert confirmed([4], [5, 4]) == 0
    assert confirmed([], [5]) == 0
