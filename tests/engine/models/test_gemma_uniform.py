"""Denoising of uniform noise with a network of a few lines: what is accepted, opened again, and decided at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tenon_engine.denoise import Track, denoise
from tenon_engine.edges import Edges
from tenon_engine.errors import BadRequestError, ModelFailedError
from tenon_engine.models.gemma.network import Frame
from tenon_engine.models.gemma.prefix_cache import PrefixCache
from tenon_engine.models.gemma.search import Candidate, lengths, search
from tenon_engine.models.gemma.uniform import (
    MEAN_ENTROPY_MAX,
    NO_END,
    Noise,
    Pace,
    UniformCanvas,
    UniformPlan,
    UniformRow,
    plan_named,
)
from tenon_engine.models.toy import ByteTokenizer
from tenon_engine.view import Constraint, View
from tenon_engine.wire import SlotState

VOCABULARY = 256
EDGES = Edges(ByteTokenizer(), left=b"", right=b"", end_id=NO_END)

Says = Callable[
    [View, int], Tensor
]  # of a row's view and the number of its forward: logits [scored, vocabulary]


class Scripted:
    """Says what it is told to, and remembers what it was shown."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self.views: list[View] = []

    def forward(self, passes: Sequence[tuple[None, View]]) -> list[Tensor]:
        found = []
        for _, view in passes:
            found.append(self._says(view, len(self.views)))
            self.views.append(view)
        return found


def sure_of(text: bytes, sharpness: float = 50.0) -> Tensor:
    logits = torch.zeros(len(text), VOCABULARY)
    logits[range(len(text)), list(text)] = sharpness
    return logits


def random_logits(view: View, number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(len(view.scored), VOCABULARY, generator=generator) * 4


def row_of(
    size: int, *, fixed: bytes = b"", steps: int = 8, constraint: Constraint | None = None
) -> UniformRow:
    canvas = UniformCanvas(size, fixed=list(fixed))
    noise = Noise(len(canvas), vocabulary=VOCABULARY, seed=1)
    return UniformRow(canvas, EDGES, (), pace=Pace(steps), noise=noise, constraint=constraint)


def run(row: UniformRow, says: Says, plan: UniformPlan | None = None, *, seed: int | None = None) -> Scripted:
    network = Scripted(says)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    track = Track(row, None, temperature=0.0 if seed is None else 1.0, generator=generator)
    list(denoise(network, plan or UniformPlan(), [track]))
    return network


def test_a_text_that_is_certain_twice_is_decided() -> None:
    row = row_of(5)
    network = run(row, lambda view, number: sure_of(b"hello"))
    assert len(network.views) == 2
    assert (bytes(row.canvas.text_ids), row.canvas.ended, row.canvas.decided_count) == (b"hello", True, 5)
    assert row.canvas.confidence == pytest.approx(1.0)


def test_a_text_that_changes_goes_on_until_the_steps_are_used_up() -> None:
    row = row_of(4, steps=6)
    network = run(row, lambda view, number: sure_of(b"abcd" if number % 2 else b"wxyz"))
    assert len(network.views) == 6
    assert bytes(row.canvas.text_ids) == b"abcd"


def test_fixed_slots_do_not_make_a_canvas_look_certain() -> None:
    row = row_of(2, fixed=b"x" * 60)
    entropy = MEAN_ENTROPY_MAX * 4  # of both free slots; over all slots the mean would be far below the limit

    def says(view: View, number: int) -> Tensor:
        logits = sure_of(b"ab", 11.6)
        found = torch.special.entr(logits.softmax(-1)).sum(-1).mean()
        assert float(found) == pytest.approx(entropy, rel=0.5)
        return logits

    assert len(run(row, says).views) == 8


def test_nothing_is_decided_before_all_is_and_what_is_not_accepted_is_open_again() -> None:
    row, plan = row_of(6, fixed=b"((", steps=5), UniformPlan(bound=0.5)
    network = Scripted(random_logits)
    seen = []
    for step in denoise(network, plan, [Track(row, None)]):
        states, ids = row.canvas.states, row.canvas.ids
        assert (ids[:2], states[:2]) == ([40, 40], [SlotState.DECIDED] * 2)
        assert len(row.canvas.text_ids) == 8  # any-time: a whole text after every step
        if step < 5:
            assert SlotState.DECIDED not in states[2:]
            seen.append({p for p in range(2, 8) if states[p] is SlotState.PROVISIONAL})
            assert all((ids[p] is None) == (states[p] is SlotState.OPEN) for p in range(8))
    assert row.canvas.states == [SlotState.DECIDED] * 8
    assert any(earlier - later for earlier, later in itertools.pairwise(seen))
    assert all(seen)  # at least the surest slot is accepted


def test_open_slots_are_shown_as_new_noise_in_every_step() -> None:
    network = run(row_of(40, steps=4), random_logits, UniformPlan(bound=0.0))
    shown = [view.reads for view in network.views]
    changed = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in itertools.pairwise(shown)]
    assert min(changed) > 30
    assert len({token for reads in shown for token in reads}) > 60


