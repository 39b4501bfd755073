"""Where a checkpoint would be loaded and in what form, decided from the facts of machines that need not be here."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.models import tiny

from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError, OutOfMemoryError
from tenon_engine.models.hub import footprint, quantization, shards
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.placement import Device, Placement, place, read_devices

GB = 10**9
CPU = Device("cpu", 200 * GB)
H100 = Device("cuda:0", 80 * GB, (9, 0), multiplies_bf16=True)
RTX_5090 = Device("cuda:0", 31 * GB, (12, 0), multiplies_bf16=True)
T4 = Device("cuda:0", 15 * GB, (7, 5))

# DiffusionGemma 26B-A4B as its parts are in memory, and LLaDA 8B.
GEMMA_SIZES = {
    "model.decoder.embed_tokens.weight": [262_144, 2816],
    "model.decoder.layers.0.self_attn.q_proj.weight": [1_650_000_000 // 2816, 2816],
    "model.decoder.layers.0.experts.gate_up_proj": [128, 8_110_000_000 * 2 // 128 // 2816, 2816],
    "model.decoder.layers.0.experts.down_proj": [128, 2816, 6_620_000_000 // 128 // 2816],
}
GEMMA_CONFIG = {
    "architectures": ["DiffusionGemmaForBlockDiffusion"],
    "canvas_length": 256,
    "text_config": {
        "vocab_size": 262_144,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
    },
}
LLADA_SIZES = {
    "model.transformer.wte.weight": [126_464, 4096],
    "model.transformer.ff_out.weight": [126_464, 4096],
    "model.transformer.blocks.0.q_proj.weight": [6_980_000_000 // 4096, 4096],
}
LLADA_CONFIG = {
    "architectures": ["LLaDAModelLM"],
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 32,
    "mlp_hidden_size": 12_288,
    "vocab_size": 126_464,
}


@pytest.fixture(autouse=True)
def _everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of quantisations are not among those of the tests."""
    monkeypatch.setattr(quantization, "check_package", lambda package, purpose: None)


def hollow(
    folder: Path, config: Mapping[str, Any], sizes: Mapping[str, list[int]], dtype: str = "BF16"
) -> Checkpoint:
    """A checkpoint whose weights are a hole in the disk: its headers alone are real."""
    folder.mkdir(exist_ok=True)
    header, end = {}, 0
    for name, shape in sizes.items():
        begin, end = end, end + torch.Size(shape).numel() * (2 if dtype == "BF16" else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / shards.SINGLE).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return Checkpoint("a/checkpoint", folder, config["architectures"][0], config)


@pytest.fixture
def gemma(tmp_path: Path) -> Checkpoint:
    return hollow(tmp_path / "gemma", GEMMA_CONFIG, GEMMA_SIZES)


@pytest.fixture
def llada(tmp_path: Path) -> Checkpoint:
    return hollow(tmp_path / "llada", LLADA_CONFIG, LLADA_SIZES)


def test_fifty_gigabytes_are_counted_by_their_header(gemma: Checkpoint) -> None:
    weights = shards.read(gemma.folder)
    assert 49 * GB < weights.size_bytes < 52 * GB
    assert weights.parameters.total() == pytest.approx(25.2e9, rel=0.02)


def test_a_gpu_is_taken_when_there_is_one(llada: Checkpoint) -> None:
    assert place(llada, EngineConfig(), [CPU]).device == "cpu"
    assert place(llada, EngineConfig(), [H100, CPU]).device == "cuda:0"
    assert place(llada, EngineConfig(device="cpu"), [H100, CPU]).device == "cpu"


def test_of_several_gpus_the_one_with_most_free_memory_is_taken(llada: Checkpoint) -> None:
    other = dataclasses.replace(H100, name="cuda:1", free_bytes=H100.free_bytes + 1)
    for name in ("auto", "cuda"):
        assert place(llada, EngineConfig(device=name), [H100, other, CPU]).device == "cuda:1"
    assert place(llada, EngineConfig(device="cuda:0"), [H100, other, CPU]).device == "cuda:0"


