"""What is trained on is what the engine meets: the same context, the same edges, the same views."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.canvas import Canvas
from tenon_engine.diffusion import DiffusionModel, Limits
from tenon_engine.edges import Edges
from tenon_engine.errors import BadRequestError
from tenon_engine.models import embedded
from tenon_engine.models.base import HoleRequest
from tenon_engine.models.qwen2 import KeyValues
from tenon_engine.plan import ConfirmPlan, Row
from tenon_engine.samplers import plan_named
from tenon_engine.tokenizer import BpeTokenizer
from tenon_engine.training import examples
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.examples import ExampleMaker, cut_hole, held_out_texts
from tenon_engine.training.feed import Recipe, feeding
from tenon_engine.training.options import ExampleOptions, Views
from tenon_engine.training.run import Ground
from tenon_engine.training.views import UNRANKED, canvas_size, confirm_view, whole_view
from tenon_engine.view import OPEN, START
from tenon_engine.window import window

OPTIONS = ExampleOptions(rows=3, context_tokens=192, canvas_slots=96)
END = 500
TEXT = 'def total(prices):\n    """Sum."""\n    return sum(prices) * 2\n\n\nprint(total([1]))\n'

text_ids = st.lists(st.integers(0, END - 1), min_size=1, max_size=46)


def test_a_batch_follows_from_seed_and_number(
    ground: Ground, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    first, again = (ExampleMaker(opened, tokenizer, ground.special, OPTIONS) for _ in range(2))
    for number in (0, 7):
        one, other = first.batch(number), again.batch(number)
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in one.__slots__)
    assert not np.array_equal(first.batch(0).ids, first.batch(1).ids)


def test_how_many_rows_a_batch_has_changes_no_row(
    ground: Ground, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    wide, narrow = (
        ExampleMaker(opened, tokenizer, ground.special, dataclasses.replace(OPTIONS, rows=rows))
        for rows in (4, 2)
    )
    whole, parts = wide.batch(1), [narrow.batch(2), narrow.batch(3)]
    assert np.array_equal(whole.ids, np.concatenate([part.ids for part in parts]))
    assert np.array_equal(whole.reads, np.concatenate([part.reads for part in parts]))


@pytest.mark.parametrize("options", [ExampleOptions(context_tokens=8), ExampleOptions(canvas_slots=1)])
def test_a_corpus_without_room_for_a_hole_is_refused(
    ground: Ground,
    tokenizer: BpeTokenizer,
    opened: Corpus,
    options: ExampleOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examples, "TRIES", 50)
    with pytest.raises(BadRequestError, match="allow more --context-tokens or --canvas-slots"):
        ExampleMaker(opened, tokenizer, ground.special, options).batch(0)


def test_a_process_makes_the_batches_a_thread_makes(ground: Ground, texts: Path) -> None:
    recipe = Recipe(texts, ground.files, ground.special, OPTIONS)
    with feeding(recipe, first=3, workers=0) as here, feeding(recipe, first=3, workers=1) as there:
        for _ in range(2):
            assert np.array_equal(here.take().reads, there.take().reads)


def test_what_is_held_out_is_never_trained_on(
    ground: Ground, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    chosen = held_out_texts(opened, 0.25)
    packages = {opened[int(index)].package for index in chosen.nonzero()[0]}
    assert len(packages) == 1
    assert set(opened.packages[packages.pop()]) == set(chosen.nonzero()[0].tolist())
    assert not held_out_texts(opened, 0.0).any()


def test_a_batch_expects_the_text_and_then_its_end(
    ground: Ground, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    batch = ExampleMaker(opened, tokenizer, ground.special, OPTIONS).batch(4)
    slots = OPTIONS.canvas_slots
    for entry, target, teacher in zip(batch.scored, batch.targets, batch.teacher, strict=True):
        row, slot = divmod(int(entry), slots)
        count = int(batch.context_counts[row])
        place = int(batch.positions[row, slot]) - count
        known = batch.ids[row, count + 1 :]
        text = known[: int((known > 0).sum()) + 1]  # but for its last token, which nothing reads
        if teacher < 0:
            assert (target, place) >= (ground.special.end, len(text))
        else:
            assert divmod(int(teacher), OPTIONS.context_tokens) == (row, count + place)
            assert place == len(text) - 1 or target == text[place]
    assert batch.weights.min() > 0
    assert batch.filled > 0.5


@given(st.data())
def test_a_hole_is_cut_as_the_engine_cuts_it(
    ground: Ground, tokenizer: BpeTokenizer, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(TEXT) - 1))
    end = data.draw(st.integers(start + 1, min(len(TEXT), start + 30)))
    hole = cut_hole(
        tokenizer, ground.special, TEXT, (start, end), path="a/b.py", tokens=250, suffix_share=0.4
    )
    assert hole is not None
    cut = window(tokenizer, TEXT[:start], TEXT[end:], prefix_tokens=250, suffix_tokens=100)
    edges = Edges(tokenizer, left=cut.left, right=cut.right, end_id=ground.special.end)
    assert edges.fill(hole.text_ids, ended=True) == (TEXT[start:end], True)
    healed = tokenizer.to_bytes(hole.text_ids[: hole.healed_count])
    assert cut.left.startswith(healed)
    assert len(tokenizer.to_bytes(hole.text_ids[: hole.healed_count + 1])) > len(cut.left)
    model = engine_of(ground, tokenizer)
    request = HoleRequest(
        prefix=TEXT[:start],
        suffix=TEXT[end:],
        path="a/b.py",
        language="python",
        extra=(),
        max_tokens=8,
        candidates=1,
        temperature=0.0,
        seed=0,
        session="",
    )
    assert hole.context_ids == model._context_ids(request, cut)


def engine_of(ground: Ground, tokenizer: BpeTokenizer) -> DiffusionModel[KeyValues]:
    return DiffusionModel(
        name="tiny",
        network=embedded.load_network(ground.files.weights, None),
        tokenizer=tokenizer,
        special=ground.special,
        plan=plan_named("confirm"),
        limits=Limits(prefix_tokens=250, suffix_tokens=100, path_header=True),
    )


def test_a_long_prefix_is_cut_at_a_line_and_fills_its_budget(ground: Ground, tokenizer: BpeTokenizer) -> None:
    text = "".join(f"value_{number} = {number}\n" for number in range(200))
    hole = cut_hole(tokenizer, ground.special, text, (2000, 2008), path=None, tokens=192, suffix_share=0.3)
    assert hole is not None
    shown = tokenizer.to_bytes(hole.context_ids[1:]).decode()
    assert shown.startswith("value_")
    assert 192 - 24 < len(hole.context_ids) + len(hole.text_ids) <= 192


@pytest.mark.parametrize("span", [(0, 200), (10, 3000)])
def test_a_hole_with_more_than_a_canvas_holds_is_passed_over(
    ground: Ground, tokenizer: BpeTokenizer, span: tuple[int, int]
) -> None:
    text = "value = 12\n" * 400
    assert cut_hole(tokenizer, ground.special, text, span, path=None, tokens=192, suffix_share=0.3) is None


@given(ids=text_ids, seed=st.integers(0, 10_000), healed_count=st.integers(0, 3))
def test_a_confirm_view_is_what_the_sampler_looks_at_behind_every_decided_text(
    ids: list[int], seed: int, healed_count: int
) -> None:
    rng = random.Random(seed)
    size = canvas_size(len(ids), rng)
    healed_count = min(healed_count, len(ids) - 1)
    shown = confirm_view(ids, size, rng, healed_count=healed_count, end_id=END, room=96)
    assert shown is not None
    assert (shown.places[shown.scored[shown.ranks == UNRANKED]] < healed_count).sum() == healed_count
    assert (shown.places[shown.scored[shown.ranks > 0]] >= healed_count).all()
    links = len(ids) + 1
    content = [*ids, *[END] * (size - len(ids))]
    assert shown.reads[:links].tolist() == [START, *ids]
    assert np.array_equal(shown.sees[:links, :links], np.tri(links, dtype=np.bool_))
    entry = links
    while entry < len(shown.reads):
        link = int(shown.places[entry]) - 1
        assert link >= healed_count
        fan = entry + int((shown.sees[entry, links:]).sum())
        canvas = Canvas(size, end_id=END)
        for place in range(link):
            canvas.commit(place, ids[place], 1.0)
        looked = ConfirmPlan(fan - entry, 0).look(Row(canvas, free_edges(), []))
        assert looked.places[1:] == tuple(shown.places[entry:fan])
        assert looked.reads[1:] == tuple(shown.reads[entry:fan]) == (OPEN,) * (fan - entry)
        assert shown.sees[entry:fan].sum(1).tolist() == [link + 1 + fan - entry] * (fan - entry)
        assert shown.sees[entry:fan, : link + 1].all()
        entry = fan
    assert all(
        content[shown.places[at]] == target for at, target in zip(shown.scored, shown.targets, strict=True)
    )


def free_edges() -> Edges:
    class NoTokenizer:
        def to_bytes(self, ids: object) -> bytes:
            return b""

    return Edges(NoTokenizer(), left=b"", right=b"", end_id=END)  # type: ignore[arg-type]


@given(
    ids=text_ids,
    seed=st.integers(0, 10_000),
    healed_count=st.integers(0, 3),
    replaced=st.sampled_from([0.0, 0.3]),
)
def test_a_whole_view_hides_what_it_asks_for(
    ids: list[int], seed: int, healed_count: int, replaced: float
) -> None:
    rng = random.Random(seed)
    size = canvas_size(len(ids), rng)
    healed_count = min(healed_count, len(ids) - 1)
    views = Views(replaced=replaced)
    view = whole_view(ids, size, rng, healed_count=healed_count, end_id=END, views=views, vocabulary=END)
    assert (view.reads[1 : healed_count + 1] != OPEN).all()
    content = [*ids, *[END] * (size - len(ids))]
    assert view.reads[0] == START
    assert view.sees.all()
    assert len(view.scored) > 0
    for place, target, rank in zip(view.places[view.scored], view.targets, view.ranks, strict=True):
        assert target == content[place]
        is_shown = place + 1 < size and view.reads[place + 1] != OPEN
        assert not is_shown or (replaced and rank == UNRANKED)
    if not replaced:
        shown = [(place - 1, token) for place, token in enumerate(view.reads.tolist()) if token >= 0]
        assert all(content[place] == token for place, token in shown)
