"""What a training run consists of between two steps: parameters, their average, the optimiser; and one step.

Owns the schedule and how the average follows. Knows no checkpoint's place, no signals and no screens: `loop` does.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tenon_engine.base_weights import BaseFiles
from tenon_engine.diffusion import SpecialIds
from tenon_engine.errors import BadRequestError, ModelFailedError
from tenon_engine.models import embedded
from tenon_engine.training import speed
from tenon_engine.training.checkpoint import Checkpoint
from tenon_engine.training.examples import Batch
from tenon_engine.training.feed import Feed
from tenon_engine.training.network import TrainableCanvas, load_base, packed
from tenon_engine.training.objective import Count, Metrics, Said, Targets, judge, measure, teach
from tenon_engine.training.options import TrainOptions
from tenon_engine.training.state import State, unpack

BETAS = (0.9, 0.98)
LEAST_RATE = 0.05  # of the learning rate, at the end
REMEMBERED = 0.96  # of the figures shown, from one step to the next
RATES = (
    ("decided", 0.3),
    ("mask_embedding", 4.0),
    ("mask_key_bias", 30.0),
)  # relative, by a part of the name


@dataclasses.dataclass(frozen=True, slots=True)
class Ground:
    """What is trained on top of: the base's files, and the ids it reserves."""

    files: BaseFiles
    special: SpecialIds = embedded.SPECIAL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One step, or a look at held-out texts after it."""

    step: int
    done: float  # share of the run, 0 to 1
    left_s: float
    step_s: float  # of the last step
    waited: float  # share of the time so far in which no batch was ready
    efficiency: float  # share of this device's best speed in matrix products (model FLOPs utilisation)
    rate: float  # learning rate
    filled: float  # share of the batch that is no padding
    metrics: Metrics
    held_out: bool = False

    def row(self) -> dict[str, Any]:
        """For a log: plain numbers."""
        fields = dataclasses.asdict(self)
        metrics = {name: round(count.mean, 4) for name, count in self.metrics.items()}
        numbers = {name: round(value, 6) for name, value in fields.items() if isinstance(value, float)}
        return {"step": self.step, "held_out": self.held_out} | numbers | metrics


class Run:
    """Parameters, their average, the optimiser and how far it is. Mutable; whole between two steps."""

    def __init__(self, options: TrainOptions, ground: Ground, found: Checkpoint | None) -> None:
        self.options = options
        self.step = found.step if found else 0
        self._trained_s = found.trained_s if found else 0.0
        self._device = device_of(options)
        self._special = ground.special
        compiled = speed.compiling_pays(self._device) if options.compile is None else options.compile
        base = load_base(ground.files.weights).to(self._device)
        if speed.packing_pays(self._device, base.dtype) and not compiled:
            base = packed(base)
        self._head = base.embedding[: ground.special.end + 1]
        fresh = {} if found else unpack(options.adapter or embedded.ADAPTER_PATH)
        self._weights = self._placed(found.weights if found else fresh)
        self._average = self._placed(found.average if found else fresh)
        for tensor in self._weights.values():
            tensor.requires_grad_()
        self._canvas = TrainableCanvas(base, self._weights, compiled=compiled)
        self._averaged = TrainableCanvas(base, self._average, compiled=compiled)
        self._optimizer = self._make_optimizer(found)
        self._best_per_s = speed.best_operations_per_s(self._device, base.dtype)
        self._metrics: Metrics = {}
        self._started_at = time.monotonic()

    @property
    def done(self) -> float:
        """Share of the budget that is spent; 1 or more at the end."""
        options = self.options
        shares = [self.step / options.steps] if options.steps else []
        shares += [self._trained_s / 60 / options.minutes] if options.minutes else []
        return max(shares, default=1.0)

    def advance(self, feed: Feed) -> Report:
        """One step of the optimiser."""
        started = time.monotonic()
        rate = self._set_rates()
        operations, filled, metrics = 0.0, 0.0, Metrics()
        for _ in range(self.options.accumulate):
            batch = feed.take()
            said = self._forward(self._canvas, batch)
            (said.loss / self.options.accumulate).backward()
            metrics = _sum(metrics, self._measured(said, batch))
            operations += speed.operations(self._canvas.base.shape, batch, head_rows=len(self._head))
            filled += batch.filled / self.options.accumulate
        self._update()
        self._metrics = _sum(
            {name: count.faded(REMEMBERED) for name, count in self._metrics.items()}, metrics
        )
        step_s = time.monotonic() - started
        self.step += 1
        self._trained_s += step_s
        return Report(
            step=self.step,
            done=min(1.0, self.done),
            left_s=self._trained_s * (1 / self.done - 1) if self.done < 1 else 0.0,
            step_s=step_s,
            waited=feed.waited_s / (time.monotonic() - self._started_at),
            efficiency=operations / step_s / self._best_per_s,
            rate=rate,
            filled=filled,
            metrics=self._metrics,
        )

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch]) -> Report:
        """The averaged weights on these batches."""
        started = time.monotonic()
        metrics: Metrics = {}
        filled = []
        for batch in batches:
            metrics = _sum(metrics, self._measured(self._forward(self._averaged, batch), batch))
            filled.append(batch.filled)
        return Report(
            step=self.step,
            done=min(1.0, self.done),
            left_s=0.0,
            step_s=time.monotonic() - started,
            waited=0.0,
            efficiency=0.0,
            rate=0.0,
            filled=sum(filled) / max(1, len(filled)),
            metrics=metrics,
            held_out=True,
        )

    def checkpoint(self) -> Checkpoint:
        """As it stands."""
        moments = {
            name: self._optimizer.state.get(tensor, {"exp_avg": 0 * tensor, "exp_avg_sq": 0 * tensor})
            for name, tensor in self._weights.items()
        }
        return Checkpoint(
            step=self.step,
            trained_s=self._trained_s,
            settings=self.options.as_settings(),
            weights=self._weights,
            average=self._average,
            first_moment={name: moment["exp_avg"] for name, moment in moments.items()},
            second_moment={name: moment["exp_avg_sq"] for name, moment in moments.items()},
        )

    def _placed(self, state: State) -> State:
        return {name: tensor.detach().clone().to(self._device) for name, tensor in state.items()}

    def _make_optimizer(self, found: Checkpoint | None) -> torch.optim.AdamW:
        groups: dict[float, list[Tensor]] = {}
        for name, tensor in self._weights.items():
            share = next((share for part, share in RATES if part in name), 1.0)
            groups.setdefault(share, []).append(tensor)
        optimizer = torch.optim.AdamW(
            [{"params": tensors, "share": share} for share, tensors in groups.items()],
            betas=BETAS,
            weight_decay=0.0,
            fused=True,
        )
        if found is not None and found.step:
            for name, tensor in self._weights.items():
                optimizer.state[tensor] = {
                    "step": torch.tensor(float(found.step), device=self._device),
                    "exp_avg": found.first_moment[name].to(self._device),
                    "exp_avg_sq": found.second_moment[name].to(self._device),
                }
        return optimizer

    def _set_rates(self) -> float:
        """Warm-up by steps, then a cosine over the budget."""
        warm = min(1.0, (self.step + 1) / max(1, self.options.warmup_steps))
        cosine = (1 + math.cos(math.pi * min(1.0, self.done))) / 2
        rate = self.options.learning_rate * warm * (LEAST_RATE + (1 - LEAST_RATE) * cosine)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["share"]
        return rate

    def _update(self) -> None:
        weights = list(self._weights.values())
        length = torch.nn.utils.clip_grad_norm_(weights, self.options.clip)
        if not bool(length.isfinite()):
            raise ModelFailedError(
                f"the numbers of step {self.step + 1} are not finite: run the same command again, "
                "with a smaller --learning-rate in another folder if it comes back"
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        decay = min(self.options.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self._average.values()), weights, 1 - decay)

    def _forward(self, canvas: TrainableCanvas, batch: Batch) -> Said:
        def tensor(name: str) -> Tensor:
            return torch.from_numpy(getattr(batch, name)).to(self._device, non_blocking=True)

        read = canvas.read(tensor("ids"), tensor("context_counts"))
        hidden = canvas.forward(read, *(tensor(name) for name in ("reads", "positions", "sees")))
        ids = tensor("targets")
        taught = teach(
            read.hidden, self._head, tensor("teacher"), end_id=self._special.end, share=self.options.distil
        )
        return judge(hidden[tensor("scored")], self._head, Targets(ids, tensor("weights"), *taught))

    def _measured(self, said: Said, batch: Batch) -> Metrics:
        arrays = (batch.targets, batch.weights, batch.ranks)
        ids, weights, ranks = (torch.from_numpy(array).to(self._device) for array in arrays)
        return measure(said, ids, weights, ranks, end_id=self._special.end)


def device_of(options: TrainOptions) -> torch.device:
    """The device that is named, or the best there is."""
    if options.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(options.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        device = torch.device("meta")
    if device.type not in speed.PROBE_SIZE:
        raise BadRequestError(
            f"there is no device {options.device} here to train on: use cpu, cuda or cuda:N"
        )
    return device


def _sum(first: Metrics, second: Metrics) -> Metrics:
    return {name: first.get(name, Count()) + count for name, count in second.items()}