def test_an_accepted_slot_is_read_as_what_was_accepted() -> None:
    network = run(row_of(3, steps=3), lambda view, number: sure_of(b"abc" if number < 2 else b"xyz"))
    assert [bytes(view.reads) for view in network.views[1:]] == [b"abc", b"abc"][: len(network.views) - 1]


def test_the_first_free_slot_keeps_to_its_constraint() -> None:
    only = Constraint(only=torch.tensor([65, 66]).numpy())
    row = row_of(3, fixed=b"\n", constraint=only)
    run(row, random_logits)
    assert row.canvas.text_ids[1] in (65, 66)
    assert list(UniformPlan().look(row_of(3, constraint=only)).constraints) == [
        only,
        None,
        None,
    ]


def test_confidence_is_that_of_the_distribution_without_temperature() -> None:
    row = row_of(1, steps=1)
    raw = torch.zeros(1, VOCABULARY)
    raw[0, 7] = 3.0
    run(row, lambda view, number: raw / Pace(1).temperature)
    assert row.canvas.confidence == pytest.approx(float(raw.softmax(-1)[0, 7]), rel=1e-5)


@given(st.integers(0, 2**63 - 1))
def test_a_seed_gives_the_same_text_again(seed: int) -> None:
    texts = []
    for _ in range(2):
        row = row_of(6, steps=3)
        run(row, random_logits, seed=seed)
        texts.append(row.canvas.text_ids)
    assert texts[0] == texts[1]


def test_not_a_number_is_an_error() -> None:
    with pytest.raises(ModelFailedError):
        run(row_of(3), lambda view, number: torch.full((3, VOCABULARY), torch.nan))


def test_the_temperature_falls_from_the_first_step_to_the_last() -> None:
    found = [Pace(8, step).temperature for step in range(8)]
    assert found[0] == pytest.approx(0.8)
    assert found[-1] == pytest.approx(0.45)
    assert found == sorted(found, reverse=True)


def test_a_later_canvas_goes_on_where_the_earlier_one_stopped() -> None:
    canvas = UniformCanvas(2, before=[1, 2], confidence=0.5)
    canvas.improve([3, 4], [0.5, 1.0], {})
    assert (canvas.text_ids, canvas.confidence) == ([1, 2, 3, 4], 0.25)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("confirm", UniformPlan()),
        ("entropy", UniformPlan()),
        ("entropy:0.3", UniformPlan(0.3)),
        ("entropy:0:20", UniformPlan(0.0, 20)),
    ],
)
def test_a_sampler_has_a_name(name: str, plan: UniformPlan) -> None:
    assert plan_named(name, default="confirm") == plan


@pytest.mark.parametrize(
    "name", ["left", "entropy:x", "entropy:0.1:0", "entropy:-1", "entropy:nan", "entropy:1:2:3"]
)
def test_other_samplers_are_refused_with_the_one_there_is(name: str) -> None:
    with pytest.raises(BadRequestError, match=r"entropy\[:BOUND\[:STEPS\]\]"):
        plan_named(name, default="confirm")


@given(st.integers(1, 1024))
def test_lengths_are_a_few_up_to_the_most_there_may_be(most: int) -> None:
    found = lengths(most)
    assert found[0] == most
    assert found == sorted(set(found), reverse=True)
    assert min(found) >= 1
    assert lengths(32) == [32, 16, 8, 4]


class Judge:
    """Finds every text certain, and of all lengths one that the suffix fits, once it reads what was written."""

    def __init__(self, *, at_first: int, written: int) -> None:
        self._at_first = at_first
        self._written = written
        self.rows: list[int] = []

    def forward(self, passes: Sequence[tuple[Frame, View]]) -> list[Tensor]:
        self.rows.append(len(passes))
        for frame, view in passes:
            best = self._at_first if view.scored else self._written
            frame.suffix_log_probability = -abs(len(view.reads) - best) - 0.1
        return [sure_of(b"x" * len(view.scored)) for _, view in passes]


def candidates_of(sizes: Sequence[int]) -> list[Candidate]:
    rows = [row_of(size) for size in sizes]
    return [Track(row, Frame(PrefixCache(), [1], row.pace)) for row in rows]


def test_the_suffix_picks_the_length_after_the_first_step_and_at_the_end() -> None:
    judge = Judge(at_first=5, written=8)
    ranked = list(search(judge, UniformPlan(), candidates_of([32, 16, 8, 4]), wanted=1))
    assert judge.rows == [4, 2, 2]
    assert [[len(each.row.canvas) for each in kept] for kept in ranked] == [[4, 8], [4, 8], [8, 4]]


def test_as_many_candidates_are_left_as_are_wanted() -> None:
    judge = Judge(at_first=4, written=4)
    *_, last = search(judge, UniformPlan(), candidates_of([32, 16, 8, 4]), wanted=3)
    assert [len(each.row.canvas) for each in last] == [4, 8, 16]


def test_where_there_is_no_choice_no_forward_is_spent_on_one() -> None:
    judge = Judge(at_first=1, written=1)
    assert len(list(search(judge, UniformPlan(), candidates_of([1]), wanted=1))) == 2
    assert judge.rows == [1, 1]
