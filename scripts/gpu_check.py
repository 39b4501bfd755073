"""Checks of models on a GPU, of this repository alone: `make gpu-check`, or `python scripts/gpu_check.py`.

Checkpoints with random weights, of real depth and moderate width, are written for every family; those that were trained
for the tests and the embedded model are used where they are there. What is printed on stdout is one JSON line; the exit
code is 1 when a check failed. Without an NVIDIA GPU nothing is checked, unless with `--device cpu --quick`, which takes
a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "engine")]

import torch  # noqa: E402  # the path to our own packages comes first
from tests.engine.models import tiny  # noqa: E402

from tenon_engine.config import EngineConfig  # noqa: E402
from tenon_engine.errors import OutOfMemoryError, WeightsMissingError  # noqa: E402
from tenon_engine.evaluation import bench, bench_hub  # noqa: E402
from tenon_engine.models import registry  # noqa: E402
from tenon_engine.models.base import HoleRequest, Model, Proposal  # noqa: E402

TIME_S = 420.0  # after it, what is left is skipped
TOLERANCE = 2e-3  # of a probability, in f32 on another device
TEXT = "item.stock <= item.reorder_level"
WIDE = tiny.Width(hidden=512, heads=8, key_value_heads=4, feed_forward=1536, experts=16)
COMPILED_LAYERS = 4  # each compiled shape takes seconds per layer
CANDIDATES = (1, 2, 4, 8)
LEFT_MB = (2, 16, 64, 256)  # beside the weights, where memory is made to run out
TRAINED = ("tiny-llada", "tiny-gemma")


class SkippedError(Exception):
    """A check that cannot be made here, and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is checked, where, and how much of it."""

    device: str
    folder: Path
    quick: bool

    @property
    def is_gpu(self) -> bool:
        """Whether there is a GPU to check."""
        return self.device.startswith("cuda")

    def load(
        self, checkpoint: Path, *, device: str | None = None, dtype: str = "fp32", compile: bool = False
    ) -> Model:
        """The model in a folder."""
        config = EngineConfig(
            model=str(checkpoint), offline=True, device=device or self.device, dtype=dtype, compile=compile
        )
        return registry.load(str(checkpoint), config)


class Report:
    """The outcome of every check, by name."""

    def __init__(self) -> None:
        self.checks: dict[str, dict[str, Any]] = {}
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._started

    @property
    def is_well(self) -> bool:
        """Whether nothing failed."""
        return all(check.get("ok", True) for check in self.checks.values())

    def run(self, name: str, check: Callable[[], dict[str, Any]]) -> None:
        """Make one check and write down what came of it."""
        started = time.monotonic()
        try:
            if self.seconds > TIME_S:
                raise SkippedError("no time is left")
            outcome = {"ok": True, **check()}
        except SkippedError as reason:
            outcome = {"skipped": str(reason)}
        except Exception as error:  # one check that fails must not hide the others
            logging.getLogger("gpu_check").debug("%s failed", name, exc_info=True)
            outcome = {"ok": False, "error": f"{type(error).__name__}: {error}".partition("\n")[0]}
        self.checks[name] = {**outcome, "seconds": round(time.monotonic() - started, 1)}
        print(f"{name}: {json.dumps(self.checks[name])}", file=sys.stderr, flush=True)


def device(name: str) -> str:
    """A device as torch names it."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise argparse.ArgumentTypeError(f"there is no device {name!r}: cpu, cuda, cuda:1")
    return name


