"""What a training run is told: one frozen value. Knows nothing of how any of it is done."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenon_engine.errors import BadRequestError

SLOTS_MAX = 48  # of a training canvas: content, then END at least once
MAY_CHANGE = frozenset(
    {
        "out",
        "home",
        "offline",
        "steps",
        "minutes",
        "save_minutes",
        "evaluate_steps",
        "evaluate_holes",
        "device",
        "compile",
        "workers",
    }
)
"""Settings that a run may be resumed with others of."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Which views of a hole the model is shown.

    `confirm` is the share of the slots that see as the default sampler lets them (chain and fans); the other canvases
    are seen whole, with open slots by the shares below, which are relative: all after a random place (`left`), all
    (`open`), after a random place with some later slots known (`gapped`), at random places (`random`).
    """

    confirm: float = 0.5
    left: float = 0.60
    open: float = 0.08
    gapped: float = 0.20
    random: float = 0.12
    replaced: float = 0.0  # of the visible slots of whole canvases, those that show a wrong token


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExampleOptions:
    """How texts become examples."""

    seed: int = 0
    rows: int = 8  # contexts of one forward
    context_tokens: int = 256  # of a context and the true text behind it
    canvas_slots: int = 192  # of all canvases of a context together
    held_out: float = 0.05  # share of packages (of files, where there is one) that is never trained on
    views: Views = Views()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """A run; it ends after `steps` in all, or `minutes` in all, whichever is given and comes first."""

    corpus: Path
    out: Path  # folder of the checkpoint
    adapter: Path | None = None  # to start from; None for the one that ships with the package
    home: Path | None = None
    offline: bool = False
    steps: int | None = None
    minutes: float | None = None
    examples: ExampleOptions = ExampleOptions()
    accumulate: int = 1  # forwards of one step
    learning_rate: float = 2e-4  # at its highest; more than a trained adapter can bear undoes it first
    warmup_steps: int = 20
    clip: float = 1.0
    ema_decay: float = 0.99  # of the weights that are evaluated and shipped
    distil: float = 0.5  # share of the target that is the base's own distribution
    save_minutes: float = 5.0
    evaluate_steps: int = 100  # steps between two looks at held-out texts; 0: never
    evaluate_holes: int = 64  # of held-out texts, the same ones every time
    device: str = "auto"
    compile: bool | None = None  # None: where it pays
    workers: int = 0  # processes that make examples; 0: a thread does

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise BadRequestError("say how long to train: --minutes M or --steps N")
        views = self.examples.views
        if views.left + views.open + views.gapped + views.random <= 0 and views.confirm < 1:
            raise BadRequestError("no view is left to train with: give one of them a share")

    def as_settings(self) -> Mapping[str, Any]:
        """All that decides what is learnt, JSON-able: a run can be resumed under the same settings only."""
        settings = {name: value for name, value in dataclasses.asdict(self).items() if name not in MAY_CHANGE}
        settings["corpus"] = corpus_digest(self.corpus)
        settings["adapter"] = str(self.adapter or "")
        plain: Mapping[str, Any] = json.loads(json.dumps(settings))
        return plain


def corpus_digest(folder: Path) -> str:
    """What tells one corpus from another; '' where there is none."""
    try:
        return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    except OSError:
        return ""
