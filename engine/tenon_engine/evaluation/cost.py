"""What a forward pass must read and multiply, and how soon a card could: the bound that a measured step is held to.

Counted are the bytes of weights (of experts, those that uniform routing is expected to touch), of cached keys and
values, and of each pass over the embedding; and the operations of all matrix products and of attention. Not counted is
what an implementation adds: activations, logits in f32, copies, launches. docs/gpu.md has the formulas and an example.
"""

from __future__ import annotations

import dataclasses

from tenon_engine.evaluation.backbone import Backbone


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Bytes that are read from a card's memory, and operations (a multiplication and an addition are two)."""

    bytes: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:
        """One after the other."""
        return Work(self.bytes + other.bytes, self.operations + other.operations)

    def __mul__(self, times: float) -> Work:
        """Again and again."""
        return Work(self.bytes * times, self.operations * times)


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """Bytes of a number: in the matrices of the layers, in experts, in embedding and head, in the cache."""

    dense: float
    experts: float
    embedding: float
    cache: float = 2.0


# What a loader makes of a checkpoint (docs/gpu.md). Products are in bf16, but for f32.
FORMATS = {
    "f32": Format(4.0, 4.0, 4.0, 4.0),
    "bf16": Format(2.0, 2.0, 2.0),
    "fp8": Format(1.0, 1.0, 2.0),
    "int8": Format(1.0, 2.0, 2.0),  # bitsandbytes leaves fused experts as they are, as it does in the next
    "nf4": Format(4.5 / 8, 2.0, 2.0),
    "int4": Format(4.25 / 8, 2.0, 2.0),  # torchao's do, too
    "nvfp4": Format(1.0, 4.5 / 8, 2.0),  # half a bit more than four for the scale of 16 values
}


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """What a device does at best; operations are dense, in bf16 with sums in f32."""

    name: str
    bytes_per_second: float
    operations_per_second: float

    def bound_ms(self, work: Work) -> float:
        """Reading and multiplying at the same time, both at the peak: no kernel is faster."""
        return 1e3 * max(work.bytes / self.bytes_per_second, work.operations / self.operations_per_second)


# From NVIDIA's data sheets (A100, L4, L40S, H100, H200, B200) and its white papers on GeForce (Ampere GA102, Ada,
# Blackwell), halved where they count with sparsity. The first whose words are all in the device's name is meant.
CARDS = (
    Card("B200", 8.0e12, 2250e12),
    Card("H200", 4.8e12, 989e12),
    Card("H100 PCIe", 2.0e12, 756e12),
    Card("H100 NVL", 3.9e12, 835e12),
    Card("H100", 3.35e12, 989e12),
    Card("A100 40GB", 1.555e12, 312e12),
    Card("A100", 2.039e12, 312e12),
    Card("L40S", 0.864e12, 362e12),
    Card("L4", 0.3e12, 121e12),
    Card("RTX 5090", 1.792e12, 209.5e12),
    Card("RTX 4090", 1.008e12, 165.2e12),
    Card("RTX 3090", 0.936e12, 71e12),
)
LESSER = {"Laptop", "D", "MIG"}  # in the name of what does less than the card it is named after


def card_named(device: str) -> Card | None:
    """The card of the table that a device with this name is, as `torch.cuda.get_device_name` spells it."""
    words = set(device.replace("-", " ").split())
    if words & LESSER:
        return None
    return next((card for card in CARDS if words.issuperset(card.name.split())), None)


def forward(
    backbone: Backbone,
    form: Format,
    *,
    tokens: int,
    context: int,
    scored: int = 0,
    conditioned: bool = False,
    rows: int = 1,
) -> Work:
    """One pass of `rows` rows of `tokens` each behind `context` tokens whose keys and values are there, for all rows.

    Of each row `scored` tokens get logits; `conditioned` on those of the last step, it reads the embedding once more.
    """
    experts, count = backbone.experts, tokens * rows
    touched = experts.share_touched(count) * backbone.expert_weights if experts else 0.0
    passes = (1 if scored else 0) + (1 if conditioned else 0)  # over the embedding
    conditioning = backbone.conditioning_weights if conditioned else 0
    seen = [min(context, context if each.reach is None else each.reach) for each in backbone.layers]
    cached = sum(n * each.count * each.cached_values for n, each in zip(seen, backbone.layers, strict=True))
    attended = sum(
        (n + tokens) * each.count * each.query_width for n, each in zip(seen, backbone.layers, strict=True)
    )
    through = backbone.dense_weights + backbone.active_expert_weights + conditioning
    return Work(
        bytes=form.dense * (backbone.dense_weights + conditioning)
        + form.experts * touched
        + form.embedding * passes * backbone.head_weights
        + form.cache * cached,
        operations=2.0 * count * through
        + 2.0 * rows * scored * passes * backbone.head_weights
        + 4.0 * count * attended,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Infill:
    """One fill of a model that keeps its context: so many new tokens of context, then steps, then checks.

    `checks` are passes that decide nothing, such as the one that scores the suffix to choose a length.
    """

    context: int  # tokens that the canvas stands on
    new_context: int  # of them, what is not in the cache yet
    canvas: int  # slots, the clamped ones with them
    hole: int  # slots to fill
    steps: int
    checks: int = 0
    rows: int = 1  # candidates in one batch


def encoding(backbone: Backbone, form: Format, infill: Infill) -> Work:
    """The new tokens of a context, in one pass behind the ones before."""
    if not infill.new_context:
        return Work()
    behind = infill.context - infill.new_context
    return forward(backbone, form, tokens=infill.new_context, context=behind)


def denoising_step(backbone: Backbone, form: Format, infill: Infill) -> Work:
    """One step over the whole canvas, logits for its hole alone."""
    return forward(
        backbone,
        form,
        tokens=infill.canvas,
        context=infill.context,
        scored=infill.hole,
        conditioned=backbone.conditioning_weights > 0,
        rows=infill.rows,
    )


def whole_fill(backbone: Backbone, form: Format, infill: Infill) -> Work:
    """New context, steps, and checks, each of which costs as much as a step."""
    step = denoising_step(backbone, form, infill)
    return encoding(backbone, form, infill) + step * (infill.steps + infill.checks)


def searched_fill(
    backbone: Backbone, form: Format, infill: Infill, *, lengths: int, kept: int
) -> tuple[Work, ...]:
    """The passes of a fill whose length is not known: new context, a step with canvases of several lengths, the other
    steps with those that are kept, and one that reads what they wrote.
    """
    first, later = (
        denoising_step(backbone, form, dataclasses.replace(infill, rows=rows)) for rows in (lengths, kept)
    )
    return (encoding(backbone, form, infill), first, *[later] * infill.steps)


def cached_masked_fill(backbone: Backbone, form: Format, infill: Infill, *, refresh_every: int) -> Work:
    """A fill of a masked model with the dual cache (arXiv 2505.22618): every so many steps all keys and values are made
    anew, in a pass over context and canvas; the steps between see those of the context.

    `refresh_every` 1 is a model without a cache.
    """
    full = forward(
        backbone,
        form,
        tokens=infill.context + infill.canvas,
        context=0,
        scored=infill.hole,
        rows=infill.rows,
    )
    refreshes = -(-infill.steps // refresh_every)
    return full * refreshes + denoising_step(backbone, form, infill) * (infill.steps - refreshes)


def autoregressive(backbone: Backbone, form: Format, *, context: int, tokens: int) -> Work:
    """As many tokens one by one by the same weights, from left to right, keys and values kept."""
    return forward(backbone, form, tokens=1, context=context, scored=1) * tokens
