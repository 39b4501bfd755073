"""The embedded model `tenon-0.5b`: loads the converted base weights and the canvas adapter that ships with the package.

Knows file formats and what this CPU is good at. The arithmetic is `qwen2`'s, the decoding `diffusion`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tenon_engine import calibration
from tenon_engine.base_weights import BaseFiles, Dtype, ensure
from tenon_engine.calibration import Calibration
from tenon_engine.config import EngineConfig
from tenon_engine.diffusion import DiffusionModel, Limits, SpecialIds
from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.linear import Linear, Lora
from tenon_engine.models.qwen2 import CanvasAdapter, KeyValues, Layer, Qwen2Canvas, Shape
from tenon_engine.progress import Progress, silent
from tenon_engine.samplers import plan_named
from tenon_engine.tokenizer import BpeTokenizer, TokenTable, core_of

NAME = "tenon-0.5b"
ADAPTER_PATH = Path(__file__).parent.parent / "weights" / "adapter.safetensors"
SPECIAL = SpecialIds(prefix=151659, middle=151660, suffix=151661, file=151664, end=151643)
REMEDY = "run `tenon model fetch` again"
ADAPTER_REMEDY = "reinstall tenon-ls, or set engine.adapter to another file"
PREFIX_TOKENS_MAX, SUFFIX_TOKENS_MAX = (
    4096,
    1024,
)  # with extra files and a canvas, within the positions there are
EXTRA_TOKENS_ON_CPU = 256  # each costs as much as one of the prefix, which helps more
OPEN_RANKS, DECIDED_RANKS = 48, 16
MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate": ("mlp.gate_proj",),
    "up": ("mlp.up_proj",),
    "down": ("mlp.down_proj",),
}


def load_embedded(config: EngineConfig, progress: Progress = silent) -> DiffusionModel[KeyValues]:
    """Find (fetch, convert) and load the model, with its calibration.

    Raises WeightsMissingError, WeightsCorruptError or StorageError.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    plan = plan_named(config.sampler)
    adapter = config.adapter or ADAPTER_PATH
    calibrated = calibration_of(adapter)
    dtype = best_dtype()
    files = ensure(config.home, offline=config.offline, dtype=dtype, progress=progress)
    with readable(files.weights, REMEDY):
        network = load_network(files.weights, adapter)
    return DiffusionModel(
        name=NAME,
        network=network,
        tokenizer=load_tokenizer(files),
        special=SPECIAL,
        plan=plan,
        limits=Limits(
            prefix_tokens=min(config.prefix_tokens, PREFIX_TOKENS_MAX),
            suffix_tokens=min(config.suffix_tokens, SUFFIX_TOKENS_MAX),
            path_header=config.path_header,
            extra_tokens=EXTRA_TOKENS_ON_CPU,
        ),
        calibration=calibrated,
    )


def calibration_of(adapter: Path) -> Calibration | None:
    """What lies beside an adapter, else beside the one that ships with the package, if anything does."""
    own, shipped = (
        calibration.load(path.with_name(calibration.FILE_NAME)) for path in (adapter, ADAPTER_PATH)
    )
    return own or shipped


def best_dtype() -> Dtype:
    """bf16 where the CPU multiplies it (AVX-512-BF16, AMX), else f32."""
    cpu: Any = torch.backends.cpu
    capable = "AVX512" in cpu.get_cpu_capability() and _bf16_products()
    return Dtype.BF16 if capable else Dtype.F32


def _bf16_products() -> bool:
    cpu: Any = torch.cpu
    return bool(cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported())


def load_tokenizer(files: BaseFiles) -> BpeTokenizer:
    """The vocabulary; its table of bytes comes with the converted weights."""
    with readable(files.weights, REMEDY), safe_open(files.weights, "pt") as file:
        table = TokenTable(
            *(file.get_tensor(f"token_{name}").clone().numpy() for name in ("bytes", "offsets", "order"))
        )
    with readable(files.tokenizer, REMEDY):
        return BpeTokenizer(core_of(files.tokenizer.read_text(encoding="utf-8")), table)


