"""The network: a small transformer whose attention heads look along rows, along columns, and within boxes.

One class for two ways to fill a board: in any order, where every cell sees every other, and from left to right, where
a cell sees the puzzle and the cells before it. Knows neither samplers nor training.
"""

from __future__ import annotations

import enum
from pathlib import Path

import torch
from generate import BOX, CELLS, COLUMN, ROW
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

WIDTH, LAYERS, HEADS = 96, 6, 6
DIGITS = 10  # 0 is a blank


class Order(enum.Enum):
    """In which order a network was trained to fill."""

    ANY = "any"
    LEFT = "left"


class SudokuNetwork(nn.Module):
    """Logits for every cell from what is known of a board. An entry holds one cell's digit and predicts one cell's."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order
        holds, predicts, sees = _entries(order)
        units = torch.tensor([ROW, COLUMN, BOX])
        shared = units[:, predicts, None] == units[:, None, holds]  # [3, entries, entries]
        self.register_buffer("visible", (shared & sees).repeat_interleave(HEADS // 3, 0), persistent=False)
        self.embedding = nn.Embedding(DIGITS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, DIGITS)

    def forward(self, puzzles: Tensor, boards: Tensor) -> Tensor:
        """Logits [boards, 81, 10] from the clues and from all that is known, both [boards, 81].

        From left to right, a cell's logits come from the puzzle and the board's cells before it.
        """
        digits = boards
        if self.order is Order.LEFT:
            digits = torch.cat([puzzles, torch.zeros_like(boards[:, :1]), boards[:, :-1]], dim=1)
        x = self.embedding(digits)
        for layer in self.layers:
            x = layer(x, self.visible)
        logits: Tensor = self.head(self.norm(x[:, -CELLS:]))
        return logits

    def save(self, path: Path) -> None:
        """Half precision is enough."""
        halves = {name: tensor.half() for name, tensor in self.state_dict().items()}
        save_file(halves, path)


class Layer(nn.Module):
    """Attention, then a multilayer perceptron, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """[boards, entries, width]; `visible` [heads, entries, entries]."""
        parts = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=visible)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        changed: Tensor = self.down(gelu(self.up(self.mlp_norm(x))))
        return x + changed


def load(path: Path, order: Order) -> SudokuNetwork:
    """A trained network."""
    network = SudokuNetwork(order)
    network.load_state_dict(load_file(path))
    return network.eval()


def _entries(order: Order) -> tuple[Tensor, Tensor, Tensor]:
    """Which cell each entry holds, which it predicts, and whom it sees (before heads look along their units).

    From left to right there are two entries a cell: one of the puzzle, which sees the puzzle, and one of the board,
    which holds the cell before it and sees the puzzle and the board up to there.
    """
    cells = torch.arange(CELLS)
    if order is Order.ANY:
        return cells, cells, torch.ones(CELLS, CELLS, dtype=torch.bool)
    sees = torch.ones(2 * CELLS, 2 * CELLS, dtype=torch.bool).tril()
    sees[:CELLS, :CELLS] = True
    return torch.cat([cells, cells.roll(1)]), torch.cat([cells, cells]), sees