def test_what_no_gpu_holds_alone_is_spread_over_all(gemma: Checkpoint) -> None:
    gpus = [dataclasses.replace(RTX_5090, name=f"cuda:{index}") for index in range(2)]
    assert place(gemma, EngineConfig(), [*gpus, CPU]).device == "auto"
    with pytest.raises(OutOfMemoryError):
        place(gemma, EngineConfig(device="cuda:1"), [*gpus, CPU])


def test_what_does_not_fit_is_refused_with_the_numbers_and_what_would_fit(gemma: Checkpoint) -> None:
    with pytest.raises(OutOfMemoryError) as refused:
        place(gemma, EngineConfig(), [RTX_5090, CPU])
    said = str(refused.value)
    assert "a/checkpoint needs 5" in said
    assert "31.0 GB are free on cuda:0" in said
    assert "it would fit with engine.quantization = fp8 (" in said
    assert place(gemma, EngineConfig(quantization="fp8"), [RTX_5090, CPU]).quantization == {
        "quant_method": "fp8"
    }


def test_where_nothing_fits_that_is_said(gemma: Checkpoint) -> None:
    for device in (T4, dataclasses.replace(CPU, free_bytes=16 * GB)):
        with pytest.raises(OutOfMemoryError, match="no quantisation makes it fit"):
            place(gemma, EngineConfig(), [device])


def test_every_quantisation_that_fits_is_offered(llada: Checkpoint) -> None:
    card = dataclasses.replace(RTX_5090, free_bytes=14 * GB)
    with pytest.raises(OutOfMemoryError, match=r"= fp8 \(.*\) or int8 \(.*\) or nf4 \(.*\) or int4 \("):
        place(llada, EngineConfig(), [card, CPU])


@pytest.mark.parametrize("name", ["int8", "nf4", "int4"])
def test_a_quantisation_that_leaves_the_experts_as_they_are_is_refused(gemma: Checkpoint, name: str) -> None:
    with pytest.raises(BadRequestError, match=r"would leave 9\d% .* nn\.Linear alone; take fp8$"):
        place(gemma, EngineConfig(quantization=name), [H100, CPU])


@pytest.mark.parametrize(("device", "name"), [(T4, "fp8"), (T4, "int4"), (CPU, "nf4"), (CPU, "int8")])
def test_a_quantisation_that_the_device_cannot_do_is_refused(
    llada: Checkpoint, device: Device, name: str
) -> None:
    with pytest.raises(
        BadRequestError, match=f"{name} needs a GPU of CUDA capability .* {device.name} is none"
    ):
        place(llada, EngineConfig(quantization=name), [device])