def check_adapter(path: Path) -> None:
    """Raise WeightsCorruptError for what is no canvas adapter, as far as a look at its names tells."""
    with readable(path, ADAPTER_REMEDY), safe_open(path, "pt") as file:
        file.get_slice("mask_embedding")


def load_network(weights: Path, adapter: Path | None) -> Qwen2Canvas:
    """The base with the adapter, or alone.

    The file is mapped. The input embedding stays in the map, where only the rows in use take memory; all other
    matrices are re-laid by oneDNN for this CPU, one after the other, so that no two copies of them are resident.
    """
    with safe_open(weights, "pt") as file:
        shape = Shape(**json.loads(file.metadata()["hyperparameters"]))
        output_norm, embedding = file.get_tensor("output_norm").clone(), file.get_tensor("output.weight")
    packed = embedding.dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()
    head = _load_head(weights, packed=packed)  # the largest first, while little else is resident
    layers = [_load_layer(weights, index, packed=packed) for index in range(shape.layers)]
    canvas_adapter = None
    if adapter is not None:
        with readable(adapter, ADAPTER_REMEDY):
            canvas_adapter = _load_adapter(adapter, layers, embedding.dtype, packed=packed)
    return Qwen2Canvas(
        shape,
        layers,
        output_norm=output_norm,
        embedding=embedding,
        head=head,
        start_id=SPECIAL.middle,
        adapter=canvas_adapter,
    )


def _load_head(path: Path, *, packed: bool) -> Linear:
    """Head and input embedding are one matrix of the file; ids from END on are control tokens, never offered."""
    with safe_open(path, "pt") as file:
        return Linear(file.get_tensor("output.weight")[: SPECIAL.end + 1], packed=packed)


def _load_layer(path: Path, index: int, *, packed: bool) -> Layer:
    with safe_open(path, "pt") as file:  # a map of its own, gone with this block

        def tensor(name: str) -> Tensor:
            found: Tensor = file.get_tensor(f"layers.{index}.{name}")
            return found

        def linear(name: str, bias: Tensor | None = None) -> Linear:
            return Linear(tensor(f"{name}.weight"), bias, packed=packed)

        gate, up = tensor("gate_up.weight").chunk(2)
        return Layer(
            attn_norm=tensor("attn_norm").clone(),
            qkv=linear("qkv", tensor("qkv.bias").clone()),
            o=linear("o"),
            ffn_norm=tensor("ffn_norm").clone(),
            gate=Linear(gate, packed=packed),
            up=Linear(up, packed=packed),
            down=linear("down"),
        )


def _load_adapter(path: Path, layers: list[Layer], dtype: torch.dtype, *, packed: bool) -> CanvasAdapter:
    with safe_open(path, "pt") as file:
        for index, layer in enumerate(layers):
            for name, modules in MODULES.items():
                keys = [f"layers.{index}.{module}.lora_" for module in modules]
                parts = [tuple(file.get_tensor(key + part) for part in ("A", "B", "scale")) for key in keys]
                layer.lora[name] = Lora(parts, dtype, packed=packed)
        ones, zeros = torch.ones, torch.zeros
        return CanvasAdapter(
            mask_embedding=file.get_tensor("mask_embedding").to(dtype),
            mask_key_bias=file.get_tensor("mask_key_bias").to(dtype),
            open_gate=torch.cat([ones(OPEN_RANKS), zeros(DECIDED_RANKS)]).to(dtype),
            decided_gate=torch.cat([zeros(OPEN_RANKS), ones(DECIDED_RANKS)]).to(dtype),
        )


@contextmanager
def readable(path: Path, remedy: str) -> Iterator[None]:
    """Inside, whatever a file's reader raises becomes a WeightsCorruptError that says what to do."""
    try:
        yield
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise WeightsCorruptError(f"{path} is missing or damaged; {remedy}") from error
