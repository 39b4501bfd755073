"""How many bytes a checkpoint takes on a device: its weights, the contexts it remembers, and a canvas at work.

Counted from headers and config.json, before anything is loaded. An upper bound within some per cent for the weights;
for the rest a generous estimate. Knows no devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from tenon_engine.config import EngineConfig
from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.hub.quantization import Quantization
from tenon_engine.models.hub.shards import Stored, Weights

ROWS = 4  # contexts that are remembered, or stand in one batch: candidates, or lengths that are tried
EXTRA_TOKENS = 1024  # of other files, in a context
WORKSPACE_BYTES = 512 << 20  # what the libraries keep for themselves
F32_BYTES = 4
LOGIT_COPIES = 3  # logits, probabilities, and one on the way
EMBEDDINGS = ("embed", "wte", "lm_head")  # in names of tensors that no loader quantises
EMBEDDING_HEAD = "transformer.ff_out"  # LLaDA's name for one


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a network, under whatever names its config.json has them."""

    layers: int
    hidden: int
    inner: int
    key_value_width: int  # of one layer: heads times their width
    vocabulary: int
    canvas: int  # slots that are computed even for a short hole; 0 where the canvas is as long as the hole


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The sizes that config.json gives."""
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise WeightsCorruptError(
            "config.json is damaged: its text_config is no object; get the checkpoint again"
        )

    def size(*names: str) -> int:
        return next((value for name in names if isinstance(value := text.get(name), int)), 0)

    hidden, heads = size("hidden_size", "d_model"), size("num_attention_heads", "n_heads")
    key_value_heads = size("num_key_value_heads", "n_kv_heads") or heads
    width = size("head_dim") or hidden // max(1, heads)
    canvas = config.get("canvas_length", 0)
    return Shape(
        layers=size("num_hidden_layers", "n_layers"),
        hidden=hidden,
        inner=size("intermediate_size", "mlp_hidden_size") or 4 * hidden,
        key_value_width=key_value_heads * width,
        vocabulary=size("vocab_size"),
        canvas=canvas if isinstance(canvas, int) else 0,
    )


def weight_bytes(weights: Weights, dtype: torch.dtype, quantization: Quantization | None) -> int:
    """Of all weights in `dtype`, those that `quantization` covers in its bits."""
    bits = 8 * dtype.itemsize
    total_bits = 0.0
    for name, tensor in weights.tensors.items():
        covered = quantization is not None and is_covered(name, tensor, quantization)
        total_bits += tensor.count * (quantization.bits if covered and quantization else bits)
    return int(total_bits / 8)


def is_covered(name: str, tensor: Stored, quantization: Quantization) -> bool:
    """Whether `quantization` changes this tensor: a matrix of a linear layer, or fused experts."""
    if any(part in name for part in EMBEDDINGS) or name.startswith(f"model.{EMBEDDING_HEAD}."):
        return False
    return len(tensor.shape) == 2 or (len(tensor.shape) == 3 and quantization.covers_experts)


def expert_share(weights: Weights) -> float:
    """Which part of all parameters are fused experts."""
    counts = {name: tensor.count for name, tensor in weights.tensors.items()}
    fused = sum(counts[name] for name, tensor in weights.tensors.items() if len(tensor.shape) == 3)
    return fused / max(1, sum(counts.values()))


def working_bytes(shape: Shape, config: EngineConfig, dtype: torch.dtype) -> int:
    """Beside the weights: keys and values of contexts and canvases, and what one forward of a batch takes."""
    slots = max(shape.canvas, config.max_tokens)
    tokens = ROWS * (config.prefix_tokens + config.suffix_tokens + EXTRA_TOKENS + slots)
    keys_values = 2 * shape.layers * shape.key_value_width * tokens * dtype.itemsize
    forward = ROWS * slots * (8 * shape.hidden + 3 * shape.inner) * dtype.itemsize
    logits = ROWS * config.max_tokens * shape.vocabulary * F32_BYTES * LOGIT_COPIES
    return keys_values + forward + logits + WORKSPACE_BYTES
