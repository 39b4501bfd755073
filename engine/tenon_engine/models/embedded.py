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

from tenon_engine.base_weights import BaseFiles, Dtype, ensure
from tenon_engine.config import EngineConfig
from tenon_engine.diffusion import DiffusionModel, Limits, SpecialIds
from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.qwen2 import CanvasAdapter, KeyValues, Layer, Linear, Lora, Qwen2Canvas, Shape
from tenon_engine.samplers import plan_named
from tenon_engine.tokenizer import BpeTokenizer, TokenTable

NAME = "tenon-0.5b"
ADAPTER_PATH = Path(__file__).parent.parent / "weights" / "adapter.safetensors"
SPECIAL = SpecialIds(prefix=151659, middle=151660, suffix=151661, file=151664, end=151643)
OPEN_RANKS, DECIDED_RANKS = 48, 16
MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def load_embedded(config: EngineConfig) -> DiffusionModel[KeyValues]:
    """Find (fetch, convert) and load the model. Raises WeightsMissingError, WeightsCorruptError or StorageError."""
    if config.threads:
        torch.set_num_threads(config.threads)
    plan = plan_named(config.sampler)
    dtype = best_dtype()
    files = ensure(config.home, offline=config.offline, dtype=dtype)
    with _readable(files.weights, "run `tenon model fetch` again"):
        network, table = load_base(files, ADAPTER_PATH)
    return DiffusionModel(
        name=NAME,
        network=network,
        tokenizer=BpeTokenizer(files.tokenizer, table),
        special=SPECIAL,
        plan=plan,
        limits=Limits(config.prefix_tokens, config.suffix_tokens, config.path_header),
    )


def best_dtype() -> Dtype:
    """bf16 where the CPU multiplies it (AVX-512-BF16, AMX), else f32."""
    cpu: Any = torch.backends.cpu
    capable = "AVX512" in cpu.get_cpu_capability() and _bf16_products()
    return Dtype.BF16 if capable else Dtype.F32


def _bf16_products() -> bool:
    cpu: Any = torch.cpu
    return bool(cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported())


def load_base(files: BaseFiles, adapter: Path | None) -> tuple[Qwen2Canvas, TokenTable]:
    """The network, with the adapter unless None, and the tokenizer's table.

    The file is mapped. The head, which also is the input embedding, stays in the map; the other matrices are re-laid
    by oneDNN for this CPU, block by block, so that at no time two copies of more than one block exist.
    """
    with safe_open(files.weights, "pt") as file:
        shape = Shape(**json.loads(file.metadata()["hyperparameters"]))
        output_norm, embedding = file.get_tensor("output_norm").clone(), file.get_tensor("output.weight")
        table = TokenTable(*(file.get_tensor(f"token_{name}").clone().numpy() for name in ("bytes", "offsets", "order")))
    packed = embedding.dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()
    layers = [_load_layer(files.weights, index, packed=packed) for index in range(shape.layers)]
    canvas_adapter = None
    if adapter is not None:
        with _readable(adapter, "reinstall tenon-ls"):
            canvas_adapter = _load_adapter(adapter, layers, embedding.dtype)
    network = Qwen2Canvas(
        shape,
        layers,
        output_norm=output_norm,
        embedding=embedding,
        start_id=SPECIAL.middle,
        scored_ids=SPECIAL.end + 1,
        adapter=canvas_adapter,
    )
    return network, table


def _load_layer(path: Path, index: int, *, packed: bool) -> Layer:
    with safe_open(path, "pt") as file:  # a map of its own, gone with this block

        def tensor(name: str) -> Tensor:
            found: Tensor = file.get_tensor(f"layers.{index}.{name}")
            return found

        def linear(name: str, bias: Tensor | None = None) -> Linear:
            return Linear(tensor(f"{name}.weight"), bias, packed=packed)

        return Layer(
            attn_norm=tensor("attn_norm").clone(),
            qkv=linear("qkv", tensor("qkv.bias").clone()),
            o=linear("o"),
            ffn_norm=tensor("ffn_norm").clone(),
            gate_up=linear("gate_up"),
            down=linear("down"),
        )


def _load_adapter(path: Path, layers: list[Layer], dtype: torch.dtype) -> CanvasAdapter:
    with safe_open(path, "pt") as file:
        for index, layer in enumerate(layers):
            for name, modules in MODULES.items():
                keys = [f"layers.{index}.{module}.lora_" for module in modules]
                parts = [tuple(file.get_tensor(key + part) for part in ("A", "B", "scale")) for key in keys]
                layer.lora[name] = Lora(parts, dtype)
        ones, zeros = torch.ones, torch.zeros
        return CanvasAdapter(
            mask_embedding=file.get_tensor("mask_embedding").to(dtype),
            mask_key_bias=file.get_tensor("mask_key_bias").to(dtype),
            open_gate=torch.cat([ones(OPEN_RANKS), zeros(DECIDED_RANKS)]).to(dtype),
            decided_gate=torch.cat([zeros(OPEN_RANKS), ones(DECIDED_RANKS)]).to(dtype),
        )


@contextmanager
def _readable(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise WeightsCorruptError(f"{path} is missing or damaged; {remedy}") from error
