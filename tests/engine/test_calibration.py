"""What confidences are worth: the figures, the fit, the file, and what the engine makes of it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine import calibration as calibrations
from tenon_engine.calibration import Calibration
from tenon_engine.diffusion import DiffusionModel, Limits
from tenon_engine.errors import StorageError, WeightsCorruptError
from tenon_engine.evaluation import calibration
from tenon_engine.evaluation.calibration import Outcome
from tenon_engine.models.base import Draft, HoleRequest
from tenon_engine.models.embedded import ADAPTER_PATH, calibration_of
from tenon_engine.models.toy import SPECIAL, ByteTokenizer, ToyContext, ToyNetwork
from tenon_engine.samplers import plan_named

CONFIDENCES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-300, 1e-12, 2e-12, 0.5, 1 - 1e-12, 1.0]))
OUTCOMES = st.lists(st.builds(Outcome, CONFIDENCES, st.booleans()), min_size=1, max_size=300)
KNOTS = Calibration(((0.01, 0.2), (0.1, 0.4), (0.9, 0.8)), 100, "nowhere")


@given(outcomes=OUTCOMES, confidences=st.lists(CONFIDENCES, min_size=2, max_size=20))
def test_a_fitted_calibration_is_monotone_and_gives_probabilities(
    outcomes: list[Outcome], confidences: list[float]
) -> None:
    fitted = calibration.isotonic(outcomes)
    values = [fitted.probability(confidence) for confidence in sorted(confidences)]
    assert all(0 < value < 1 for value in values)
    assert all(before <= after + 1e-12 for before, after in itertools.pairwise(values))


@given(OUTCOMES)
def test_a_fitted_calibration_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[Outcome]
) -> None:
    path = tmp_path_factory.mktemp("calibration") / "calibration.json"
    fitted = calibration.isotonic(outcomes, data="somewhere", adapter_sha256="00ff")
    calibrations.save(fitted, path)
    assert calibrations.load(path) == fitted
    assert path.stat().st_size < 3000


def test_what_was_right_more_often_than_the_model_thought_is_believed_more() -> None:
    drawn = random.Random(1)
    confidences = [drawn.random() ** 3 for _ in range(3000)]
    outcomes = [Outcome(each, drawn.random() < math.sqrt(each)) for each in confidences]
    fitted = calibration.isotonic(outcomes)
    assert all(abs(fitted.probability(each) - math.sqrt(each)) < 0.08 for each in (0.01, 0.1, 0.3, 0.6, 0.9))
    held_out = calibration.cross_validated([outcomes[fold::5] for fold in range(5)])
    assert calibration.ece(outcomes) > 0.1
    assert calibration.ece(held_out) < 0.04


def test_between_knots_a_probability_is_linear_in_the_logarithm_and_beyond_them_goes_half_the_way() -> None:
    assert KNOTS.probability(0.1) == pytest.approx(0.4)
    assert KNOTS.probability(math.sqrt(0.001)) == pytest.approx(0.3)
    assert (KNOTS.probability(0.0), KNOTS.probability(1.0)) == pytest.approx((0.1, 0.9))


@pytest.mark.parametrize(
    "knots",
    [
        (),
        ((0.5, 0.4), (0.4, 0.5)),
        ((0.4, 0.5), (0.5, 0.5)),
        ((0.4, 0.0),),
        ((1.0, 0.5),),
        ((0.4, math.nan),),
    ],
)
def test_knots_that_do_not_rise_within_0_and_1_are_refused(knots: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="rise"):
        Calibration(knots, 1, "")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "\udcff",
        '{"knots": [[0.5, 0.4], [0.4, 0.5]], "fill_count": 1, "data": "", "adapter_sha256": ""}',
        '{"knots": [[0.5, 0.5, 1]], "fill_count": 1, "data": "", "adapter_sha256": ""}',
        '{"knots": [["a", 0.5]], "fill_count": 1, "data": "", "adapter_sha256": ""}',
    ],
)
def test_a_damaged_file_is_one_sentence_that_says_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(WeightsCorruptError, match="make it again with `tenon eval calibrate`") as caught:
        calibrations.load(path)
    assert "\n" not in str(caught.value)


def test_a_calibration_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        calibrations.save(KNOTS, tmp_path / "absent" / "calibration.json")


def test_an_adapter_has_its_own_calibration_or_the_shipped_one(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter.safetensors"
    assert calibration_of(adapter) == calibration_of(ADAPTER_PATH)
    calibrations.save(KNOTS, tmp_path / "calibration.json")
    assert calibration_of(adapter) == KNOTS


def test_the_shipped_calibration_was_fitted_on_fills_of_the_shipped_adapter() -> None:
    shipped = calibrations.load(ADAPTER_PATH.with_name(calibrations.FILE_NAME))
    if shipped is None:
        pytest.skip("no calibration ships with this adapter")
    assert shipped.adapter_sha256 == hashlib.sha256(ADAPTER_PATH.read_bytes()).hexdigest()
    assert shipped.data


def test_figures_are_those_computed_by_hand() -> None:
    outcomes = [Outcome(0.9, True), Outcome(0.8, False), Outcome(0.3, True), Outcome(0.0, False)]
    offered = calibration.offered(outcomes)
    assert calibration.ece(offered) == pytest.approx((0.1 + 0.8 + 0.7) / 3)
    assert [(each.confidence, each.right) for each in calibration.reliability(offered)] == [
        (0.3, 1.0),
        (0.8, 0.0),
        (0.9, 1.0),
    ]
    points = calibration.precision_at_coverage(outcomes, (0.25, 0.5, 1.0))
    assert [(point.precision, point.confidence) for point in points] == [(1.0, 0.9), (0.5, 0.8), (0.5, 0.0)]


def test_bins_have_the_same_number_of_outcomes() -> None:
    bins = calibration.reliability([Outcome(number / 95, number % 2 == 0) for number in range(95)])
    assert len(bins) == 10
    assert {each.count for each in bins} == {9, 10}
    assert sum(each.count for each in bins) == 95


def test_nothing_has_no_error_and_no_points() -> None:
    assert calibration.ece([]) == 0.0
    assert calibration.reliability([]) == ()
    assert calibration.precision_at_coverage([]) == ()
    assert calibration.widest([], 0.6) is None


def test_the_widest_gate_keeps_outcomes_of_one_confidence_together() -> None:
    outcomes = [
        Outcome(0.9, True),
        Outcome(0.5, True),
        Outcome(0.5, False),
        Outcome(0.5, False),
        Outcome(0.1, True),
    ]
    gate = calibration.widest(outcomes, 0.6)
    assert gate == calibration.Point(1.0, 0.6, 0.1)
    narrower = calibration.widest(outcomes, 0.9)
    assert narrower == calibration.Point(0.2, 1.0, 0.9)
    assert calibration.widest([Outcome(0.9, False)], 0.6) is None


@given(OUTCOMES)
def test_precision_at_full_coverage_is_the_share_that_is_right(outcomes: list[Outcome]) -> None:
    *_, last = calibration.precision_at_coverage(outcomes)
    assert last.precision == pytest.approx(sum(outcome.right for outcome in outcomes) / len(outcomes))


def test_a_row_is_json() -> None:
    row = json.loads(json.dumps(calibration.row([Outcome(0.9, True), Outcome(0.0, False)])))
    assert row["ece"] == pytest.approx(0.1)
    assert row["precision_at_coverage"][-1] == {"coverage": 1.0, "precision": 0.5, "confidence": 0.0}


def test_without_a_calibration_a_confidence_is_the_product_of_what_was_accepted() -> None:
    model = _model()
    plain, same = (_steps(each) for each in (model, model.with_calibration(None)))
    assert plain == same
    assert 0 < plain[-1].confidence < 1


def test_a_calibration_changes_the_confidence_of_the_whole_fill_alone() -> None:
    plain, calibrated = _steps(_model()), _steps(_model().with_calibration(KNOTS))
    assert [draft.text for draft in calibrated] == [draft.text for draft in plain]
    assert calibrated[:-1] == plain[:-1]
    assert len(plain) > 1
    assert calibrated[-1].confidence == KNOTS.probability(plain[-1].confidence) != plain[-1].confidence


def _model() -> DiffusionModel[ToyContext]:
    return DiffusionModel(
        name="toy",
        network=ToyNetwork(),
        tokenizer=ByteTokenizer(),
        special=SPECIAL,
        plan=plan_named("left"),
        limits=Limits(prefix_tokens=40, suffix_tokens=20, path_header=False),
    )


def _steps(model: DiffusionModel[ToyContext]) -> list[Draft]:
    hole = HoleRequest(
        prefix="a = ",
        suffix="\n",
        path=None,
        language=None,
        extra=(),
        max_tokens=6,
        candidates=1,
        temperature=0.0,
        seed=0,
        session="",
    )
    return [proposal.drafts[0] for proposal in model.propose(hole, lambda: None)]
