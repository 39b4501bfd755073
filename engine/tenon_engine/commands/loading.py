"""Loading an engine for a command: what a user sees while weights are fetched, converted and read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from tenon_engine.config import EngineConfig
from tenon_engine.progress import STAGES, Progress, silent

if TYPE_CHECKING:
    from tenon_engine.engine import Engine
    from tenon_engine.models.base import Model


def load_engine(config: EngineConfig) -> Engine:
    """An engine with the configured model; a bar per stage on stderr when its weights have to be fetched first."""
    with progress_bars() as progress, _notice(f"loading {config.model} …"):
        from tenon_engine.models import registry  # what it loads imports torch, a second or two

        _check_sampler(config)
        return registry.load_engine(config, progress)


def load_model(config: EngineConfig) -> Model:
    """The same without an engine around the model."""
    with progress_bars() as progress, _notice(f"loading {config.model} …"):
        from tenon_engine.models import registry

        _check_sampler(config)
        return registry.load(config.model, config, progress)


def _check_sampler(config: EngineConfig) -> None:
    """Refuse an unknown sampler also where the model has no use for it."""
    if config.sampler != EngineConfig().sampler:  # looking one up imports torch
        from tenon_engine.samplers import plan_named

        plan_named(config.sampler)


def progress_lines() -> AbstractContextManager[Progress]:
    """Like `progress_bars`, but where stderr is no terminal, each stage is one line as it begins."""
    if sys.stderr.isatty():
        return progress_bars()
    begun: set[str] = set()

    def show(stage: str, done_bytes: int, total_bytes: int) -> None:
        if stage not in begun:
            begun.add(stage)
            print(f"tenon: {STAGES[stage]}", file=sys.stderr, flush=True)

    return nullcontext(show)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """One bar per stage where stderr is a terminal, each as its stage begins; nothing at all elsewhere."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}
    with ExitStack() as running:

        def show(stage: str, done_bytes: int, total_bytes: int) -> None:
            if not tasks:
                running.enter_context(bars)
            if stage not in tasks:
                tasks[stage] = bars.add_task(STAGES[stage])
            bars.update(tasks[stage], completed=done_bytes, total=total_bytes or None)

        yield show


@contextmanager
def _notice(message: str) -> Iterator[None]:
    """Shows `message` on a terminal while the body runs; wipes it after."""
    if not sys.stderr.isatty():
        yield
        return
    print(message, end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(" " * len(message), end="\r", file=sys.stderr, flush=True)
