"""Sudoku puzzles: a generator, a solver by search, the symmetries of the grid, and a checker that knows none of them.

A board is 81 digits in reading order, 0 where a cell is blank. Writes sets of a puzzle and its only solution.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Board = Sequence[int]
Boards = npt.NDArray[np.int8]  # [sets, boards of a set, 81]

CLUES_MIN, CLUES_MAX = 30, 40
CELLS = 81
BLANK = 0
ROW = [cell // 9 for cell in range(CELLS)]
COLUMN = [cell % 9 for cell in range(CELLS)]
BOX = [cell // 27 * 3 + cell % 9 // 3 for cell in range(CELLS)]


def new_sets(count: int, chance: random.Random, *, apart_from: Collection[object] = ()) -> Boards:
    """Puzzles with their solutions, [count, 2, 81]; none is a puzzle of the orbits `apart_from` in disguise."""
    sets: list[list[list[int]]] = []
    while len(sets) < count:
        solution = new_solution(chance)
        if orbit(solution) not in apart_from:
            sets.append([new_puzzle(solution, chance.randint(CLUES_MIN, CLUES_MAX), chance), solution])
    return np.array(sets, dtype=np.int8)


def new_solution(chance: random.Random) -> list[int]:
    """A full board, drawn cell by cell."""
    return next(solutions([BLANK] * CELLS, chance))


def new_puzzle(solution: Board, clue_count: int, chance: random.Random) -> list[int]:
    """`solution` with cells blanked in random order while the solution stays the only one.

    Down to `clue_count` clues, or to the fewest that this order allows.
    """
    puzzle = list(solution)
    left = CELLS
    for cell in chance.sample(range(CELLS), CELLS):
        if left == clue_count:
            break
        puzzle[cell] = BLANK
        if is_unique(puzzle):
            left -= 1
        else:
            puzzle[cell] = solution[cell]
    return puzzle


def is_unique(puzzle: Board) -> bool:
    """True when the puzzle has exactly one solution."""
    return sum(1 for _ in itertools.islice(solutions(puzzle), 2)) == 1


def solutions(puzzle: Board, chance: random.Random | None = None) -> Iterator[list[int]]:
    """All solutions, found one by one; in random order where there is a `chance`."""
    used = [[0] * 9 for _ in range(3)]
    for cell, digit in enumerate(puzzle):
        if digit != BLANK:
            if _used(used, cell) >> digit & 1:
                return
            _flip(used, cell, digit)
    yield from _search(list(puzzle), [c for c in range(CELLS) if puzzle[c] == BLANK], used, chance)


def _search(
    board: list[int], blanks: list[int], used: list[list[int]], chance: random.Random | None
) -> Iterator[list[int]]:
    """Try the blank with the fewest candidates first (`used` has a bit per digit, of rows, columns and boxes)."""
    if not blanks:
        yield list(board)
        return
    cell = max(blanks, key=lambda c: _used(used, c).bit_count())
    digits = [d for d in range(1, 10) if not _used(used, cell) >> d & 1]
    if chance:
        chance.shuffle(digits)
    rest = [c for c in blanks if c != cell]
    for digit in digits:
        board[cell] = digit
        _flip(used, cell, digit)
        yield from _search(board, rest, used, chance)
        _flip(used, cell, digit)
    board[cell] = BLANK


def _used(used: list[list[int]], cell: int) -> int:
    return used[0][ROW[cell]] | used[1][COLUMN[cell]] | used[2][BOX[cell]]


def _flip(used: list[list[int]], cell: int, digit: int) -> None:
    for kind, units in zip(used, (ROW, COLUMN, BOX), strict=True):
        kind[units[cell]] ^= 1 << digit


def is_solution(board: Board, puzzle: Board) -> bool:
    """True when `board` keeps every clue and every row, column and box holds the nine digits."""
    grid = [list(board[start : start + 9]) for start in range(0, CELLS, 9)]
    boxes = [[grid[r + i][c + j] for i in range(3) for j in range(3)] for r in (0, 3, 6) for c in (0, 3, 6)]
    units = [*grid, *map(list, zip(*grid, strict=True)), *boxes]
    keeps_clues = all(clue in (BLANK, digit) for clue, digit in zip(puzzle, board, strict=True))
    return keeps_clues and all(sorted(unit) == list(range(1, 10)) for unit in units)


def moved(boards: Boards, chance: np.random.Generator) -> Boards:
    """Boards under random symmetries, those of a set under the same one.

    Digits are renamed, bands, stacks and the rows and columns within them permuted, rows and columns exchanged.
    """
    count = len(boards)
    rows, columns = _shuffled_lines(count, chance), _shuffled_lines(count, chance)
    cells = rows[:, :, None] * 9 + columns[:, None, :]
    turned = chance.random(count) < 0.5
    cells[turned] = cells[turned].swapaxes(1, 2)
    names = np.zeros((count, 10), dtype=boards.dtype)
    names[:, 1:] = _shuffled(count, 9, chance) + 1
    placed = np.take_along_axis(boards, cells.reshape(count, 1, CELLS), 2)
    return names[np.arange(count)[:, None, None], placed]


def _shuffled_lines(count: int, chance: np.random.Generator) -> npt.NDArray[np.int64]:
    """Orders of nine rows in which each three stay together, [count, 9]."""
    bands = _shuffled(count, 3, chance)
    within = np.stack([_shuffled(count, 3, chance) for _ in range(3)], axis=1)
    lines: npt.NDArray[np.int64] = (bands[:, :, None] * 3 + within).reshape(count, 9)
    return lines


def _shuffled(count: int, size: int, chance: np.random.Generator) -> npt.NDArray[np.int64]:
    return chance.random((count, size)).argsort(axis=1)


def orbit(solution: Board) -> tuple[object, ...]:
    """A key that no symmetry changes: boards with different keys are different whatever is renamed or permuted.

    Two rows of a band, read as a permutation of the digits, have cycles; so have two columns of a stack.
    """
    grid = np.array(solution).reshape(9, 9)
    return tuple(sorted(_cycles(side) for side in (grid, grid.T)))


def _cycles(grid: npt.NDArray[np.int64]) -> tuple[object, ...]:
    bands = []
    for band in range(0, 9, 3):
        pairs = itertools.combinations(range(band, band + 3), 2)
        bands.append(tuple(sorted(_cycle_lengths(grid[a], grid[b]) for a, b in pairs)))
    return tuple(sorted(bands))


def _cycle_lengths(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> tuple[int, ...]:
    to = dict(zip(first.tolist(), second.tolist(), strict=True))
    lengths = []
    while to:
        digit, length = next(iter(to)), 0
        while digit in to:
            digit, length = to.pop(digit), length + 1
        lengths.append(length)
    return tuple(sorted(lengths))


def main() -> None:
    """Write a file of puzzles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="an .npy file")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--apart-from", type=Path, help="a file whose puzzles may not come again in disguise")
    args = parser.parse_args()
    known = {orbit(solution) for _, solution in np.load(args.apart_from)} if args.apart_from else ()
    np.save(args.file, new_sets(args.count, random.Random(args.seed), apart_from=known))


if __name__ == "__main__":
    main()
