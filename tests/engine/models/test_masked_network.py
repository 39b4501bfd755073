"""Forwards of masked models: against torch alone, in batches, padded, and with keys and values kept between steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.engine.models.masked_models import (
    WRITERS,
    checkpoint_of,
    hole_of,
    last,
    loaded,
    placement_of,
)
from tests.engine.models.tiny import LAYERS, NARROW, write_llada
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from tenon_engine.models.masked.drift import holes_of, measure
from tenon_engine.models.masked.family import family_of
from tenon_engine.models.masked.model import MaskedModel
from tenon_engine.models.masked.network import CANVAS_STEP, PLACES_STEP, MaskedNetwork, Surroundings
from tenon_engine.models.masked.weights import load_backbone, rows_of
from tenon_engine.models.static_step import EAGER
from tenon_engine.view import OPEN, View

NOISE = 1e-4
TEXT = "def area(r):\n    return 3 * r * r\n\n\nprint(area(2))\n"
CANVASES: tuple[tuple[int, ...], ...] = ((OPEN, OPEN, OPEN), (OPEN, 70, OPEN, 71, OPEN), (72,) * 7 + (OPEN,))


@pytest.fixture(params=["llada", "dream", "dreamon", "open-dcoder"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> MaskedNetwork:
    return network_of(WRITERS[request.param](tmp_path))


def network_of(folder: Path, *, refresh_steps: int = 1, backend: str | None = None) -> MaskedNetwork:
    checkpoint = checkpoint_of(folder)
    family, control = family_of(checkpoint)
    return MaskedNetwork(
        load_backbone(checkpoint, placement_of()),
        mask_id=control.mask,
        shifted=family.shifted,
        banned=torch.zeros(rows_of(checkpoint), dtype=torch.bool),
        refresh_steps=refresh_steps,
        backend=backend,
    )


def around(prefix: Sequence[int] = (1, 60, 61, 62, 63), suffix: Sequence[int] = (64, 65, 66)) -> Surroundings:
    return Surroundings(list(prefix), list(suffix))


def view_of(reads: Sequence[int], scored: Sequence[int] | None = None) -> View:
    wanted = range(len(reads)) if scored is None else scored
    return View(
        reads=tuple(reads),
        places=tuple(range(len(reads))),
        sees=np.ones((len(reads),) * 2, dtype=np.bool_),
        kept=0,
        keepable=0,
        scored=tuple(wanted),
        constraints=(None,) * len(wanted),
    )


def one(network: MaskedNetwork, surroundings: Surroundings, reads: Sequence[int]) -> Tensor:
    (logits,) = network.forward([(surroundings, view_of(reads))])
    return logits


def close(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and float((first - second).abs().max()) < NOISE


def by_hand(folder: Path, ids: Sequence[int], *, turn: float = 500_000.0) -> Tensor:
    """LLaDA in plain torch, from its own tensors: logits [places, rows]."""
    tensors = load_file(folder / "model.safetensors")
    size, shared = NARROW.hidden // NARROW.heads, NARROW.heads // NARROW.key_value_heads
    angles = torch.arange(len(ids))[:, None] / turn ** (torch.arange(0, size, 2) / size)
    cos, sin = (part.repeat(1, 2) for part in (angles.cos(), angles.sin()))

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ tensors[f"model.transformer.{name}.weight"].T

    def norm(name: str, x: Tensor) -> Tensor:
        return rms_norm(x, (NARROW.hidden,), tensors[f"model.transformer.{name}.weight"], 1e-5)

    def turned(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    x = tensors["model.transformer.wte.weight"][list(ids)]
    for layer in range(LAYERS):
        block = f"blocks.{layer}"
        normed = norm(f"{block}.attn_norm", x)
        q, k, v = (
            linear(f"{block}.{part}_proj", normed).unflatten(1, (-1, size)).transpose(0, 1) for part in "qkv"
        )
        q, k, v = turned(q), turned(k).repeat_interleave(shared, 0), v.repeat_interleave(shared, 0)
        seen = scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        x = x + linear(f"{block}.attn_out", seen)
        normed = norm(f"{block}.ff_norm", x)
        gated = silu(linear(f"{block}.ff_proj", normed)) * linear(f"{block}.up_proj", normed)
        x = x + linear(f"{block}.ff_out", gated)
    return linear("ff_out", norm("ln_f", x))


def test_llada_is_what_its_tensors_say_in_plain_torch(tmp_path: Path) -> None:
    folder = write_llada(tmp_path)
    _, control = family_of(checkpoint_of(folder))
    surroundings = around()
    reads = CANVASES[1]
    window = [*surroundings.prefix_ids, *(control.mask if i == OPEN else i for i in reads)]
    expected = by_hand(folder, [*window, *surroundings.suffix_ids])
    start = len(surroundings.prefix_ids)
    assert close(one(network_of(folder), surroundings, reads), expected[start : start + len(reads)])


def test_logits_of_dream_stand_one_place_before_the_slot_they_are_for(tmp_path: Path) -> None:
    network = network_of(WRITERS["dream"](tmp_path))
    surroundings, reads = around(), (80, 81, 82)
    ids = torch.tensor([[*surroundings.prefix_ids, *reads, *surroundings.suffix_ids]])
    with torch.inference_mode():
        hidden = network.backbone.decoder(input_ids=ids).last_hidden_state[0]
        expected = network.backbone.head(hidden)[len(surroundings.prefix_ids) - 1 :][: len(reads)]
    assert close(one(network, surroundings, reads), expected)


def test_every_place_sees_the_suffix(network: MaskedNetwork) -> None:
    logits = one(network, around(), CANVASES[0])
    assert not close(logits, one(network, around(suffix=(64, 65, 67)), CANVASES[0]))


def test_only_the_scored_slots_have_logits_and_in_order(network: MaskedNetwork) -> None:
    (logits,) = network.forward([(around(), view_of(CANVASES[1], scored=(4, 0)))])
    assert close(logits, one(network, around(), CANVASES[1])[[4, 0]])


def test_rows_of_different_lengths_in_one_batch_say_what_each_says_alone(network: MaskedNetwork) -> None:
    surroundings = [around(), around(prefix=(1,)), around(suffix=range(60, 80))]
    passes = [(each, view_of(reads)) for each, reads in zip(surroundings, CANVASES, strict=True)]
    for logits, (each, view) in zip(network.forward(passes), passes, strict=True):
        assert close(logits, one(network, each, view.reads))


def test_kept_keys_are_exact_while_the_canvas_is_the_one_they_were_read_with(network: MaskedNetwork) -> None:
    keeping = network.with_refresh(9)
    surroundings = [around(), around(prefix=(1,)), around(suffix=range(60, 80))]
    passes = [(each, view_of(reads)) for each, reads in zip(surroundings, CANVASES, strict=True)]
    first, again, exact = keeping.forward(passes), keeping.forward(passes), network.forward(passes)
    assert all(each.kept is not None for each in surroundings)
    assert all(map(close, first, exact))
    assert all(map(close, again, exact))


def test_kept_keys_are_read_anew_after_so_many_steps_and_when_the_canvas_changes_its_size(
    network: MaskedNetwork,
) -> None:
    keeping = network.with_refresh(3)
    surroundings = around()
    one(keeping, surroundings, CANVASES[0])
    changed = (70, OPEN, OPEN)
    exact = one(network, around(), changed)
    drifted = [close(one(keeping, surroundings, changed), exact) for _ in range(3)]
    assert drifted == [False, False, True]
    assert close(one(keeping, surroundings, CANVASES[1]), one(network, around(), CANVASES[1]))


def test_one_row_that_is_read_whole_does_not_disturb_one_that_is_not(network: MaskedNetwork) -> None:
    keeping = network.with_refresh(9)
    old, new = around(), around(prefix=(1, 75, 76))
    one(keeping, old, CANVASES[0])
    alone = one(keeping, old.fork(), (70, OPEN, OPEN))
    passes = [(new, view_of(CANVASES[1])), (old, view_of((70, OPEN, OPEN)))]
    whole, kept = keeping.forward(passes)
    assert close(kept, alone)
    assert close(whole, one(network, new, CANVASES[1]))


def test_a_copy_keeps_what_the_original_kept(network: MaskedNetwork) -> None:
    keeping = network.with_refresh(2)
    original = around()
    one(keeping, original, CANVASES[0])
    copied = original.fork()
    one(keeping, original, (70, OPEN, OPEN))
    assert original.kept is not None
    assert copied.kept is not None
    assert (original.kept.age, copied.kept.age) == (2, 1)


def test_what_is_read_only_once_is_not_kept(network: MaskedNetwork) -> None:
    keeping, once = network.with_refresh(9), around().once()
    for reads in (CANVASES[0], (70, OPEN, OPEN)):
        assert close(one(keeping, once, reads), one(network, around(), reads))
    assert once.kept is None


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_steps_with_static_shapes_say_what_steps_without_say(family: str, tmp_path: Path) -> None:
    folder = WRITERS[family](tmp_path)
    plain, static = network_of(folder, refresh_steps=9), network_of(folder, refresh_steps=9, backend=EAGER)
    surroundings = [around(), around(prefix=range(1, 60), suffix=range(60, 70))]
    passes = [(each, view_of(reads)) for each, reads in zip(surroundings, CANVASES, strict=False)]
    copies = [(each.fork(), view) for each, view in passes]
    for _ in range(2):  # whole windows, then canvases alone
        assert all(map(close, static.forward(copies), plain.forward(passes)))
    assert CANVAS_STEP < PLACES_STEP < 2 * 59


def test_the_drift_of_kept_keys_is_none_at_one_step_and_small_at_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = loaded(WRITERS["llada"](tmp_path))
    holes = [dataclasses.replace(hole, max_tokens=6) for hole in holes_of(TEXT)]
    drifts = {steps: measure(model, holes, steps) for steps in (1, 2, 4, 8)}
    with capsys.disabled():
        print("\ndrift of a network of random weights:", {steps: d.mean for steps, d in drifts.items()})
    assert (drifts[1].mean, drifts[1].same_best) == (0.0, 1.0)
    assert 0 < drifts[2].mean < drifts[8].mean < 0.1


def test_a_prefix_that_grew_by_a_token_is_read_as_if_it_were_new(tmp_path: Path) -> None:
    folder = WRITERS["dream"](tmp_path)
    typing, fresh = loaded(folder), loaded(folder)
    last(typing, hole_of("x = ", session="a"))
    assert answer(typing, "x = 1") == answer(fresh, "x = 1")


def answer(model: MaskedModel, prefix: str) -> tuple[str, float]:
    (draft,) = last(model, hole_of(prefix, session="a")).drafts
    return draft.text, draft.confidence
