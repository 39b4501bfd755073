"""A checkpoint becomes the file that the engine loads, and that file can be trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from tenon_engine.errors import BadRequestError, WeightsCorruptError
from tenon_engine.models import embedded
from tenon_engine.training import checkpoint
from tenon_engine.training.checkpoint import Checkpoint
from tenon_engine.training.pack import Packed, pack
from tenon_engine.training.run import Ground
from tenon_engine.training.state import LORA_SCALE, State, unpack

KEY = "layers.1.mlp.up_proj"


def packed_state(state: State, tmp_path: Path) -> tuple[Packed, Path]:
    def empty() -> State:
        return {name: torch.zeros(1) for name in state}

    found = Checkpoint(
        step=5,
        trained_s=1.0,
        settings={},
        weights=empty(),
        average=state,
        first_moment=empty(),
        second_moment=empty(),
    )
    checkpoint.save(found, tmp_path / "run")
    return pack(tmp_path / "run", tmp_path / "packed.safetensors"), tmp_path / "packed.safetensors"


def updates(path: Path) -> tuple[Tensor, Tensor]:
    """What a file adds to one weight: on open and on decided slots."""
    with safe_open(path, "pt") as file:
        a, b, scale = (file.get_tensor(f"{KEY}.lora_{part}").float() for part in ("A", "B", "scale"))
    ranks = embedded.OPEN_RANKS
    return (b[:, :ranks] * scale[:ranks]) @ a[:ranks], (b[:, ranks:] * scale[ranks:]) @ a[ranks:]


def test_an_adapter_that_is_unpacked_and_packed_again_is_the_same(adapter: Path, tmp_path: Path) -> None:
    state = unpack(adapter)
    packed, path = packed_state(state, tmp_path)
    assert packed.step == 5
    assert packed.lost < 1e-3
    for before, after in zip(updates(adapter), updates(path), strict=True):
        assert (after - before).norm() < 0.05 * before.norm()
    open_update = state[f"{KEY}.open_b"] @ state[f"{KEY}.open_a"] * LORA_SCALE
    assert (open_update - updates(adapter)[0]).norm() < 1e-4 * open_update.norm()


def test_what_rounding_costs_is_said(adapter: Path, tmp_path: Path) -> None:
    state = unpack(adapter)
    torch.manual_seed(0)
    for name in state:
        if name.endswith("_b"):
            state[name] = torch.randn_like(state[name])
    packed, path = packed_state(state, tmp_path)
    exact = state[f"{KEY}.open_b"] @ state[f"{KEY}.open_a"] * LORA_SCALE
    lost = float(((updates(path)[0] - exact).norm() / exact.norm()) ** 2)
    assert 0 < packed.lost < 1e-3
    assert lost == pytest.approx(packed.lost, rel=0.5)


def test_the_engine_loads_what_was_packed(ground: Ground, adapter: Path, tmp_path: Path) -> None:
    _, path = packed_state(unpack(adapter), tmp_path)
    assert embedded.load_network(ground.files.weights, path).shape.hidden == 64
    with safe_open(path, "pt") as file, safe_open(adapter, "pt") as shipped:
        assert {name: file.get_slice(name).get_shape() for name in file.keys()} == {  # noqa: SIM118
            name: shipped.get_slice(name).get_shape()
            for name in shipped.keys()  # noqa: SIM118
        }


def test_the_shipped_adapter_keeps_its_form() -> None:
    state = unpack(embedded.ADAPTER_PATH)
    assert state["layers.23.mlp.down_proj.open_a"].shape == (48, 4864)
    assert state["layers.0.self_attn.k_proj.decided_b"].shape == (128, 16)
    assert all(tensor.dtype == torch.float32 for tensor in state.values())


def test_a_folder_without_a_checkpoint_and_a_damaged_adapter_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="holds no checkpoint"):
        pack(tmp_path, tmp_path / "out.safetensors")
    (tmp_path / "no.safetensors").write_bytes(b"no adapter")
    with pytest.raises(WeightsCorruptError, match="missing or damaged"):
        unpack(tmp_path / "no.safetensors")
