"""The weights of a DiffusionGemma checkpoint, read by transformers. Knows no text and no decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from transformers import DiffusionGemmaForBlockDiffusion
from transformers.utils import logging as transformers_logging

from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.hub.readable import readable

if TYPE_CHECKING:
    from tenon_engine.models.hub.checkpoint import Checkpoint
    from tenon_engine.models.hub.placement import Placement

CANVAS_SLOTS_MIN = 8  # a hole, and what a healed token needs beside it


def load_weights(checkpoint: Checkpoint, placement: Placement) -> DiffusionGemmaForBlockDiffusion:
    """The text model in the form `placement` says; WeightsCorruptError when files are damaged or lack something."""
    options: dict[str, Any] = {"device_map": placement.device}
    if placement.quantization is not None:
        options["quantization_config"] = dict(placement.quantization)
    transformers_logging.disable_progress_bar()  # we have our own, and say what is wrong ourselves
    transformers_logging.set_verbosity_error()
    with readable(checkpoint.name):
        loaded: Any = DiffusionGemmaForBlockDiffusion.from_pretrained(
            checkpoint.folder,
            dtype=placement.dtype,
            attn_implementation=placement.attention,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    model, found = loaded
    if missing := [name for name in found["missing_keys"] if not _is_of_images(name)]:
        raise WeightsCorruptError(
            f"{checkpoint.name} lacks {len(missing)} of its weights, {missing[0]} among them; get its files again"
        )
    slots = model.config.canvas_length
    if not isinstance(slots, int) or slots < CANVAS_SLOTS_MIN:
        raise WeightsCorruptError(
            f"config.json of {checkpoint.name} is damaged: canvas_length is {slots}, not {CANVAS_SLOTS_MIN} or more"
        )
    encoder = model.model.encoder
    del encoder.vision_tower, encoder.embed_vision
    model.eval().requires_grad_(False)
    return cast(DiffusionGemmaForBlockDiffusion, model)


def _is_of_images(name: str) -> bool:
    return ".vision_tower." in name or ".embed_vision." in name
