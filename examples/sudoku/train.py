"""Trains a network on puzzles, for a budget of processor time: to fill in any order, or from left to right.

What is blank is masked, as in an absorbing diffusion model, and the loss is on what is masked. From left to right, the
same cells count, each predicted from the puzzle and the solution before it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from generate import BLANK, Boards, moved
from model import Order, SudokuNetwork
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

BATCH = 64
LEARNING_RATE, WARM_UP_STEPS, LAST_RATE = 1e-3, 100, 0.02
SAVE_SECONDS = 120.0


class Training:
    """A network on its way, and what it takes to go on after a break."""

    def __init__(self, order: Order, sets: Boards, seconds: float) -> None:
        self.network = SudokuNetwork(order)
        self._optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98)
        )
        self._sets = sets
        self._seconds = seconds
        self.spent = 0.0  # seconds of processor time
        self.steps = 0

    def run(self, seconds: float) -> float:
        """Train for so long, or to the end of the budget; the mean loss."""
        chance = np.random.default_rng(self.steps)
        losses = []
        started, spent = time.process_time(), self.spent
        while self.spent < min(self._seconds, spent + seconds):
            warm_up = (self.steps + 1) / WARM_UP_STEPS
            rate = LEARNING_RATE * min(warm_up, max(LAST_RATE, 1 - self.spent / self._seconds))
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            loss = self._loss(chance)
            self._optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._optimizer.step()
            losses.append(loss.item())
            self.steps += 1
            self.spent = spent + time.process_time() - started
        return float(np.mean(losses))

    def _loss(self, chance: np.random.Generator) -> Tensor:
        chosen = self._sets[chance.integers(0, len(self._sets), BATCH)]
        puzzles, solutions = torch.from_numpy(moved(chosen, chance)).long().unbind(1)
        boards = solutions
        masked = puzzles == BLANK
        if self.network.order is Order.ANY:
            masked &= torch.rand(puzzles.shape) < torch.rand(BATCH, 1)
            boards = solutions.masked_fill(masked, BLANK)
        return cross_entropy(self.network(puzzles, boards)[masked], solutions[masked])

    def save(self, path: Path) -> None:
        """What `resume` needs."""
        state = {"spent": self.spent, "steps": self.steps, "optimizer": self._optimizer.state_dict()}
        torch.save(state | {"network": self.network.state_dict()}, path)

    def resume(self, path: Path) -> None:
        """Go on where `save` left off."""
        state = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.spent, self.steps = state["spent"], state["steps"]


def main() -> None:
    """Train, saving on the way; a second call goes on where the first one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("order", type=Order, metavar="any|left")
    parser.add_argument("puzzles", type=Path, help="a file that generate.py wrote")
    parser.add_argument("weights", type=Path, help="where to save the network (.safetensors)")
    parser.add_argument("--minutes", type=float, default=25, help="of processor time, on one thread")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    training = Training(args.order, np.load(args.puzzles), args.minutes * 60)
    state = args.weights.with_suffix(".training")
    if state.exists():
        training.resume(state)
    while training.spent < args.minutes * 60:
        loss = training.run(SAVE_SECONDS)
        training.save(state)
        print(f"{training.spent / 60:.1f} minutes, {training.steps} steps: loss {loss:.4f}", flush=True)
    training.network.save(args.weights)


if __name__ == "__main__":
    main()