def test_a_quantisation_whose_package_is_missing_is_refused_with_its_name(
    llada: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(
        quantization,
        "QUANTIZATIONS",
        {"nf4": dataclasses.replace(quantization.QUANTIZATIONS["nf4"], package="no_such_package")},
    )
    with pytest.raises(BadRequestError, match="nf4 needs no_such_package: run `pip install no-such-package`"):
        place(llada, EngineConfig(quantization="nf4"), [H100])


def test_four_bits_compute_in_the_dtype_of_the_rest(llada: Checkpoint) -> None:
    settings = place(llada, EngineConfig(quantization="nf4", dtype="fp16"), [T4]).quantization
    assert settings is not None
    assert (settings["bnb_4bit_quant_type"], settings["bnb_4bit_compute_dtype"]) == ("nf4", "float16")


def test_a_checkpoint_that_is_quantised_is_loaded_as_it_is(tmp_path: Path) -> None:
    config = LLADA_CONFIG | {"quantization_config": {"quant_method": "fp8"}}
    checkpoint = hollow(tmp_path / "fp8", config, LLADA_SIZES, dtype="F8_E4M3")
    small = dataclasses.replace(RTX_5090, free_bytes=14 * GB)
    assert place(checkpoint, EngineConfig(), [small]).quantization is None
    with pytest.raises(BadRequestError, match="is quantised already"):
        place(checkpoint, EngineConfig(quantization="int8"), [small])


def test_a_checkpoint_quantised_by_a_missing_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(quantization, "PACKAGES", {"odd": "no_such_package"})
    config = LLADA_CONFIG | {"quantization_config": {"quant_method": "odd"}}
    with pytest.raises(BadRequestError, match="quantised by odd, needs no_such_package"):
        place(hollow(tmp_path / "odd", config, LLADA_SIZES), EngineConfig(), [H100])


@pytest.mark.parametrize(
    ("device", "setting", "dtype"),
    [
        (H100, "auto", torch.bfloat16),
        (T4, "auto", torch.float32),
        (dataclasses.replace(CPU, multiplies_bf16=True), "auto", torch.bfloat16),
        (CPU, "auto", torch.float32),
        (T4, "fp16", torch.float16),
        (H100, "fp32", torch.float32),
        (CPU, "bf16", torch.bfloat16),
    ],
)
def test_bf16_is_taken_where_the_device_multiplies_it(
    tmp_path: Path, device: Device, setting: str, dtype: torch.dtype
) -> None:
    small = hollow(tmp_path / "small", LLADA_CONFIG, {"model.transformer.wte.weight": [8, 8]})
    assert place(small, EngineConfig(dtype=setting), [device]).dtype == dtype


def test_attention_is_the_one_asked_for_if_the_family_has_it(gemma: Checkpoint, llada: Checkpoint) -> None:
    assert place(gemma, EngineConfig(), [H100]).attention == "sdpa"
    assert place(llada, EngineConfig(attention="eager"), [H100]).attention == "eager"
    for checkpoint in (gemma, llada):
        with pytest.raises(BadRequestError, match="has no attention 'flash_attention_2'"):
            place(checkpoint, EngineConfig(attention="flash_attention_2"), [H100])


@pytest.mark.parametrize(("setting", "value"), [("device", "tpu"), ("device", "cuda:9"), ("dtype", "int9")])
def test_what_there_is_not_is_refused_with_what_there_is(llada: Checkpoint, setting: str, value: str) -> None:
    config = EngineConfig(device=value) if setting == "device" else EngineConfig(dtype=value)
    with pytest.raises(
        BadRequestError, match=rf"there is no {setting} '{value}'.*engine\.{setting} can be: auto, "
    ):
        place(llada, config, [H100, CPU])


def test_keys_and_values_are_counted_for_both_spellings_of_a_config() -> None:
    gemma, llada = footprint.shape_of(GEMMA_CONFIG), footprint.shape_of(LLADA_CONFIG)
    assert (gemma.key_value_width, gemma.layers, gemma.canvas) == (2048, 30, 256)
    assert (llada.key_value_width, llada.layers, llada.canvas) == (4096, 32, 0)
    assert footprint.working_bytes(llada, EngineConfig(), torch.bfloat16) < footprint.working_bytes(
        llada, EngineConfig(prefix_tokens=4000), torch.bfloat16
    )


def test_the_estimate_of_a_real_network_is_what_it_takes(tmp_path: Path) -> None:
    from transformers import DiffusionGemmaForBlockDiffusion

    folder = tiny.write_diffusion_gemma(tmp_path)
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(folder)
    taken = sum(parameter.nbytes for parameter in model.parameters())
    assert footprint.weight_bytes(shards.read(folder), torch.float32, None) == pytest.approx(taken, rel=0.01)


def test_this_machine_is_read_and_takes_a_tiny_checkpoint(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path / "llada")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    devices = read_devices()
    assert devices[-1].name == "cpu"
    assert devices[-1].free_bytes > 0
    placed = place(
        Checkpoint("tiny", folder, "LLaDAModelLM", config), EngineConfig(device="cpu", compile=True)
    )
    assert placed == Placement("cpu", placed.dtype, "sdpa", None, compiled=True)
