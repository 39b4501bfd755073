"""A run learns, can be stopped at any step, goes on as if it had not been, and says what is wrong in a sentence."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path

import pytest
import torch

from tenon_engine.errors import BadRequestError, WeightsCorruptError
from tenon_engine.training import checkpoint, loop
from tenon_engine.training.options import ExampleOptions, TrainOptions
from tenon_engine.training.run import Ground, Report, device_of

EXAMPLES = ExampleOptions(rows=2, context_tokens=192, canvas_slots=64, held_out=0.25)


@pytest.fixture
def options(texts: Path, adapter: Path, tmp_path: Path) -> TrainOptions:
    return TrainOptions(
        corpus=texts,
        out=tmp_path / "run",
        adapter=adapter,
        steps=6,
        examples=EXAMPLES,
        warmup_steps=2,
        evaluate_steps=3,
        evaluate_holes=2,
        device="cpu",
        compile=False,
    )


def train(options: TrainOptions, ground: Ground) -> list[Report]:
    reports: list[Report] = []
    loop.train(options, ground, reports.append)
    return reports


def test_it_learns(options: TrainOptions, ground: Ground) -> None:
    reports = train(dataclasses.replace(options, steps=20, learning_rate=1e-2, evaluate_steps=10), ground)
    held_out = [report.metrics["loss"].mean for report in reports if report.held_out]
    steps = [report for report in reports if not report.held_out]
    assert steps[-1].metrics["loss"].mean < 0.9 * steps[0].metrics["loss"].mean
    assert held_out[2] < held_out[1] < held_out[0]
    assert [report.step for report in steps] == list(range(1, 21))
    assert steps[-1].done == 1.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_and_goes_on_ends_where_one_without_a_stop_ends(
    options: TrainOptions, ground: Ground, tmp_path: Path, number: signal.Signals
) -> None:
    train(options, ground)
    stopped = dataclasses.replace(options, out=tmp_path / "stopped")

    def interrupt(report: Report) -> None:
        if report.step == 2:
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        loop.train(stopped, ground, interrupt)
    halfway = checkpoint.load(stopped.out)
    assert halfway is not None
    assert halfway.step == 2
    reports = train(stopped, ground)
    whole, parts = checkpoint.load(options.out), checkpoint.load(stopped.out)
    assert whole is not None and parts is not None
    assert [report.step for report in reports if not report.held_out] == [3, 4, 5, 6]
    for name, tensor in whole.weights.items():
        assert torch.allclose(tensor, parts.weights[name], atol=1e-6)
        assert torch.allclose(whole.average[name], parts.average[name], atol=1e-6)


def test_a_run_that_is_done_stays_as_it_is_and_a_longer_one_goes_on(
    options: TrainOptions, ground: Ground
) -> None:
    train(options, ground)
    assert train(options, ground) == []
    assert {report.step for report in train(dataclasses.replace(options, steps=7), ground)} == {7}


def test_accumulated_forwards_are_one_step_on_the_same_examples(
    options: TrainOptions, ground: Ground, tmp_path: Path
) -> None:
    whole = dataclasses.replace(options, steps=2, evaluate_steps=0)
    parts = dataclasses.replace(
        whole, out=tmp_path / "parts", accumulate=2, examples=dataclasses.replace(EXAMPLES, rows=1)
    )
    one, other = (train(each, ground) for each in (whole, parts))
    assert [report.step for report in other] == [1, 2]
    assert one[0].metrics["slot_1"].count == other[0].metrics["slot_1"].count
    assert one[0].metrics["loss"].mean == pytest.approx(other[0].metrics["loss"].mean, rel=1e-4)


def test_held_out_texts_are_looked_at_before_between_and_after(options: TrainOptions, ground: Ground) -> None:
    reports = train(dataclasses.replace(options, steps=4), ground)
    assert [report.step for report in reports if report.held_out] == [0, 3, 4]
    assert not any(report.held_out for report in train(dataclasses.replace(options, steps=4), ground))


def test_what_happened_is_in_a_log(options: TrainOptions, ground: Ground) -> None:
    train(options, ground)
    rows = [json.loads(line) for line in (options.out / checkpoint.LOG_NAME).read_text().splitlines()]
    assert [row["step"] for row in rows if row["held_out"]] == [0, 3, 6]
    assert {"loss", "slot_1", "slot_4", "end", "efficiency", "waited", "left_s"} <= set(rows[-1])


def test_other_settings_are_refused_by_name(options: TrainOptions, ground: Ground) -> None:
    train(dataclasses.replace(options, steps=1), ground)
    changed = dataclasses.replace(options, examples=dataclasses.replace(EXAMPLES, rows=3), learning_rate=1e-3)
    with pytest.raises(BadRequestError, match=r"other settings \(examples.rows, learning_rate\)"):
        train(changed, ground)


def test_a_damaged_checkpoint_is_named(options: TrainOptions, ground: Ground) -> None:
    train(dataclasses.replace(options, steps=1), ground)
    path = options.out / checkpoint.FILE_NAME
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsCorruptError, match="is damaged"):
        train(options, ground)


def test_a_run_without_an_end_is_refused(options: TrainOptions) -> None:
    with pytest.raises(BadRequestError, match="--minutes M or --steps N"):
        dataclasses.replace(options, steps=None)


def test_a_device_that_is_not_there_is_refused(options: TrainOptions) -> None:
    for name in ("cuda:7", "toaster", "meta"):
        with pytest.raises(BadRequestError, match=f"no device {name}"):
            device_of(dataclasses.replace(options, device=name))
