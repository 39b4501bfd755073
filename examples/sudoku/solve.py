"""Solves puzzles with Tenon's own loop: a board is a canvas, its clues are decided slots, its blanks are open ones.

Two networks on the same puzzles: one fills what it is surest of first, the other the cells in reading order.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from generate import BLANK, CELLS, Board, is_solution
from model import Order, SudokuNetwork, load
from torch import Tensor

from tenon_engine.canvas import Canvas
from tenon_engine.denoise import Track, denoise
from tenon_engine.edges import Edges
from tenon_engine.models.toy import ByteTokenizer
from tenon_engine.plan import ParallelPlan, Row
from tenon_engine.sampler import above_threshold
from tenon_engine.view import OPEN, View

THRESHOLD = 0.99  # surer cells are filled at once; else the surest one
PLANS = {
    Order.ANY: ParallelPlan(above_threshold, THRESHOLD, reads_itself=True),
    Order.LEFT: ParallelPlan(above_threshold, THRESHOLD, window=1, reads_itself=True),
}
NO_END = -1  # a board has no end before its last cell
TOGETHER = 50  # boards of one forward


class BoardNetwork:
    """What the loop asks of a model, on boards; the context of a row is its puzzle."""

    def __init__(self, network: SudokuNetwork) -> None:
        self._network = network

    def forward(self, passes: Sequence[tuple[Board, View]]) -> list[Tensor]:
        """Logits f32 [scored, 10] per row; a blank is never the answer."""
        puzzles = torch.tensor([puzzle for puzzle, _ in passes])
        boards = torch.tensor([[BLANK if i == OPEN else i for i in view.reads] for _, view in passes])
        logits = self._network(puzzles, boards)
        logits[..., BLANK] = -torch.inf
        return [logits[row, list(view.scored)] for row, (_, view) in enumerate(passes)]


def solve(network: SudokuNetwork, puzzles: Sequence[Board]) -> tuple[list[list[int]], int]:
    """A full board for each puzzle, right or wrong, and the number of forwards that the last one took."""
    tracks = [Track(Row(_canvas(puzzle), _no_edges(), history=()), puzzle) for puzzle in puzzles]
    steps = max(denoise(BoardNetwork(network), PLANS[network.order], tracks), default=0)
    return [track.row.canvas.text_ids for track in tracks], steps


def _canvas(puzzle: Board) -> Canvas:
    canvas = Canvas(CELLS, end_id=NO_END)
    for cell, digit in enumerate(puzzle):
        if digit != BLANK:
            canvas.commit(cell, digit, 1.0)
    return canvas


def _no_edges() -> Edges:
    return Edges(ByteTokenizer(), left=b"", right=b"", end_id=NO_END)


def report(network: SudokuNetwork, puzzles: Sequence[Board]) -> str:
    """How many are solved, by their number of clues."""
    solved: dict[int, list[bool]] = {}
    steps = 0
    for start in range(0, len(puzzles), TOGETHER):
        batch = puzzles[start : start + TOGETHER]
        boards, batch_steps = solve(network, batch)
        steps = max(steps, batch_steps)
        for puzzle, board in zip(batch, boards, strict=True):
            solved.setdefault(CELLS - puzzle.count(BLANK), []).append(is_solution(board, puzzle))
    everything = [right for found in solved.values() for right in found]
    by_clues = ", ".join(f"{clues}: {np.mean(found):.0%}" for clues, found in sorted(solved.items()))
    return (
        f"{network.order.value}: {np.mean(everything):.1%} of {len(everything)} puzzles, in {steps} forwards at most"
        f"\n  by clues: {by_clues}"
    )


def drawn(board: Board) -> str:
    """The board as nine lines."""
    signs = "".join("." if digit == BLANK else str(digit) for digit in board)
    return "\n".join(
        " ".join(signs[start : start + 3] for start in range(at, at + 9, 3)) for at in range(0, CELLS, 9)
    )


def main() -> None:
    """Solve a file of puzzles with each network, and show one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("puzzles", type=Path, help="a file that generate.py wrote")
    parser.add_argument("any", type=Path, help="weights of the network that fills in any order")
    parser.add_argument("left", type=Path, nargs="?", help="weights of the one that fills from left to right")
    args = parser.parse_args()
    puzzles: list[list[int]] = np.load(args.puzzles)[:, 0].tolist()
    network = load(args.any, Order.ANY)
    (board,), _ = solve(network, puzzles[:1])
    print(drawn(puzzles[0]), drawn(board), report(network, puzzles), sep="\n\n", flush=True)
    if args.left:
        print(report(load(args.left, Order.LEFT), puzzles))


if __name__ == "__main__":
    main()
