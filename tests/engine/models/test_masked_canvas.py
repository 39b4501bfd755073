"""Canvases of masked models: one that grows and shrinks, one that ends where a suffix begins, and their plan."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.config import EngineConfig
from tenon_engine.edges import Edges
from tenon_engine.errors import BadRequestError
from tenon_engine.models.masked.canvas import BoundedCanvas, GrowingCanvas
from tenon_engine.models.masked.lengths import LENGTHS_MAX, ladder, length_bias, rungs_around
from tenon_engine.models.masked.plan import MaskedPlan, MaskedRow, masked_plan
from tenon_engine.models.toy import ByteTokenizer
from tenon_engine.plan import ParallelPlan
from tenon_engine.sampler import predict
from tenon_engine.view import OPEN
from tenon_engine.wire import SlotState

FOO, OPENING, CLOSING, EXPAND, DELETE = ord("f"), ord("("), ord(")"), 256, 257
VOCABULARY = 258


def growing(size: int, size_max: int = 16) -> GrowingCanvas:
    return GrowingCanvas(size, size_max=size_max, expand_id=EXPAND, delete_id=DELETE)


def row_of(canvas: GrowingCanvas | BoundedCanvas, *, rank: int = 0) -> MaskedRow:
    edges = Edges(ByteTokenizer(), left=b"", right=b"", end_id=DELETE)
    return MaskedRow(canvas, edges, history=(), rank=rank)


def step(plan: MaskedPlan, row: MaskedRow, tokens: dict[int, int], *, sure: float = 12.0) -> None:
    """One step of a model that is sure of these ids in these slots, and of nothing elsewhere."""
    view = plan.look(row)
    logits = torch.zeros(len(view.scored), VOCABULARY)
    for index, place in enumerate(view.scored):
        constraint = view.constraints[index]
        if place in tokens:
            logits[index, tokens[place]] = sure + place  # the right ones surest
        if constraint is not None and constraint.never is not None:
            logits[index, constraint.never] = -torch.inf
    plan.decide(row, view, predict(logits))


def test_deletes_leave_the_text_they_stand_in() -> None:
    canvas = growing(5)
    row = row_of(canvas)
    step(masked_plan("threshold"), row, {0: FOO, 1: DELETE, 2: OPENING, 3: DELETE, 4: CLOSING})
    assert bytes(canvas.text_ids) == b"f()"
    assert (canvas.finished, canvas.ended, canvas.decided_count) == (True, True, 5)


def test_deletes_at_the_end_are_dropped() -> None:
    canvas = growing(4)
    step(masked_plan("threshold"), row_of(canvas), {0: FOO, 1: DELETE, 2: DELETE, 3: DELETE})
    assert canvas.text_ids == [FOO]
    assert canvas.ended


def test_an_expanded_slot_is_two_open_ones_where_it_stood() -> None:
    canvas = growing(3)
    row = row_of(canvas)
    step(masked_plan("threshold"), row, {0: FOO, 1: EXPAND, 2: CLOSING})
    assert canvas.ids == [FOO, None, None, CLOSING]
    assert masked_plan("threshold").look(row).reads == (FOO, OPEN, OPEN, CLOSING)
    step(masked_plan("threshold"), row, {1: OPENING, 2: DELETE})
    assert bytes(canvas.text_ids) == b"f()"


def test_a_full_canvas_is_not_expanded() -> None:
    canvas = growing(2, size_max=3)
    row = row_of(canvas)
    step(masked_plan("threshold"), row, {0: EXPAND, 1: EXPAND})
    assert canvas.ids == [None, None, None]
    step(masked_plan("threshold"), row, {0: EXPAND, 1: EXPAND, 2: EXPAND})
    assert len(canvas) == 3
    assert canvas.decided_count == 2  # one expansion, and one slot all the same


def test_a_model_that_opens_and_closes_the_same_slot_for_ever_comes_to_an_end() -> None:
    canvas = growing(1, size_max=4)
    row = row_of(canvas)
    for _ in range(64):
        if canvas.finished:
            break
        step(masked_plan("topk:1"), row, dict.fromkeys(range(4), EXPAND if len(canvas) == 1 else DELETE))
    assert canvas.finished


@given(st.integers(1, 6), st.integers(1, 12), st.data())
def test_decided_slots_keep_ids_and_order_and_the_length_moves_by_what_was_expanded_and_deleted(
    size: int, size_max: int, data: st.DataObject
) -> None:
    canvas = growing(size, size_max)
    most = max(size, size_max)
    while not canvas.finished:
        before, length = [i for i in canvas.ids if i is not None], len(canvas)
        open_places = [place for place, state in enumerate(canvas.states) if state is SlotState.OPEN]
        place = data.draw(st.sampled_from(open_places))
        token = data.draw(st.sampled_from([FOO, OPENING, CLOSING, EXPAND, DELETE]))
        could_expand = canvas.can_expand
        canvas.commit(place, token, 0.5)
        grown = {EXPAND: int(could_expand), DELETE: -1}.get(token, 0)
        assert len(canvas) == length + grown <= most
        now = [i for i in canvas.ids if i is not None]
        remaining = iter(now)
        assert all(each in remaining for each in before)
        assert len(now) == len(before) + (token not in (EXPAND, DELETE))
        assert len(canvas.states) == len(canvas.confidences) == len(canvas)
    assert not {EXPAND, DELETE} & set(canvas.text_ids)
    assert canvas.ended


def test_a_canvas_before_a_suffix_has_ended_when_it_is_full_or_when_the_model_ends_it() -> None:
    full, cut = BoundedCanvas(2, end_id=DELETE), BoundedCanvas(3, end_id=DELETE)
    full.commit(1, FOO, 1.0)
    assert not full.ended
    full.commit(0, FOO, 1.0)
    cut.commit(1, DELETE, 1.0)
    cut.commit(0, FOO, 1.0)
    assert full.ended
    assert cut.ended
    assert (full.text_ids, cut.text_ids) == ([FOO, FOO], [FOO])


def test_a_candidate_takes_the_id_of_its_rank_first_though_another_slot_is_surer() -> None:
    canvas = BoundedCanvas(2, end_id=DELETE)
    row = row_of(canvas, rank=2)
    view = masked_plan("threshold").look(row)
    logits = torch.full((2, VOCABULARY), -9.0)
    logits[0, [FOO, OPENING, CLOSING]] = torch.tensor([5.0, 4.0, 3.0])
    logits[1, FOO] = 20.0
    masked_plan("threshold").decide(row, view, predict(logits))
    assert canvas.ids == [CLOSING, None]
    masked_plan("threshold").decide(row, masked_plan("threshold").look(row), predict(logits[1:]))
    assert canvas.ids == [CLOSING, FOO]


def test_a_candidate_whose_first_slot_has_too_few_ids_to_choose_from_takes_its_rank_later() -> None:
    canvas = BoundedCanvas(2, end_id=DELETE)
    row = row_of(canvas, rank=1)
    logits = torch.full((2, VOCABULARY), -torch.inf)
    logits[:, FOO] = 0.0
    logits[1, OPENING] = -1.0
    plan = masked_plan("frontier:1")
    plan.decide(row, plan.look(row), predict(logits[:1]))
    assert canvas.ids == [FOO, None]
    plan.decide(row, plan.look(row), predict(logits[1:]))
    assert canvas.ids == [FOO, OPENING]


def test_the_engines_default_sampler_stands_for_the_familys_own() -> None:
    plan = masked_plan(EngineConfig().sampler).parallel
    assert (plan.value, plan.window, plan.reads_itself) == (0.9, None, True)


@pytest.mark.parametrize("sampler", ["confirm:2:3", "left", "base"])
def test_samplers_that_only_the_embedded_model_has_are_refused(sampler: str) -> None:
    with pytest.raises(BadRequestError, match=r"this model has no sampler .*threshold"):
        masked_plan(sampler)


@pytest.mark.parametrize("sampler", ["threshold:0.7", "topk:2", "margin", "entropy:0.1", "frontier:8"])
def test_parallel_samplers_are_used_and_read_their_own_slots(sampler: str) -> None:
    plan = masked_plan(sampler).parallel
    assert isinstance(plan, ParallelPlan)
    assert plan.reads_itself


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(BadRequestError, match="unknown sampler"):
        masked_plan("beam")


@given(st.integers(1, 1024), st.data())
def test_lengths_are_tried_on_a_ladder_and_then_around_its_best_rung(
    longest: int, data: st.DataObject
) -> None:
    rungs = ladder(longest)
    assert rungs[0] == longest
    assert rungs == sorted(set(rungs), reverse=True)
    best = data.draw(st.sampled_from(rungs))
    around = rungs_around(best, rungs)
    assert max(len(rungs), len(around)) <= LENGTHS_MAX
    assert not set(around) & set(rungs)
    index = rungs.index(best)
    upper, lower = max(rungs[: index + 1][-2:]), (*rungs[index + 1 :], 0)[0]
    assert all(lower < length <= upper for length in around)


def test_longer_holes_are_expected_to_be_less_sure() -> None:
    biases = [length_bias(length) for length in range(1, 200)]
    assert biases == sorted(biases, reverse=True)