def main() -> int:
    """Check what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", type=device, default="cuda", help="cuda (default), cuda:1, or cpu")
    parser.add_argument("--quick", action="store_true", help="few layers, and no timing that means something")
    arguments = parser.parse_args()
    if arguments.device != "cpu" and not torch.cuda.is_available():
        print(json.dumps({"skipped": "there is no NVIDIA GPU that torch can use on this machine"}))
        return 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(arguments.device, Path(folder), arguments.quick)
        check_all(setting, report)
    name = torch.cuda.get_device_name(setting.device) if setting.is_gpu else setting.device
    facts = {"device": name, "torch": torch.__version__, "quick": setting.quick}
    print(
        json.dumps(
            {"ok": report.is_well, **facts, "seconds": round(report.seconds, 1), "checks": report.checks}
        )
    )
    return 0 if report.is_well else 1


def check_all(setting: Setting, report: Report) -> None:
    """Every family, then what was trained, then the embedded model."""
    depth = 2 if setting.quick else None
    width = tiny.NARROW if setting.quick else WIDE
    writers: dict[str, Callable[[Path, int], Path]] = {
        "llada": lambda path, layers: tiny.write_llada(path, layers=layers, width=width),
        "dream": lambda path, layers: tiny.write_dream(path, layers=layers, width=width),
        "dreamon": lambda path, layers: tiny.write_dream(path, dreamon=True, layers=layers, width=width),
        "gemma": lambda path, layers: tiny.write_diffusion_gemma(
            path,
            layers=layers,
            canvas=64 if setting.quick else 256,
            window=128 if setting.quick else 1024,
            width=width,
        ),
    }
    layers = {"llada": 32, "dream": 28, "dreamon": 28, "gemma": 30}
    for name, write in writers.items():
        checkpoint = write(setting.folder / name, depth or layers[name])
        check_family(name, setting, checkpoint, report)
        shallow = write(setting.folder / f"{name}-shallow", COMPILED_LAYERS)
        report.run(f"{name}: compiled", functools.partial(compiled, setting, shallow))
    for name in TRAINED:
        report.run(f"{name}: other device", functools.partial(trained, setting, name))
    report.run("tenon-0.5b", lambda: embedded(setting))


def check_family(name: str, setting: Setting, checkpoint: Path, report: Report) -> None:
    """All checks of one checkpoint, loaded once."""
    loaded: list[Model] = []
    report.run(f"{name}: loads", lambda: loads(setting, checkpoint, loaded))
    if loaded:
        for check, run in checks_of(setting, loaded.pop(), checkpoint).items():
            report.run(f"{name}: {check}", run)
    if setting.is_gpu:
        torch.cuda.empty_cache()


def checks_of(setting: Setting, model: Model, checkpoint: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """The checks of a model that is loaded, by name."""
    return {
        "other device": lambda: other_device(setting, model, checkpoint),
        "cache": lambda: cache(model),
        "together": lambda: together(model),
        "repeatable": lambda: repeatable(model),
        "candidates": lambda: candidates(model, setting),
        "memory": lambda: memory(setting, model),
        "out of memory": lambda: out_of_memory(setting, model),
        "bench": lambda: measured(setting, checkpoint),
    }


def loads(setting: Setting, checkpoint: Path, loaded: list[Model]) -> dict[str, Any]:
    """The model, put where the other checks find it."""
    loaded.append(setting.load(checkpoint))
    return {}


def other_device(setting: Setting, model: Model, checkpoint: Path) -> dict[str, Any]:
    """The same probabilities as on the CPU, in f32."""
    return _close(setting.load(checkpoint, device="cpu"), model)


def cache(model: Model) -> dict[str, Any]:
    """A context that grew, shrank and grew again gives what a fresh one gives."""
    for prefix in ("x = y", "x"):
        _answer(model, hole("typed", more=prefix))
    return _equal(_answer(model, hole("typed", more="x = ")), _answer(model, hole("fresh", more="x = ")))


def together(model: Model) -> dict[str, Any]:
    """Fills of four threads give what each gives alone."""
    requests = [hole(f"thread-{number}", more="y" * number) for number in range(4)]
    alone = [_answer(model, request) for request in requests]
    with ThreadPoolExecutor(len(requests)) as threads:
        for found, expected in zip(
            threads.map(functools.partial(_answer, model), requests), alone, strict=True
        ):
            _equal(found, expected)
    return {}


def repeatable(model: Model) -> dict[str, Any]:
    """The same seed gives the same text, sampled or not."""
    for temperature in (0.0, 0.8):
        _equal(*(_answer(model, hole("again", temperature=temperature)) for _ in range(2)))
    return {}


def candidates(model: Model, setting: Setting) -> dict[str, Any]:
    """What more candidates cost, in ms per forward."""
    counts = CANDIDATES[:2] if setting.quick else CANDIDATES
    times = {}
    for count in counts:
        request = hole("many", candidates=count)
        _answer(model, request)
        times[str(count)] = _ms_per_forward(model, request)
    return {"ms_per_forward": times}


def compiled(setting: Setting, checkpoint: Path) -> dict[str, Any]:
    """CUDA graphs give the same text; and what they save."""
    if not setting.is_gpu:
        raise SkippedError("CUDA graphs need a GPU")
    models = {"eager": setting.load(checkpoint), "compiled": setting.load(checkpoint, compile=True)}
    figures: dict[str, Any] = {}
    for name, model in models.items():
        started = time.perf_counter()
        _answer(model, hole("warm"))
        figures[f"{name}_first_fill_s"] = round(time.perf_counter() - started, 1)
        figures[f"{name}_ms_per_forward"] = _ms_per_forward(model, hole("warm"))
    return {**_close(*models.values()), **figures}


def memory(setting: Setting, model: Model) -> dict[str, Any]:
    """The most memory a fill with eight candidates takes beyond the weights."""
    if not setting.is_gpu:
        raise SkippedError("memory is measured on a GPU")
    before = torch.cuda.memory_allocated(setting.device)
    torch.cuda.reset_peak_memory_stats(setting.device)
    _answer(model, hole("memory", candidates=8))
    peak = torch.cuda.max_memory_allocated(setting.device)
    return {"weights_mb": before >> 20, "peak_mb": peak >> 20}


def out_of_memory(setting: Setting, model: Model) -> dict[str, Any]:
    """With next to no memory left, a smaller fill or one sentence; with memory again, the same text as before."""
    if not setting.is_gpu:
        raise SkippedError("memory cannot be taken away on a CPU")
    request = hole("room", max_tokens=24, candidates=4)
    expected = _answer(model, request)
    outcomes = {}
    for left_mb in LEFT_MB:
        with _little_memory(setting, left_mb):
            try:
                outcomes[str(left_mb)] = f"{len(_answer(model, request).drafts)} candidates"
            except OutOfMemoryError as error:
                outcomes[str(left_mb)] = str(error)
    return {**_equal(_answer(model, request), expected), "with_mb_left": outcomes}


def measured(setting: Setting, checkpoint: Path) -> dict[str, Any]:
    """The figures of `tenon bench`, in bf16 on a GPU."""
    model = setting.load(checkpoint, dtype="bf16" if setting.is_gpu else "fp32")
    bare = bench_hub.yardstick_of(model)
    assert bare is not None, "the model has no weights of transformers"
    return bench_hub.measure(model, bare, hole_count=1 if setting.quick else None)


def trained(setting: Setting, name: str) -> dict[str, Any]:
    """A checkpoint that was trained for the tests says the same here and on the CPU."""
    checkpoint = ROOT / "tests" / "data" / name
    if not (checkpoint / "model.safetensors").exists():
        raise SkippedError("it is not in this repository")
    return other_device(setting, setting.load(checkpoint), checkpoint)


def embedded(setting: Setting) -> dict[str, Any]:
    """The embedded model, which runs on the CPU: the same text with and without a cached context."""
    if setting.quick:
        raise SkippedError("it is left out when it should be quick")
    try:
        model = registry.load(registry.EMBEDDED, EngineConfig(offline=True))
    except WeightsMissingError as error:
        raise SkippedError(str(error)) from None
    first, again = _answer(model, hole("once")), _answer(model, hole("once"))
    return {**_equal(first, again), "text": first.drafts[0].text}


def hole(
    session: str, *, more: str = "", max_tokens: int = 12, candidates: int = 1, temperature: float = 0.0
) -> HoleRequest:
    """A hole of the document of `tenon bench`."""
    prefix, _, suffix = next(bench.holes(bench.DOCUMENT_PATH.read_text(encoding="utf-8")))
    request = bench.hole_request(prefix + more, suffix, session=session, max_tokens=max_tokens)
    return dataclasses.replace(request, candidates=candidates, temperature=temperature, seed=7)


def _answer(model: Model, request: HoleRequest) -> Proposal:
    *_, last = model.propose(request, bench.never)
    return last


def _ms_per_forward(model: Model, request: HoleRequest) -> float:
    cost = _answer(model, request).cost
    return round(cost.denoise_ms / cost.forwards, 2)


def _close(first: Model, second: Model) -> dict[str, Any]:
    """How far the probabilities of two models are apart, and whether they write the same text; not too far."""
    scores = [
        [token.probability for token in model.score(hole("score"), TEXT, bench.never).tokens]
        for model in (first, second)
    ]
    difference = max(abs(a - b) for a, b in zip(*scores, strict=True))
    assert difference < TOLERANCE, f"probabilities differ by {difference:.2g}"
    texts = [_answer(model, hole("text")).drafts[0].text for model in (first, second)]
    return {"difference": difference, "is_same_text": texts[0] == texts[1]}


def _equal(found: Proposal, expected: Proposal) -> dict[str, Any]:
    """Nothing to say, unless two answers differ."""
    texts, others = ([draft.text for draft in each.drafts] for each in (found, expected))
    assert texts == others, f"{texts} is not {others}"
    return {}


@contextlib.contextmanager
def _little_memory(setting: Setting, left_mb: int) -> Iterator[None]:
    """Torch may have so many megabytes more than the weights have."""
    torch.cuda.empty_cache()
    device = torch.device(setting.device)
    total = torch.cuda.get_device_properties(device).total_memory
    allowed = torch.cuda.memory_reserved(device) + (left_mb << 20)
    torch.cuda.set_per_process_memory_fraction(allowed / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


if __name__ == "__main__":
    sys.exit(main())
