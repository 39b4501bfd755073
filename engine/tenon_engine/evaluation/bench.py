"""What a fill costs on this machine: context, steps, memory, and the same number of tokens decoded autoregressively.

Measures the model itself, in this process, on a document that ships with the package. Prints nothing.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon_engine.diffusion import DiffusionModel
from tenon_engine.models.base import HoleRequest, Proposal
from tenon_engine.plan import ConfirmPlan
from tenon_engine.view import OPEN, START, View
from tenon_engine.wire import Stopped

DOCUMENT_PATH = Path(__file__).parent / "bench_document.txt"
HOLE = re.compile("⟦(.*?)⟧")
CANVAS_TOKENS = 16
STEP_WIDTHS = (1, 4, 8, 16, 32)
STEP_REPEATS = 9
PREFIX_CHARACTERS = 900  # about 300 tokens of context with the suffix


@dataclasses.dataclass(frozen=True, slots=True)
class FillTimes:
    """One rest-of-line hole: filled with a new context, filled again one key further, and decoded left to right."""

    text: str
    context_tokens: int
    fill_ms: float  # with a new context
    denoise_ms: float  # the steps alone, on a context that is there
    forwards: int
    tokens: int
    key_ms: float  # the whole fill after one more character was typed
    autoregressive_ms: float  # the base alone, as many tokens, one a step, on the same context

    @property
    def context_ms(self) -> float:
        """What the context costs."""
        return self.fill_ms - self.denoise_ms


@dataclasses.dataclass(frozen=True, slots=True)
class StepTimes:
    """One forward over a number of entries behind a context, median ms."""

    entries: int
    base_ms: (
        float  # decided entries, base weights alone, the last one scored: a step of autoregressive decoding
    )
    canvas_ms: float  # an open canvas with the adapter, its frontier scored


def holes(text: str) -> Iterator[tuple[str, str, str]]:
    """Prefix, middle and suffix of each marked hole, no marks left in them."""
    for match in HOLE.finditer(text):
        prefix, suffix = HOLE.sub(r"\1", text[: match.start()]), HOLE.sub(r"\1", text[match.end() :])
        yield prefix[-PREFIX_CHARACTERS:], match[1], suffix


def hole_request(prefix: str, suffix: str, *, session: str, max_tokens: int = CANVAS_TOKENS) -> HoleRequest:
    """A hole of the document as a model is asked to fill it."""
    return HoleRequest(
        prefix=prefix,
        suffix=suffix,
        path=None,
        language="python",
        extra=(),
        max_tokens=max_tokens,
        candidates=1,
        temperature=0.0,
        seed=0,
        session=session,
    )


def never() -> Stopped | None:
    """Nobody stops a measurement."""
    return None


def measure_fills(model: DiffusionModel[Any]) -> Iterator[FillTimes]:
    """Fill every hole of the document; the first fill, which warms caches of the machine up, is made twice."""
    document = list(holes(DOCUMENT_PATH.read_text(encoding="utf-8")))
    _last(model, hole_request(*document[0][::2], session="warm-up"))
    base = model.with_plan(ConfirmPlan(0, adapted=False))
    for number, (prefix, middle, suffix) in enumerate(document):
        session = f"bench-{number}"
        first = _last(model, hole_request(prefix, suffix, session=session))
        steps = _last(model, hole_request(prefix, suffix, session=session))
        key = _last(model, hole_request(prefix + middle[:1], suffix, session=session))
        decoded = _last(
            base, hole_request(prefix, suffix, session=session, max_tokens=max(1, first.cost.tokens))
        )
        yield FillTimes(
            text=first.drafts[0].text,
            context_tokens=first.cost.context_tokens,
            fill_ms=first.cost.context_ms + first.cost.denoise_ms,
            denoise_ms=steps.cost.denoise_ms,
            forwards=steps.cost.forwards,
            tokens=steps.cost.tokens,
            key_ms=key.cost.context_ms + key.cost.denoise_ms,
            autoregressive_ms=decoded.cost.denoise_ms,
        )


def measure_steps(model: DiffusionModel[Any], *, context_tokens: int = 300) -> Iterator[StepTimes]:
    """Time single forwards of several widths."""
    network = model.network
    ids = model.tokenizer.encode(DOCUMENT_PATH.read_text(encoding="utf-8"))[:context_tokens]
    context = network.new_context()
    network.extend(context, ids)
    for width in STEP_WIDTHS:
        base = _view(ids[:width], np.tri(width, dtype=np.bool_), scored=width - 1, adapted=False)
        canvas = _view(
            [START, *[OPEN] * (width - 1)], np.ones((width, width), dtype=np.bool_), scored=0, adapted=True
        )
        yield StepTimes(
            entries=width,
            base_ms=_median_ms(lambda view=base: network.forward([(context, view)])),  # type: ignore[misc]
            canvas_ms=_median_ms(lambda view=canvas: network.forward([(context, view)])),  # type: ignore[misc]
        )


def peak_memory_mb() -> float:
    """The most resident memory this process ever had; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def summary(fills: Sequence[FillTimes], steps: Sequence[StepTimes], *, load_ms: float) -> dict[str, Any]:
    """The figures of a run, ready for JSON; times in ms."""
    step = {times.entries: times for times in steps}
    forwards, tokens = sum(f.forwards for f in fills), sum(f.tokens for f in fills)
    denoise_ms = sum(f.denoise_ms for f in fills)
    autoregressive_ms = sum(f.autoregressive_ms for f in fills)
    figures = {
        "load_ms": load_ms,
        "peak_memory_mb": peak_memory_mb(),
        "context_tokens": statistics.mean(f.context_tokens for f in fills),
        "context_ms": statistics.median(f.context_ms for f in fills),
        "fill_p50_ms": statistics.median(f.fill_ms for f in fills),
        "fill_max_ms": max(f.fill_ms for f in fills),
        "key_p50_ms": statistics.median(f.key_ms for f in fills),
        "step_ms": denoise_ms / forwards,
        "tokens_per_step": tokens / forwards,
        "tokens_per_fill": tokens / len(fills),
        "tokens_per_second": tokens / denoise_ms * 1e3,
        "autoregressive_tokens_per_second": tokens / autoregressive_ms * 1e3,
        "denoise_speedup": autoregressive_ms / denoise_ms,
        "canvas_16_to_base_1": step[16].canvas_ms / step[1].base_ms,
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _last(model: DiffusionModel[Any], hole: HoleRequest) -> Proposal:
    *_, proposal = model.propose(hole, never)
    return proposal


def _view(
    reads: Sequence[int], sees: np.ndarray[Any, np.dtype[np.bool_]], *, scored: int, adapted: bool
) -> View:
    return View(
        reads=tuple(reads),
        places=tuple(range(len(reads))),
        sees=sees,
        kept=0,
        keepable=0,
        scored=(scored,),
        constraints=(None,),
        adapted=adapted,
    )


def _median_ms(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(STEP_REPEATS):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)
