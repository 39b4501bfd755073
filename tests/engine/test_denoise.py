"""The loop with every plan on the toy network, whose logits depend on exactly what an entry sees."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.canvas import Canvas
from tenon_engine.denoise import Track, denoise
from tenon_engine.edges import Edges
from tenon_engine.errors import BadRequestError
from tenon_engine.models.toy import END, ByteTokenizer, ToyContext, ToyNetwork
from tenon_engine.plan import Plan, Row
from tenon_engine.samplers import plan_named

SPECS = [
    "left",
    "confirm",
    "confirm:1:0",
    "frontier:4:0.5",
    "threshold:0.6",
    "topk:2",
    "margin:0.5:4",
    "entropy:0.4",
]
SMALL = 8  # a vocabulary in which END comes up


def track(
    ids: list[int], size: int, *, left: bytes = b"", drafts: list[int] | None = None, **how: object
) -> Track[ToyContext, Row]:
    context = ToyContext()
    context.ids = ids
    edges = Edges(ByteTokenizer(), left=left, right=b"", end_id=SMALL - 1 if not left else END)
    row = Row(Canvas(size, end_id=SMALL - 1 if not left else END), edges, history=ids, drafts=drafts or [])
    return Track(row, context, **how)  # type: ignore[arg-type]


def run(
    plan: Plan[Row], *tracks: Track[ToyContext, Row], vocabulary: int = SMALL, sharpness: float = 2.0
) -> int:
    return max(denoise(ToyNetwork(vocabulary, sharpness=sharpness), plan, tracks))


@pytest.mark.parametrize("spec", SPECS)
@given(ids=st.lists(st.integers(0, 6), max_size=6), size=st.integers(1, 12))
def test_every_sampler_finishes_within_one_step_per_slot(spec: str, ids: list[int], size: int) -> None:
    one = track(ids, size)
    steps = run(plan_named(spec), one)
    assert one.row.canvas.finished
    assert steps <= size


@given(
    ids=st.lists(st.integers(0, 2), max_size=10),
    size=st.integers(1, 14),
    fan=st.integers(0, 4),
    ngram=st.integers(0, 2),
    wrong=st.lists(st.integers(0, 6), max_size=4),
)
def test_drafts_change_the_number_of_steps_and_nothing_else(
    ids: list[int], size: int, fan: int, ngram: int, wrong: list[int]
) -> None:
    plain, drafted = track(ids, size), track(ids, size, drafts=wrong)
    plain_steps = run(plan_named("left"), plain)
    drafted_steps = run(plan_named(f"confirm:{fan}:{ngram}"), drafted)
    assert drafted.row.canvas.ids == plain.row.canvas.ids
    assert drafted.row.canvas.confidences == plain.row.canvas.confidences
    assert drafted_steps <= plain_steps


def test_right_drafts_save_steps() -> None:
    slow = track([1], 8)
    slow_steps = run(plan_named("left"), slow)
    text = slow.row.canvas.text_ids
    fast = track([1], 8, drafts=text)
    assert run(plan_named("confirm:0:0"), fast) < slow_steps
    assert fast.row.canvas.text_ids == text


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_gives_every_row_what_it_gets_alone(spec: str) -> None:
    alone = [track([n], 10) for n in range(4)]
    for one in alone:
        run(plan_named(spec), one)
    together = [track([n], 10) for n in range(4)]
    run(plan_named(spec), *together)
    assert [t.row.canvas.ids for t in together] == [t.row.canvas.ids for t in alone]


@pytest.mark.parametrize("spec", SPECS)
@given(left=st.text("ab", min_size=1, max_size=5))
def test_the_left_edge_is_spelt_again_whatever_the_model_says(spec: str, left: str) -> None:
    one = track([3], 9, left=left.encode(), drafts=[7])
    run(plan_named(spec), one, vocabulary=END + 1)
    assert bytes(one.row.canvas.text_ids).startswith(left.encode())


def test_ranked_candidates_start_differently() -> None:
    tracks = [track([5], 6, rank=rank) for rank in range(4)]
    run(plan_named("confirm"), *tracks)
    firsts = {(*t.row.canvas.text_ids[:1],) for t in tracks}
    assert len(firsts) == 4


def test_a_seed_repeats_a_sampled_fill() -> None:
    def sampled(seed: int) -> list[int | None]:
        one = track([5], 12, temperature=1.0, generator=torch.Generator().manual_seed(seed))
        run(plan_named("confirm"), one)
        return one.row.canvas.ids

    assert sampled(3) == sampled(3)
    assert len({tuple(sampled(seed)) for seed in range(5)}) > 1


def test_not_asking_for_the_next_step_stops_the_model() -> None:
    network = ToyNetwork(SMALL)
    steps = denoise(network, plan_named("left"), [track([1], 12)])
    next(steps)
    steps.close()
    assert network.forwards == 1


@pytest.mark.parametrize("spec", ["magic", "confirm:x", "threshold:0.5:2:3", "topk:-1", ""])
def test_an_unknown_sampler_is_named_in_one_sentence(spec: str) -> None:
    with pytest.raises(BadRequestError, match="unknown sampler"):
        plan_named(spec)
