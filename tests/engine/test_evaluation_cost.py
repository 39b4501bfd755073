"""What a step must read and multiply, against figures that were counted elsewhere, and against real modules."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from tests.engine.models import tiny

from tenon_engine.errors import BadRequestError
from tenon_engine.evaluation.backbone import EMBEDDED_CONFIG, Backbone, backbone_of
from tenon_engine.evaluation.cost import (
    CARDS,
    FORMATS,
    Card,
    Infill,
    Work,
    autoregressive,
    cached_masked_fill,
    card_named,
    denoising_step,
    encoding,
    forward,
    searched_fill,
    whole_fill,
)
from tenon_engine.models.gemma.search import KEPT, LENGTHS

GEMMA_TEXT = {
    "vocab_size": 262_144,
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "num_global_key_value_heads": 2,
    "global_head_dim": 512,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
    "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
}
GEMMA = backbone_of({"model_type": "diffusion_gemma", "text_config": GEMMA_TEXT})
LLADA = backbone_of(
    {
        "model_type": "llada",
        "d_model": 4096,
        "n_layers": 32,
        "n_heads": 32,
        "n_kv_heads": 32,
        "mlp_hidden_size": 12_288,
        "embedding_size": 126_464,
        "weight_tying": False,
    }
)
DREAM = backbone_of(
    {
        "model_type": "Dream",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18_944,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    }
)
FILL = Infill(context=2048, new_context=3, canvas=256, hole=24, steps=4)


def test_the_parameters_of_the_real_checkpoints_are_counted() -> None:
    assert GEMMA.weights / 1e9 == pytest.approx(25.25, abs=0.01)
    assert GEMMA.active_weights / 1e9 == pytest.approx(3.84, abs=0.01)
    assert GEMMA.expert_weights / 1e9 == pytest.approx(22.84, abs=0.01)
    assert (LLADA.weights / 1e9, DREAM.weights / 1e9) == pytest.approx((8.02, 7.62), abs=0.01)
    assert backbone_of(EMBEDDED_CONFIG).weights / 1e6 == pytest.approx(494 + 35, abs=1)  # and the adapter


@pytest.mark.parametrize(
    ("canvas", "scored", "operations", "touched", "gigabytes"),
    [
        (256, 256, 2.57e12, 1.0, {"bf16": 52.2, "fp8": 27.7, "nvfp4": 17.7}),
        (256, 24, 1.89e12, 1.0, {"bf16": 52.2, "fp8": 27.7, "nvfp4": 17.7}),
        (64, 24, 0.52e12, 0.984, {"bf16": 51.5, "fp8": 27.3, "nvfp4": 17.5}),
    ],
)
def test_a_denoising_step_of_diffusion_gemma(
    canvas: int, scored: int, operations: float, touched: float, gigabytes: dict[str, float]
) -> None:
    fill = dataclasses.replace(FILL, canvas=canvas, hole=scored)
    assert GEMMA.experts is not None
    assert GEMMA.experts.share_touched(canvas) == pytest.approx(touched, abs=5e-4)
    for name, expected in gigabytes.items():
        work = denoising_step(GEMMA, FORMATS[name], fill)
        assert work.bytes / 1e9 == pytest.approx(expected, abs=0.06)
        assert work.operations == pytest.approx(operations, rel=0.005)


def test_sliding_layers_see_their_window_of_the_context_alone() -> None:
    cached = [
        forward(GEMMA, FORMATS["bf16"], tokens=1, context=context).bytes for context in (0, 1023, 2048, 4096)
    ]
    assert (cached[2] - cached[0]) / 1e6 == pytest.approx(251, abs=1)
    full_layers = 5 * 2 * 2 * 512 * 2.0  # bytes a token leaves in them
    assert cached[3] - cached[2] == pytest.approx(full_layers * 2048)


@pytest.mark.parametrize(
    ("device", "form", "step_ms", "fill_ms", "one_by_one_ms"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 15.6, (35, 66, 128, 253), 57),
        ("NVIDIA H100 80GB HBM3", "fp8", 8.3, (18, 35, 68, 134), 35),
        ("NVIDIA H200", "fp8", 5.8, (13, 24, 47, 94), 24),
        ("NVIDIA GeForce RTX 5090", "fp8", 15.5, (34, 65, 127, 251), 65),
        ("NVIDIA GeForce RTX 5090", "nvfp4", 9.9, (22, 42, 81, 160), 56),
    ],
)
def test_the_bounds_of_a_24_token_infill(
    device: str, form: str, step_ms: float, fill_ms: tuple[int, ...], one_by_one_ms: float
) -> None:
    card = card_named(device)
    assert card is not None
    assert card.bound_ms(denoising_step(GEMMA, FORMATS[form], FILL)) == pytest.approx(step_ms, abs=0.06)
    for steps, expected in zip((2, 4, 8, 16), fill_ms, strict=True):
        fill = whole_fill(GEMMA, FORMATS[form], dataclasses.replace(FILL, steps=steps))
        assert card.bound_ms(fill) == pytest.approx(expected, abs=1)
    alone = autoregressive(GEMMA, FORMATS[form], context=2048, tokens=24)
    assert card.bound_ms(alone) == pytest.approx(one_by_one_ms, abs=1)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
@pytest.mark.parametrize("form", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("steps", [3, 4, 6, 8])
def test_an_infill_with_its_context_and_a_check_stays_near_the_bound_of_its_steps(
    card: Card, form: str, steps: int
) -> None:
    """Three keys typed, one check of the suffix: at most 1.5 times what the steps alone must cost."""
    fill = dataclasses.replace(FILL, steps=steps, checks=1)
    of_the_steps = card.bound_ms(denoising_step(GEMMA, FORMATS[form], fill)) * steps
    assert card.bound_ms(whole_fill(GEMMA, FORMATS[form], fill)) <= 1.5 * of_the_steps


@pytest.mark.parametrize("device", ["H100", "H200"])
@pytest.mark.parametrize("form", ["bf16", "fp8"])
@pytest.mark.parametrize("steps", [4, 6, 8])
def test_searching_for_the_length_stays_near_that_bound_where_a_step_waits_for_memory(
    device: str, form: str, steps: int
) -> None:
    card, fill = card_named(device), dataclasses.replace(FILL, steps=steps)
    assert card is not None
    passes = searched_fill(GEMMA, FORMATS[form], fill, lengths=LENGTHS, kept=KEPT)
    assert len(passes) == 1 + steps + 1
    of_the_steps = card.bound_ms(denoising_step(GEMMA, FORMATS[form], fill)) * steps
    assert sum(map(card.bound_ms, passes)) <= 1.5 * of_the_steps


def test_candidates_share_the_weights_that_are_read() -> None:
    one, four = (
        denoising_step(GEMMA, FORMATS["fp8"], dataclasses.replace(FILL, rows=rows)) for rows in (1, 4)
    )
    assert four.bytes == pytest.approx(one.bytes, rel=1e-3)
    assert four.operations == pytest.approx(4 * one.operations)


@pytest.mark.parametrize("backbone", [LLADA, DREAM], ids=["LLaDA", "Dream"])
def test_the_dual_cache_saves_the_passes_over_the_context(backbone: Backbone) -> None:
    fill = Infill(context=2048, new_context=0, canvas=24, hole=24, steps=8)
    never, rarely = (
        cached_masked_fill(backbone, FORMATS["bf16"], fill, refresh_every=every) for every in (1, 8)
    )
    assert never.operations / rarely.operations == pytest.approx(8, rel=0.15)
    step = denoising_step(backbone, FORMATS["bf16"], fill)
    anew = forward(backbone, FORMATS["bf16"], tokens=2072, context=0, scored=24)
    assert never == pytest.approx(anew * 8)
    assert rarely == anew + step * 7


@given(st.integers(1, 4096), st.integers(0, 4096), st.integers(1, 512), st.integers(1, 16))
def test_more_of_anything_never_costs_less(new: int, old: int, canvas: int, steps: int) -> None:
    fill = Infill(context=new + old, new_context=new, canvas=canvas, hole=canvas, steps=steps)
    work = whole_fill(GEMMA, FORMATS["fp8"], fill)
    for more in (
        dataclasses.replace(fill, context=fill.context + 64, new_context=new + 64),
        dataclasses.replace(fill, canvas=canvas + 1),
        dataclasses.replace(fill, steps=steps + 1),
        dataclasses.replace(fill, checks=1),
        dataclasses.replace(fill, rows=2),
    ):
        costlier = whole_fill(GEMMA, FORMATS["fp8"], more)
        assert costlier.bytes >= work.bytes
        assert costlier.operations > work.operations


def test_a_context_that_is_there_costs_nothing() -> None:
    assert encoding(GEMMA, FORMATS["bf16"], dataclasses.replace(FILL, new_context=0)) == Work()


@pytest.mark.parametrize("family", ["llada", "dream", "diffusion_gemma"])
def test_the_matrices_of_a_checkpoint_are_those_in_its_file(family: str, tmp_path: Path) -> None:
    folder = getattr(tiny, f"write_{family}")(tmp_path / family)
    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    counted = sum(
        _product(shape)
        for name, shape in shapes.items()
        if "vision" not in name and len(shape) > 1 and not name.endswith("scale")
    )
    assert backbone_of(json.loads((folder / "config.json").read_text())).weights == counted


@pytest.mark.parametrize("config", [{}, {"model_type": "llada"}, {"model_type": "diffusion_gemma"}])
def test_a_config_that_does_not_say_enough_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match=r"config\.json does not say"):
        backbone_of(config)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("Tesla T4", None),
    ],
)
def test_a_card_is_known_by_its_name(device: str, name: str | None) -> None:
    card = card_named(device)
    assert (card and card.name) == name


def _product(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
