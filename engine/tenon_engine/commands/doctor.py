"""`tenon doctor`: what is installed, which device, what would be used, and whether a fill would work.

Looks only: fetches nothing, loads no weights, changes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

from tenon_engine import config as configuration
from tenon_engine import excerpt, runtime
from tenon_engine.commands import options
from tenon_engine.config import EngineConfig
from tenon_engine.errors import EngineError
from tenon_engine.models import registry
from tenon_engine.progress import silent

PACKAGES = (
    *("torch", "numpy", "safetensors", "tokenizers", "gguf", "huggingface-hub"),
    *("pygls", "lsprotocol", "tree-sitter", "starlette", "uvicorn", "httpx"),
)

# Torch tells of these; what it does not know of yet counts as absent.
_CPU_FEATURES = {
    "AVX2": "_is_avx2_supported",
    "AVX-512": "_is_avx512_supported",
    "VNNI": "_is_vnni_supported",
    "BF16": "_is_avx512_bf16_supported",
    "AMX": "_is_amx_tile_supported",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """Where a fill would be computed, as torch reports it."""

    name: str
    threads: int
    features: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelState:
    """The model that would be used; `problem` is '' when it could be loaded now."""

    name: str
    location: str
    state: str
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the doctor found; a fill would work when `problems` is empty."""

    tenon: str | None
    python: str
    platform: str
    packages: dict[str, str | None]
    device: Device | None
    model: ModelState | None
    config: str
    complaints: tuple[str, ...]
    engine: str
    problems: tuple[str, ...]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what is installed and whether a fill would work",
        description="What is installed, which device, what would be used; exit code 1: no fill would work.",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options.add_model_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; the exit code says whether a fill would work."""
    config, complaints = configuration.load(os.environ, {"model": arguments.model})
    report = _examine(config, complaints)
    if arguments.json:
        print(json.dumps(dataclasses.asdict(report) | {"ready": not report.problems}, ensure_ascii=False))
    else:
        print("\n".join(_lines(report)))
    return 1 if report.problems else 0


def _examine(config: EngineConfig, complaints: tuple[str, ...]) -> Report:
    packages = {name: _version_of(name) for name in PACKAGES}
    missing = [name for name, version in packages.items() if version is None]
    problems = [f"{name} is not installed: reinstall tenon-ls" for name in missing]
    device = model = None
    if not missing:
        try:
            device = _device(config)
        except (ImportError, OSError) as error:  # a half-installed torch raises either
            problems.append(f"torch cannot be imported: {error}")
    if device is not None:
        model = _model(config)
        problems += _sampler_problems(config)
    if model is not None and model.problem:
        problems.append(model.problem)
    path = configuration.config_path(os.environ)
    return Report(
        tenon=_version_of("tenon-ls"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=packages,
        device=device,
        model=model,
        config=f"{path}{'' if _exists(path) else ' (not there: defaults)'}",
        complaints=complaints,
        engine=_engine(),
        problems=tuple(problems),
    )


def _engine() -> str:
    """Which engines of this user run in the background."""
    try:
        found = [f"{each.model} (process {each.pid})" for each in runtime.running()]
    except EngineError as error:
        return str(error)
    return f"running: {', '.join(found)}" if found else "not running"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # such as a name that is too long
        return False


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device(config: EngineConfig) -> Device:
    import torch

    features = [name for name, asks in _CPU_FEATURES.items() if getattr(torch.cpu, asks, bool)()]
    return Device("cpu", config.threads or torch.get_num_threads(), tuple(features))


def _sampler_problems(config: EngineConfig) -> list[str]:
    from tenon_engine.samplers import plan_named

    try:
        plan_named(config.sampler)
    except EngineError as error:
        return [str(error)]
    return []


def _model(config: EngineConfig) -> ModelState:
    try:
        if config.model == registry.EMBEDDED:
            return _embedded(config)
        registry.check(config.model)
        if registry.is_of_the_hub(config.model):
            return _checkpoint(config)
        registry.load(config.model, config)  # a scripted model costs nothing
    except EngineError as error:
        return ModelState(config.model, "", "unusable", str(error))
    except OSError as error:
        problem = f"{error.filename or config.home} cannot be used: {error.strerror or error}"
        return ModelState(config.model, "", "unusable", problem)
    return ModelState(config.model, config.model.removeprefix(registry.SCRIPTED_PREFIX), "scripted")


def _embedded(config: EngineConfig) -> ModelState:
    from tenon_engine import base_weights
    from tenon_engine.models.embedded import ADAPTER_PATH, best_dtype, check_adapter

    check_adapter(config.adapter or ADAPTER_PATH)
    folder = base_weights.folder_of(config.home)
    dtype = best_dtype()
    if base_weights.locate(config.home, dtype=dtype) is not None:
        return ModelState(config.model, str(folder), f"complete ({dtype.value})")
    source = base_weights.locate_source(config.home)
    if source is not None:
        return ModelState(config.model, str(source), "fetched, converted at first use")
    problem = f"the base weights are not in {folder}: run `tenon model fetch`"
    return ModelState(config.model, str(folder), "missing", problem)


def _checkpoint(config: EngineConfig) -> ModelState:
    from tenon_engine.models.hub import checkpoint, families, placement, shards, vocabulary

    families.check_installed()
    if checkpoint.find_here(config.model) is None and not config.offline:
        return ModelState(config.model, "", "not on this machine as a whole, fetched at first use")
    found = checkpoint.find(config.model, offline=True, progress=silent)
    placed = placement.place(found, config)
    form = config.quantization or str(placed.dtype).removeprefix("torch.")
    vocabulary.load_tokenizer(found)
    state = f"files complete ({shards.read(found.folder).size_bytes / 1e9:.1f} GB, {form} on {placed.device})"
    return ModelState(config.model, str(found.folder), state)


def _lines(report: Report) -> list[str]:
    versions = (f"{name} {version or 'MISSING'}" for name, version in report.packages.items())
    rows = [
        ("tenon", report.tenon or "not installed as a package"),
        ("python", f"{report.python} on {report.platform} ({sys.executable})"),
        ("packages", ", ".join(versions)),
    ]
    if report.device is not None:
        features = " ".join(report.device.features) or "no vector features that torch knows"
        rows.append(("device", f"{report.device.name}, {report.device.threads} threads, {features}"))
    if report.model is not None:
        rows.append(("model", report.model.name))
        rows.append(("weights", ": ".join(filter(None, (report.model.state, report.model.location)))))
    rows += [("config", report.config), *(("", complaint) for complaint in report.complaints)]
    rows.append(("engine", report.engine))
    rows += [("problem", problem) for problem in report.problems]
    rows.append(("result", "a fill would not work" if report.problems else "a fill would work"))
    return [f"{name + ':' if name else '':<10}{excerpt.one_line(value)}" for name, value in rows]
