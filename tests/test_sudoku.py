"""The Sudoku example: its puzzles are puzzles, its checker is strict, and its solver never touches a clue."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

EXAMPLE = Path(__file__).parents[1] / "examples" / "sudoku"
COUNT = 12


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield {name: importlib.import_module(name) for name in ("generate", "model", "solve")}


@pytest.fixture(scope="module")
def generate(example: dict[str, ModuleType]) -> ModuleType:
    return example["generate"]


@pytest.fixture(scope="module")
def sets(generate: ModuleType) -> list[list[list[int]]]:
    found: list[list[list[int]]] = generate.new_sets(COUNT, random.Random(3)).tolist()
    return found


def clue_count(puzzle: list[int]) -> int:
    return sum(digit > 0 for digit in puzzle)


def test_every_puzzle_has_one_solution_and_as_many_clues_as_it_should(
    generate: ModuleType, sets: list[list[list[int]]]
) -> None:
    for puzzle, solution in sets:
        assert list(generate.solutions(puzzle)) == [solution]
        assert generate.is_solution(solution, puzzle)
        assert generate.CLUES_MIN <= clue_count(puzzle) <= generate.CLUES_MAX


def test_one_clue_less_may_be_one_too_few(generate: ModuleType) -> None:
    chance = random.Random(5)
    least = generate.new_puzzle(generate.new_solution(chance), 17, chance)
    for cell in range(generate.CELLS):
        if least[cell]:
            fewer = [*least[:cell], generate.BLANK, *least[cell + 1 :]]
            assert not generate.is_unique(fewer)


def test_clues_that_contradict_each_other_have_no_solution(generate: ModuleType) -> None:
    assert list(generate.solutions([5, 0, 5] + [0] * 78)) == []


def test_the_checker_sees_a_changed_clue_a_blank_and_a_digit_twice(
    generate: ModuleType, sets: list[list[list[int]]]
) -> None:
    puzzle, solution = sets[0]
    renamed = [digit % 9 + 1 for digit in solution]
    assert not generate.is_solution(renamed, puzzle)
    assert generate.is_solution(renamed, [0] * 81)
    for cell in range(81):
        for digit in range(10):
            changed = [*solution[:cell], digit, *solution[cell + 1 :]]
            assert generate.is_solution(changed, puzzle) == (digit == solution[cell])


def test_a_board_of_right_rows_and_columns_needs_right_boxes(generate: ModuleType) -> None:
    cyclic = [(row + column) % 9 + 1 for row in range(9) for column in range(9)]
    assert not generate.is_solution(cyclic, [0] * 81)


def test_a_symmetry_keeps_a_puzzle_a_puzzle_and_its_orbit(
    generate: ModuleType, sets: list[list[list[int]]]
) -> None:
    boards = np.array(sets, dtype=np.int8)
    moved = generate.moved(boards, np.random.default_rng(7)).tolist()
    assert moved != sets
    for (puzzle, solution), (before, solution_before) in zip(moved, sets, strict=True):
        assert list(generate.solutions(puzzle)) == [solution]
        assert clue_count(puzzle) == clue_count(before)
        assert generate.orbit(solution) == generate.orbit(solution_before)


def test_puzzles_apart_from_others_are_of_other_orbits(
    generate: ModuleType, sets: list[list[list[int]]]
) -> None:
    known = {generate.orbit(solution) for _, solution in sets}
    assert len(known) == COUNT
    apart = generate.new_sets(
        COUNT, random.Random(3), apart_from=known
    )  # the same chance: the same boards come first
    assert not known & {generate.orbit(solution) for _, solution in apart.tolist()}


@pytest.mark.parametrize("order", ["any", "left"])
def test_a_network_that_knows_nothing_fills_every_blank_and_changes_no_clue(
    example: dict[str, ModuleType], sets: list[list[list[int]]], order: str
) -> None:
    torch.manual_seed(11)
    network = example["model"].SudokuNetwork(example["model"].Order(order)).eval()
    puzzles = [puzzle for puzzle, _ in sets[:3]]
    boards, _ = example["solve"].solve(network, puzzles)
    for puzzle, board in zip(puzzles, boards, strict=True):
        assert len(board) == 81
        assert all(clue in (0, digit) and 1 <= digit <= 9 for clue, digit in zip(puzzle, board, strict=True))


def test_from_left_to_right_a_cell_knows_the_clues_and_what_stands_before_it_alone(
    example: dict[str, ModuleType], sets: list[list[list[int]]]
) -> None:
    torch.manual_seed(11)
    network = example["model"].SudokuNetwork(example["model"].Order.LEFT).eval()
    puzzle, solution = torch.tensor(sets[0])
    cell = int((puzzle == 0).nonzero()[20])
    with torch.inference_mode():
        usual = network(puzzle[None], solution[None])[0]
        later = network(puzzle[None], torch.cat([solution[:cell], solution[cell:] % 9 + 1])[None])[0]
        earlier = network(puzzle[None], torch.cat([solution[:cell] % 9 + 1, solution[cell:]])[None])[0]
    assert torch.equal(usual[: cell + 1], later[: cell + 1])
    assert not torch.equal(usual[cell], earlier[cell])
