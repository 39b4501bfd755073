from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.canvas import Canvas
from tenon_engine.wire import SlotState

END = 9


def test_a_canvas_ends_where_everything_before_the_first_end_is_decided() -> None:
    canvas = Canvas(6, end_id=END)
    canvas.commit(0, 1, 0.5)
    canvas.commit(2, END, 0.8)
    assert len(canvas) == 6
    assert not canvas.finished
    canvas.commit(1, 2, 0.5)
    assert (len(canvas), canvas.finished, canvas.ended) == (2, True, True)
    assert canvas.text_ids == [1, 2]
    assert canvas.confidence == 0.5 * 0.5 * 0.8
    assert canvas.decided_count == 3


def test_a_full_canvas_without_end_is_finished_but_not_ended() -> None:
    canvas = Canvas(1, end_id=END)
    canvas.commit(0, 4, 1.0)
    assert canvas.finished
    assert not canvas.ended


def test_suggestions_stand_at_the_frontier_and_stop_behind_end_and_before_decided_slots() -> None:
    canvas = Canvas(6, end_id=END)
    canvas.commit(0, 1, 1.0)
    canvas.commit(4, 5, 1.0)
    canvas.suggest([2, 3, 4, 7, 7])
    assert canvas.drafts == [2, 3, 4]
    canvas.suggest([2, END, 3])
    assert canvas.drafts == [2, END]
    canvas.suggest([])
    assert canvas.drafts == []
    assert canvas.ids == [1, None, None, None, 5, None]


@given(st.integers(1, 12), st.data())
def test_a_decided_slot_never_changes_and_the_canvas_never_grows(size: int, data: st.DataObject) -> None:
    canvas = Canvas(size, end_id=END)
    while not canvas.finished:
        before = [(i, s) for i, s in zip(canvas.ids, canvas.states, strict=True)]
        canvas.suggest(data.draw(st.lists(st.integers(0, END), max_size=4)))
        place = data.draw(
            st.sampled_from([p for p, s in enumerate(canvas.states) if s is not SlotState.DECIDED])
        )
        canvas.commit(place, data.draw(st.integers(0, END)), 0.9)
        assert len(canvas) <= len(before)
        for (token, state), now in zip(before, canvas.ids, strict=False):
            assert state is not SlotState.DECIDED or token == now
    assert END not in canvas.text_ids
