"""What a model of the hub costs on this machine: a step beside its bound and beside a bare forward of the same weights,
a fill beside as many tokens written one by one.

Measures the model itself, in this process, on the document that ships with the package. Prints nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tenon_engine.evaluation.backbone import backbone_of
from tenon_engine.evaluation.bench import DOCUMENT_PATH, hole_request, holes, never, peak_memory_mb
from tenon_engine.evaluation.cost import FORMATS, Card, Infill, autoregressive, denoising_step
from tenon_engine.evaluation.probe import card_of, median_ms
from tenon_engine.evaluation.yardstick import GemmaYardstick, MaskedYardstick, StepShape, Yardstick
from tenon_engine.models.base import HoleRequest, Model, Proposal
from tenon_engine.models.frugal import FrugalModel
from tenon_engine.view import View
from tenon_engine.wire import SlotState

HOLE_TOKENS = 24  # the fill of the worked example in docs/gpu.md


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One denoising step of a fill: how long it took, and what its forward looked at."""

    ms: float
    rows: int
    slots: int
    scored: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """One hole, filled with a new context, again with the context that is there, and again one key further."""

    again: Proposal
    fill_ms: float  # with a new context
    key_ms: float
    steps: tuple[Step, ...]  # of the second time

    @property
    def tokens(self) -> int:
        """What the best candidate decided."""
        return sum(slot.state is SlotState.DECIDED for slot in self.again.slots)


def yardstick_of(model: Model) -> Yardstick | None:
    """The weights of a hub model, to be driven without us; None for a model that has none of transformers'."""
    network: Any = getattr(_inner(model), "network", None)
    if hasattr(network, "backbone"):
        return MaskedYardstick(network.backbone.decoder, network.backbone.head, shift=network.shift)
    return GemmaYardstick(network.module) if hasattr(network, "module") else None


