"""`tenon bench` of models of the hub, as a user runs it, and the yardstick it measures against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.models import tiny

from tenon_engine import cli
from tenon_engine.config import EngineConfig
from tenon_engine.evaluation.bench_hub import yardstick_of
from tenon_engine.evaluation.probe import card_of
from tenon_engine.evaluation.yardstick import StepShape, Yardstick
from tenon_engine.models import registry

SHAPE = StepShape(context=20, canvas=32, scored=4, rows=2)


def written(folder: Path, family: str) -> Path:
    if family == "dreamon":
        return tiny.write_dream(folder / family, dreamon=True)
    path: Path = getattr(tiny, f"write_{family}")(folder / family)
    return path


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENON_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TENON_DEVICE", "cpu")
    monkeypatch.setenv("TENON_DTYPE", "fp32")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("family", "canvas"), [("diffusion_gemma", 32), ("dreamon", None)])
def test_a_step_is_measured_beside_its_bound_and_a_bare_forward(
    family: str, canvas: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "--json", "--model", str(written(tmp_path, family))]) == 0
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert figures["format"] == "f32"
    assert figures["canvas"] == canvas or canvas is None
    positive = ("step_ms", "bare_step_ms", "step_bound_ms", "tokens_per_second", "autoregressive_bound_ms")
    assert all(
        figures[name] > 0 for name in (*positive, "autoregressive_tokens_per_second", "denoise_speedup")
    )
    assert figures["step_to_bound"] == pytest.approx(figures["step_ms"] / figures["step_bound_ms"], rel=0.01)
    share = figures["step_ms"] / figures["bare_step_ms"] - 1
    assert figures["overhead_share"] == pytest.approx(share, abs=1e-2)
    assert figures["active_parameters"] <= figures["parameters"]


@pytest.mark.usefixtures("on_cpu")
def test_the_figures_can_be_read_without_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--model", str(written(tmp_path, "dreamon"))]) == 0
    assert "step to bound" in capsys.readouterr().out


def test_a_model_that_does_not_denoise_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"raw": "1"}')
    assert cli.main(["bench", "--model", f"scripted:{script}"]) == cli.EXIT_BAD_INPUT
    assert "nothing to measure" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["diffusion_gemma", "llada"])
def test_the_yardstick_leaves_its_context_as_it_was(family: str, tmp_path: Path) -> None:
    folder = written(tmp_path, family)
    model = registry.load(str(folder), EngineConfig(device="cpu", dtype="fp32", offline=True))
    bare = yardstick_of(model)
    assert bare is not None
    lengths = []
    for _ in range(3):
        bare.step(SHAPE)
        bare.decode(SHAPE.context, 2)
        lengths.append(_kept_tokens(bare))
    assert lengths == [SHAPE.context] * 3


def test_a_device_that_is_not_in_the_table_is_measured() -> None:
    card, is_known = card_of(torch.device("cpu"), torch.float32)
    assert (card.name, is_known) == ("cpu, measured", False)
    assert card.bytes_per_second > 0 and card.operations_per_second > 0


def _kept_tokens(bare: Yardstick) -> int:
    cache: Any = getattr(bare, "_context", None) or getattr(bare, "_cache", None)
    return int(cache.get_seq_length())
