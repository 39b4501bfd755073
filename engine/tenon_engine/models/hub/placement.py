"""Where a checkpoint is loaded and in what form: device, dtype, attention, quantisation; refused when it does not fit.

The facts of the machine are passed in, so that every decision can be tried without it. Loads nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError, OutOfMemoryError
from tenon_engine.models.hub import footprint, quantization, shards
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.families import FAMILIES
from tenon_engine.models.hub.quantization import QUANTIZATIONS, Quantization
from tenon_engine.models.hub.shards import Weights

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BF16_CAPABILITY = (8, 0)
EXPERTS_LEFT_OUT_MAX = 0.5  # of all parameters; a quantisation that leaves out more is none


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A device as a placement sees it: `capability` is CUDA's, None for the CPU."""

    name: str  # "cpu", "cuda:0", …
    free_bytes: int
    capability: tuple[int, int] | None = None
    multiplies_bf16: bool = False  # in hardware


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Where and in what form the weights of a checkpoint are loaded."""

    device: str  # "cuda:1", "cpu", "auto" (= device_map="auto" over several GPUs)
    dtype: torch.dtype
    attention: str  # transformers' attn_implementation
    quantization: Mapping[str, Any] | None  # of transformers' quantization_config; None: as stored
    compiled: bool  # torch.compile / CUDA graphs for the denoising step (static shapes)


def place(checkpoint: Checkpoint, config: EngineConfig, devices: Sequence[Device] | None = None) -> Placement:
    """The placement that `config` asks for on these devices, or on those of this machine.

    Raises BadRequestError for what cannot be had and OutOfMemoryError, with the numbers, for what does not fit.
    """
    weights = shards.read(checkpoint.folder)
    candidates = _devices_named(config.device, read_devices() if devices is None else devices)
    dtype = _dtype(config.dtype, candidates)
    chosen = _quantization(checkpoint, weights, config.quantization, candidates)
    return Placement(
        device=_fitting(checkpoint, weights, config, candidates, dtype, chosen),
        dtype=dtype,
        attention=_attention(checkpoint, config.attention),
        quantization=None if chosen is None else quantization.settings_of(chosen, dtype),
        compiled=config.compile,
    )


def read_devices() -> tuple[Device, ...]:
    """The devices of this machine: GPUs, the one with most free memory first, then the CPU."""
    import psutil

    from tenon_engine.base_convert import Dtype
    from tenon_engine.models.embedded import best_dtype

    gpus = []
    for index in range(torch.cuda.device_count()):
        capability = torch.cuda.get_device_capability(index)
        free_bytes, _ = torch.cuda.mem_get_info(index)
        gpus.append(Device(f"{CUDA}:{index}", free_bytes, capability, capability >= BF16_CAPABILITY))
    cpu = Device(CPU, psutil.virtual_memory().available, None, best_dtype() is Dtype.BF16)
    return (*sorted(gpus, key=lambda gpu: -gpu.free_bytes), cpu)


def _devices_named(name: str, devices: Sequence[Device]) -> list[Device]:
    """Those that `name` allows, the best first: GPUs by their free memory, or the CPU alone."""
    gpus = sorted((each for each in devices if each.name != CPU), key=lambda gpu: -gpu.free_bytes)
    if name in (AUTO, CUDA) and gpus:
        return gpus
    wanted = CPU if name == AUTO else name
    found = [each for each in devices if each.name == wanted]
    if not found:
        there = ", ".join([AUTO, *(each.name for each in devices)])
        raise BadRequestError(f"there is no device {name!r} on this machine; engine.device can be: {there}")
    return found


def _dtype(name: str, devices: Sequence[Device]) -> torch.dtype:
    if name == AUTO:
        return torch.bfloat16 if all(device.multiplies_bf16 for device in devices) else torch.float32
    if name not in DTYPES:
        raise BadRequestError(
            f"there is no dtype {name!r}; engine.dtype can be: {', '.join([AUTO, *DTYPES])}"
        )
    return DTYPES[name]


def _attention(checkpoint: Checkpoint, name: str) -> str:
    there = FAMILIES[checkpoint.architecture].attention
    if name not in there:
        raise BadRequestError(
            f"{checkpoint.architecture} has no attention {name!r}; engine.attention can be: {', '.join(there)}"
        )
    return name


def _quantization(
    checkpoint: Checkpoint, weights: Weights, name: str, devices: Sequence[Device]
) -> Quantization | None:
    """The quantisation called `name`, if it can be had here; None for weights as they are stored."""
    stored = checkpoint.config.get("quantization_config")
    if isinstance(stored, Mapping):
        method = str(stored.get("quant_method", ""))
        if name:
            raise BadRequestError(
                f"{checkpoint.name} is quantised already ({method}): leave engine.quantization empty"
            )
        if method in quantization.PACKAGES:
            quantization.check_package(
                quantization.PACKAGES[method], f"{checkpoint.name}, which is quantised by {method},"
            )
        return None
    if not name:
        return None
    chosen = quantization.named(name)
    if complaint := _complaint(name, chosen, checkpoint, weights, devices):
        raise BadRequestError(complaint)
    quantization.check_package(chosen.package, f"engine.quantization = {name}")
    return chosen


def _complaint(
    name: str, chosen: Quantization, checkpoint: Checkpoint, weights: Weights, devices: Sequence[Device]
) -> str:
    """Why a quantisation is of no use here; "" when it is."""
    least = ".".join(map(str, chosen.capability))
    unfit = [each.name for each in devices if each.capability is None or each.capability < chosen.capability]
    if unfit:
        return f"engine.quantization = {name} needs a GPU of CUDA capability {least} or more, and {unfit[0]} is none"
    share = footprint.expert_share(weights)
    if not chosen.covers_experts and share > EXPERTS_LEFT_OUT_MAX:
        covering = " or ".join(other for other, each in QUANTIZATIONS.items() if each.covers_experts)
        return (
            f"engine.quantization = {name} would leave {share:.0%} of {checkpoint.name} as it is, its fused experts: "
            f"{chosen.package} replaces nn.Linear alone; take {covering}"
        )
    return ""


def _fitting(
    checkpoint: Checkpoint,
    weights: Weights,
    config: EngineConfig,
    devices: Sequence[Device],
    dtype: torch.dtype,
    chosen: Quantization | None,
) -> str:
    """The name of the device that holds it all, or `auto` for all GPUs together; OutOfMemoryError for none."""
    working = footprint.working_bytes(footprint.shape_of(checkpoint.config), config, dtype)

    def needed_bytes(quantized: Quantization | None) -> int:
        if "quantization_config" in checkpoint.config:
            return weights.size_bytes + working
        return footprint.weight_bytes(weights, dtype, quantized) + working

    free_bytes = sum(device.free_bytes for device in devices)
    if needed_bytes(chosen) <= devices[0].free_bytes:
        return devices[0].name
    if needed_bytes(chosen) <= free_bytes:
        return AUTO
    smaller = [
        f"{name} ({_gigabytes(needed_bytes(each))})"
        for name, each in QUANTIZATIONS.items()
        if needed_bytes(each) <= free_bytes and not _complaint(name, each, checkpoint, weights, devices)
    ]
    remedy = f"it would fit with engine.quantization = {' or '.join(smaller)}"
    if not smaller:
        remedy = "no quantisation makes it fit, take a smaller checkpoint or a device with more memory"
    raise OutOfMemoryError(
        f"{checkpoint.name} needs {_gigabytes(needed_bytes(chosen))}, {_gigabytes(working)} of it for contexts and "
        f"canvases, and {_gigabytes(free_bytes)} are free on {' and '.join(each.name for each in devices)}: {remedy}"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
