"""The weights of a DiffusionGemma checkpoint, read by transformers. Knows no text and no decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from transformers import DiffusionGemmaForBlockDiffusion
from transformers.utils import logging as transformers_logging

from tenon_engine.errors import WeightsCorruptError

if TYPE_CHECKING:
    from tenon_engine.models.hub.checkpoint import Checkpoint
    from tenon_engine.models.hub.placement import Placement


def load_weights(checkpoint: Checkpoint, placement: Placement) -> DiffusionGemmaForBlockDiffusion:
    """The text model in the form `placement` says; WeightsCorruptError when files are damaged or lack something."""
    options: dict[str, Any] = {"device_map": placement.device}
    if placement.quantization is not None:
        options["quantization_config"] = dict(placement.quantization)
    transformers_logging.disable_progress_bar()  # we have our own, and say what is wrong ourselves
    transformers_logging.set_verbosity_error()
    try:
        loaded: Any = DiffusionGemmaForBlockDiffusion.from_pretrained(
            checkpoint.folder,
            dtype=placement.dtype,
            attn_implementation=placement.attention,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    except torch.OutOfMemoryError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        cause = str(error).partition("\n")[0]
        raise WeightsCorruptError(
            f"{checkpoint.name} cannot be read ({cause}); get its files again"
        ) from error
    model, found = loaded
    if missing := [name for name in found["missing_keys"] if not _is_of_images(name)]:
        raise WeightsCorruptError(
            f"{checkpoint.name} lacks {len(missing)} of its weights, {missing[0]} among them; get its files again"
        )
    encoder = model.model.encoder
    del encoder.vision_tower, encoder.embed_vision
    model.eval().requires_grad_(False)
    return cast(DiffusionGemmaForBlockDiffusion, model)


def _is_of_images(name: str) -> bool:
    return ".vision_tower." in name or ".embed_vision." in name
