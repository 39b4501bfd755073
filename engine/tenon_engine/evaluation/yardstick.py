"""A hub model's weights driven by transformers alone: a bare forward of the shapes of a denoising step, and the same
backbone writing one token at a time.

What the engine costs, and what diffusion saves, is measured against this. Knows no sampling but the most probable.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import torch
from torch import Tensor

ANY_ID = 5  # what is computed takes as long whatever the ids


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """One denoising step: rows of `canvas` slots behind a context, of which `scored` get logits in each."""

    context: int
    canvas: int
    scored: int
    rows: int


class Yardstick(Protocol):
    """Weights behind an encoded context; what is computed leaves it as it was."""

    config: Any  # transformers', of the model
    device: torch.device
    dtype: torch.dtype

    def step(self, shape: StepShape) -> None:
        """One bare forward; the context is encoded the first time."""
        ...

    def decode(self, context: int, count: int) -> None:
        """A context, and so many tokens behind it, one forward each."""
        ...


class GemmaYardstick:
    """`DiffusionGemmaForBlockDiffusion.forward` on canvases, conditioned on its own logits as its `generate` does it.

    From left to right it is the encoder, with the head it shares with the decoder.
    """

    def __init__(self, module: Any) -> None:
        self.config = module.config
        self.device, self.dtype = module.device, module.dtype
        self._module = module
        self._encoder = module.model.encoder.language_model
        self._shape: StepShape | None = None
        self._context: Any = None
        self._said: Tensor | None = None

    @torch.inference_mode()
    def step(self, shape: StepShape) -> None:
        """See Yardstick; logits are of all slots, for that is what `forward` gives."""
        if shape != self._shape:
            self._shape, self._context, self._said = shape, self._encoded(shape.context), None
            self._context.batch_repeat_interleave(shape.rows)
        canvas = torch.full((shape.rows, shape.canvas), ANY_ID, device=self.device)
        self._said = self._module(
            decoder_input_ids=canvas, cache=self._context, self_conditioning_logits=self._said
        ).logits

    @torch.inference_mode()
    def decode(self, context: int, count: int) -> None:
        """See Yardstick."""
        cache = self._encoded(context)
        token = torch.full((1, 1), ANY_ID, device=self.device)
        for _ in range(count):
            hidden = self._encoder(input_ids=token, cache=cache).last_hidden_state
            token = self._module.lm_head(hidden).argmax(-1)

    def _encoded(self, context: int) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache(config=self.config.text_config)
        self._encoder(input_ids=torch.full((1, context), ANY_ID, device=self.device), cache=cache)
        return cache


class MaskedYardstick:
    """transformers' own Llama or Qwen2 on canvases behind keys and values that are kept, and from left to right."""

    def __init__(self, decoder: Any, head: Any, *, shift: int) -> None:
        self.config = decoder.config
        self.device, self.dtype = decoder.device, decoder.dtype
        self._decoder = decoder
        self._head = head
        self._shift = shift  # tokens before the canvas that a step reads with it
        self._shape: StepShape | None = None
        self._cache: Any = None

    @torch.inference_mode()
    def step(self, shape: StepShape) -> None:
        """See Yardstick."""
        if shape != self._shape:
            self._shape, self._cache = shape, self._encoded(shape.context, shape.rows)
        slots = shape.canvas + self._shift
        self._forward(torch.full((shape.rows, slots), ANY_ID, device=self.device), self._cache, shape.scored)
        self._cache.crop(-slots)

    @torch.inference_mode()
    def decode(self, context: int, count: int) -> None:
        """See Yardstick."""
        cache = self._encoded(context, 1)
        token = torch.full((1, 1), ANY_ID, device=self.device)
        for _ in range(count):
            token = self._forward(token, cache, 1).argmax(-1)

    def _encoded(self, context: int, rows: int) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        self._forward(torch.full((rows, context), ANY_ID, device=self.device), cache, 1)
        return cache

    def _forward(self, ids: Tensor, cache: Any, scored: int) -> Tensor:
        hidden = self._decoder(input_ids=ids, cache=cache, use_cache=True).last_hidden_state
        logits: Tensor = self._head(hidden[:, -scored:])
        return logits