def measure(
    model: Model, bare: Yardstick, *, quantization: str = "", hole_count: int | None = None
) -> dict[str, Any]:
    """The figures of a run over so many holes of the document, or all, ready for JSON; times in ms."""
    fills = list(itertools.islice(measure_fills(model), hole_count))
    steps = _usual([step for fill in fills for step in fill.steps])
    shape = StepShape(
        context=round(statistics.median(fill.again.cost.context_tokens for fill in fills)),
        canvas=getattr(bare.config, "canvas_length", None)
        or round(statistics.median(s.slots for s in steps)),
        scored=round(statistics.median(step.scored for step in steps)),
        rows=steps[0].rows,
    )
    card, is_known = card_of(bare.device, bare.dtype)
    times = _times(fills, steps, shape, bare)
    form = quantization or _FORMS[bare.dtype]
    bounds = _bounds(bare.config.to_dict(), form, shape, card)
    figures = {
        "device": str(bare.device),
        "card": card.name,
        "bound_from": "table" if is_known else "measured",
        "format": form,
        **dataclasses.asdict(shape),
        **{name: round(value, 4) for name, value in (times | bounds).items()},
        "step_to_bound": round(times["step_ms"] / bounds["step_bound_ms"], 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }
    if bare.device.type == "cuda":
        figures["device_peak_memory_mb"] = round(torch.cuda.max_memory_allocated(bare.device) / (1 << 20), 1)
    return figures


def measure_fills(model: Model) -> Iterator[Fill]:
    """Fill every hole of the document; the first one, which warms the machine up, twice."""
    document = list(holes(DOCUMENT_PATH.read_text(encoding="utf-8")))
    with _Recorder(_inner(model)) as recorder:
        recorder.fill(model, _request(*document[0][::2], session="warm-up"))
        for number, (prefix, middle, suffix) in enumerate(document):
            session = f"bench-{number}"
            first, _ = recorder.fill(model, _request(prefix, suffix, session))
            again, steps = recorder.fill(model, _request(prefix, suffix, session))
            key, _ = recorder.fill(model, _request(prefix + middle[:1], suffix, session))
            yield Fill(
                again,
                fill_ms=first.cost.context_ms + first.cost.denoise_ms,
                key_ms=key.cost.context_ms + key.cost.denoise_ms,
                steps=tuple(steps[1:] or steps),  # the first one has more candidates, or all of the context
            )


class _Recorder:
    """Stands in for a model's network and writes down what its forwards look at."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._network: Any = model.network
        self._looks: list[Sequence[View]] = []

    def __enter__(self) -> _Recorder:
        self._model.network = self
        return self

    def __exit__(self, *_: object) -> None:
        self._model.network = self._network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def forward(self, passes: Sequence[tuple[Any, View]]) -> list[torch.Tensor]:
        """The network's."""
        self._looks.append([view for _, view in passes])
        logits: list[torch.Tensor] = self._network.forward(passes)
        return logits

    def fill(self, model: Model, hole: HoleRequest) -> tuple[Proposal, list[Step]]:
        """The last proposal for a hole, and the steps that led there."""
        last, steps, since = None, [], time.perf_counter()
        self._looks.clear()
        for proposal in model.propose(hole, never):
            now = time.perf_counter()
            views = self._looks[-1]
            steps.append(
                Step(
                    ms=(now - since) * 1e3,
                    rows=len(views),
                    slots=max(len(view.reads) for view in views),
                    scored=max(len(view.scored) for view in views),
                )
            )
            last, since = proposal, now
        assert last is not None, "a model that is not stopped proposes something"
        return last, steps


def _inner(model: Model) -> Any:
    return model.model if isinstance(model, FrugalModel) else model


def _request(prefix: str, suffix: str, session: str) -> HoleRequest:
    return hole_request(prefix, suffix, session=session, max_tokens=HOLE_TOKENS)


def _usual(steps: Sequence[Step]) -> list[Step]:
    """Those with as many rows as most have, and with something to decide."""
    deciding = [step for step in steps if step.scored]
    rows = statistics.mode(step.rows for step in deciding)
    return [step for step in deciding if step.rows == rows]


def _times(
    fills: Sequence[Fill], steps: Sequence[Step], shape: StepShape, bare: Yardstick
) -> dict[str, float]:
    step_ms = statistics.median(step.ms for step in steps)
    bare_ms = median_ms(lambda: bare.step(shape), bare.device)
    context_ms = median_ms(lambda: bare.decode(shape.context, 0), bare.device, repeats=3)
    decoded_ms = median_ms(lambda: bare.decode(shape.context, HOLE_TOKENS), bare.device, repeats=3)
    one_by_one_ms = (decoded_ms - context_ms) / HOLE_TOKENS
    tokens = sum(fill.tokens for fill in fills)
    denoise_ms = sum(fill.again.cost.denoise_ms for fill in fills)
    return {
        "step_ms": step_ms,
        "bare_step_ms": bare_ms,
        "overhead_share": step_ms / bare_ms - 1.0,
        "steps_per_fill": statistics.mean(fill.again.cost.forwards for fill in fills),
        "tokens_per_fill": tokens / len(fills),
        "fill_p50_ms": statistics.median(fill.fill_ms for fill in fills),
        "key_p50_ms": statistics.median(fill.key_ms for fill in fills),
        "tokens_per_second": tokens / denoise_ms * 1e3,
        "autoregressive_tokens_per_second": 1e3 / one_by_one_ms,
        "denoise_speedup": one_by_one_ms * tokens / denoise_ms,
    }


def _bounds(config: dict[str, Any], form: str, shape: StepShape, card: Card) -> dict[str, float]:
    backbone = backbone_of(config)
    infill = Infill(
        context=shape.context,
        new_context=0,
        canvas=shape.canvas,
        hole=shape.scored,
        steps=1,
        rows=shape.rows,
    )
    step = denoising_step(backbone, FORMATS[form], infill)
    one = autoregressive(backbone, FORMATS[form], context=shape.context, tokens=1)
    return {
        "parameters": backbone.weights,
        "active_parameters": backbone.active_weights,
        "step_bound_ms": card.bound_ms(step),
        "autoregressive_bound_ms": card.bound_ms(one),
    }


_FORMS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "bf16"}
