"""The training loop: step after step until the time is up, looks at held-out texts, checkpoints. Resumable at any step.

Owns when a checkpoint is written and what a signal does; what a step is, is `run`'s business. Knows no screens: what
happens is told to whoever asks, one Report a step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from tenon_engine import base_weights, memory
from tenon_engine.base_convert import Dtype
from tenon_engine.errors import BadRequestError, OutOfMemoryError
from tenon_engine.models import embedded
from tenon_engine.progress import Progress, silent
from tenon_engine.training import checkpoint
from tenon_engine.training.feed import Recipe, feeding, maker_of
from tenon_engine.training.options import TrainOptions
from tenon_engine.training.run import Ground, Report, Run, device_of

Reports = Callable[[Report], None]


def find_ground(options: TrainOptions, progress: Progress = silent) -> Ground:
    """The base weights in the form that suits the device, fetched and converted first where they are not there."""
    dtype = Dtype.BF16 if device_of(options).type == "cuda" else embedded.best_dtype()
    return Ground(base_weights.ensure(options.home, offline=options.offline, dtype=dtype, progress=progress))


def train(options: TrainOptions, ground: Ground, tell: Reports) -> Path:
    """Train until the budget is spent; returns the checkpoint. The same call goes on where the last one stopped.

    On SIGINT (Ctrl-C) or SIGTERM the step under way is finished and the checkpoint written; then KeyboardInterrupt is
    raised. A second one interrupts at once.
    """
    memory.keep()
    found = checkpoint.load(options.out)
    if found is not None:
        checkpoint.check_settings(found, options.as_settings(), options.out)
    recipe = Recipe(options.corpus, ground.files, ground.special, options.examples)
    if maker_of(recipe).is_empty:
        raise BadRequestError(f"the corpus in {options.corpus} has nothing to train on")
    run = Run(options, ground, found)
    if run.done >= 1:
        return options.out / checkpoint.FILE_NAME
    if run.step == 0:
        _evaluate(run, recipe, tell)  # what the run has to beat
    path = _advance_to_end(run, recipe, tell)
    _evaluate(run, recipe, tell)  # what came of it
    return path


def _advance_to_end(run: Run, recipe: Recipe, tell: Reports) -> Path:
    """Step after step, with checkpoints and looks at held-out texts between; returns the last checkpoint."""
    options, first = run.options, run.step * run.options.accumulate
    saved_at = time.monotonic()
    with (
        _noted_interrupts() as is_interrupted,
        feeding(recipe, first=first, workers=options.workers) as feed,
    ):
        while run.done < 1 and not is_interrupted():
            try:
                _say(run.advance(feed), options.out, tell)
            except torch.OutOfMemoryError as error:
                raise OutOfMemoryError(
                    "there is not enough memory for a step: try a smaller --rows"
                ) from error
            is_look = options.evaluate_steps and run.step % options.evaluate_steps == 0 and run.done < 1
            if is_look or time.monotonic() - saved_at > options.save_minutes * 60:
                checkpoint.save(run.checkpoint(), options.out)  # before the look, which takes a while
                saved_at = time.monotonic()
            if is_look and not is_interrupted():
                _evaluate(run, recipe, tell)
        path = checkpoint.save(run.checkpoint(), options.out)
        if is_interrupted():
            raise KeyboardInterrupt
    return path


def _evaluate(run: Run, recipe: Recipe, tell: Reports) -> None:
    options = run.options
    held_out = maker_of(dataclasses.replace(recipe, held_out=True))
    if options.evaluate_steps and not held_out.is_empty:
        count = math.ceil(options.evaluate_holes / options.examples.rows)
        _say(run.evaluate(map(held_out.batch, range(count))), options.out, tell)


def _say(report: Report, folder: Path, tell: Reports) -> None:
    tell(report)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / checkpoint.LOG_NAME).open("a", encoding="utf-8") as log:
        log.write(json.dumps(report.row()) + "\n")


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Inside, the first SIGINT or SIGTERM is only noted; a second one does what it does elsewhere."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: object) -> None:
        noted.set()
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield noted.is_set
    finally:
        restore()
