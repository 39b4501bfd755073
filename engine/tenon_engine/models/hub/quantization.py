"""Names of quantisations, and what transformers makes of them: which weights they cover, in how many bits, and where.

The figures of fused experts are read from the installed loaders: bitsandbytes and torchao replace nn.Linear alone.
Knows no devices.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from typing import Any

import torch

from tenon_engine.errors import BadRequestError


@dataclasses.dataclass(frozen=True, slots=True)
class Quantization:
    """One way to load weights in fewer bits."""

    package: str  # that does it
    bits: float  # of a weight, its share of the scales included
    covers_experts: bool  # the fused weights of a mixture of experts, too
    capability: tuple[int, int]  # of a GPU, at least
    settings: Mapping[str, Any]  # of transformers' quantization_config


# The one packing whose products torch itself can do on a GPU.
_INT4_DATA = {"group_size": 128, "int4_packing_format": "tile_packed_to_4d"}
_INT4 = {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": _INT4_DATA}

QUANTIZATIONS: Mapping[str, Quantization] = {
    "fp8": Quantization("kernels", 8.1, True, (8, 9), {"quant_method": "fp8"}),
    "int8": Quantization(
        "bitsandbytes", 8.1, False, (7, 5), {"quant_method": "bitsandbytes", "load_in_8bit": True}
    ),
    "nf4": Quantization(
        "bitsandbytes",
        4.6,
        False,
        (7, 5),
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    ),
    "int4": Quantization(
        "torchao", 4.3, False, (8, 0), {"quant_method": "torchao", "quant_type": {"default": _INT4}}
    ),
}

# What a checkpoint that is quantised already needs, by the quant_method of its config.json.
PACKAGES: Mapping[str, str] = {
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed_tensors",
    "fp8": "kernels",
    "gptq": "gptqmodel",
    "hqq": "hqq",
    "quanto": "optimum",
    "torchao": "torchao",
}


def named(name: str) -> Quantization:
    """The quantisation called `name`; BadRequestError when there is none."""
    if name not in QUANTIZATIONS:
        raise BadRequestError(f"there is no quantization {name!r}; there are: {', '.join(QUANTIZATIONS)}")
    return QUANTIZATIONS[name]


def settings_of(quantization: Quantization, dtype: torch.dtype) -> dict[str, Any]:
    """What transformers' quantization_config is made of, for products in `dtype`."""
    settings = dict(quantization.settings)
    if settings.get("load_in_4bit"):
        settings["bnb_4bit_compute_dtype"] = str(dtype).removeprefix("torch.")
    return settings


def check_package(package: str, purpose: str) -> None:
    """Refuse what needs a package that is not installed."""
    if importlib.util.find_spec(package) is None:
        raise BadRequestError(f"{purpose} needs {package}: run `pip install {package.replace('_', '-')}`")
