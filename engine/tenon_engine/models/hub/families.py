"""Which architectures are supported, and by which module: everything else is refused before it is downloaded.

Imports a family only when one of its checkpoints is loaded. Does not know where checkpoints come from.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tenon_engine.errors import OutOfMemoryError, UnknownModelError

if TYPE_CHECKING:
    from tenon_engine.config import EngineConfig
    from tenon_engine.models.base import Model
    from tenon_engine.progress import Progress

REQUIRED = ("transformers", "accelerate", "psutil")


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """The module that loads an architecture, hub ids that have it, and the attentions of transformers it runs with."""

    module: str
    examples: tuple[str, ...]
    attention: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {
    "DiffusionGemmaForBlockDiffusion": Family(
        "tenon_engine.models.gemma.model",
        ("google/diffusiongemma-26B-A4B-it",),
        ("sdpa", "eager"),
    ),
    "LLaDAModelLM": Family(
        "tenon_engine.models.masked.model", ("GSAI-ML/LLaDA-8B-Instruct",), ("sdpa", "eager")
    ),
    "Qwen2ForCausalLM": Family(
        "tenon_engine.models.masked.model", ("fredzzp/open-dcoder-0.5B",), ("sdpa", "eager")
    ),
    "DreamModel": Family(
        "tenon_engine.models.masked.model",
        (
            "Dream-org/Dream-Coder-v0-Instruct-7B",
            "Dream-org/DreamOn-v0-7B",
            "apple/DiffuCoder-7B-cpGRPO",
        ),
        ("sdpa", "eager"),
    ),
}


def load(name: str, config: EngineConfig, progress: Progress) -> Model:
    """The model in the checkpoint `name`, a folder or a hub id, on the device and in the form that `config` wants."""
    if config.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for what the libraries behind us would fetch on their own
    check_installed()
    import torch

    from tenon_engine.models.frugal import FrugalModel
    from tenon_engine.models.hub.checkpoint import find
    from tenon_engine.models.hub.placement import place

    if config.threads:
        torch.set_num_threads(config.threads)
    with_code = name in config.trusted_models
    checkpoint = find(name, offline=config.offline, with_code=with_code, progress=progress)
    placement = place(checkpoint, config)
    progress("load", 0, 0)
    family = importlib.import_module(FAMILIES[checkpoint.architecture].module)
    try:
        return FrugalModel(family.load(checkpoint, placement, config, progress))
    except torch.OutOfMemoryError:
        raise OutOfMemoryError(
            f"the memory of {placement.device} ran out while {name} was loaded: end what else uses it, "
            "or take a smaller checkpoint or engine.quantization"
        ) from None


def check_installed() -> None:
    """Refuse to go on without the packages that only models of the hub need."""
    missing = [package for package in REQUIRED if importlib.util.find_spec(package) is None]
    if missing:
        raise UnknownModelError(
            f"models of the hub need {' and '.join(missing)}: run `pip install 'tenon-ls[models]'`, "
            "in a checkout `.venv/bin/pip install -e '.[models]'`"
        )


def check_architecture(name: str, architecture: str) -> None:
    """Refuse what no family here can run."""
    if architecture not in FAMILIES:
        raise UnknownModelError(
            f"{name} is a {architecture or 'model of no named architecture'}, which is not supported; "
            f"supported are {', '.join(FAMILIES)}, such as {', '.join(examples())}"
        )


def examples() -> tuple[str, ...]:
    """Hub ids of checkpoints that are supported."""
    return tuple(dict.fromkeys(example for family in FAMILIES.values() for example in family.examples))
