"""Masked models from a checkpoint on disk to fills: random weights, but the real classes and the whole way."""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.engine.models.masked_models import PREFIX, SUFFIX, WRITERS, hole_of, last, loaded
from torch import Tensor

from tenon_engine.engine import Engine
from tenon_engine.errors import ModelFailedError
from tenon_engine.models.base import HoleRequest, Proposal
from tenon_engine.models.masked.model import GROWING_SLOTS, SECTION_TOKENS, MaskedModel
from tenon_engine.models.masked.network import MaskedNetwork, Surroundings
from tenon_engine.proposals import encodable
from tenon_engine.view import OPEN, View
from tenon_engine.window import END_OF_FILE, window
from tenon_engine.wire import ExtraFile, FillRequest, FillResult, Hole, SlotState, Stopped

TEXT = st.text(
    st.one_of(
        st.sampled_from("abcdefghij_ ()[]{}:.,\"'0123\t\n"),
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("🚀é́ñ中文"),
    ),
    max_size=30,
)
Passes = list[tuple[Surroundings, View]]
SURE = 9.0


class Recorder:
    """A network that writes down what it is asked."""

    def __init__(self, model: MaskedModel) -> None:
        self._network = model.network
        self.forwards: list[Passes] = []

    def forward(self, passes: Sequence[tuple[Surroundings, View]]) -> list[Tensor]:
        self.forwards.append(list(passes))
        return self._network.forward(passes)


class Scripted:
    """A network without weights: `says` gives the logits of a slot of a canvas of so many slots."""

    def __init__(self, says: Callable[[int, int], dict[int, float]]) -> None:
        self._says = says
        self.sizes: list[list[int]] = []

    def forward(self, passes: Sequence[tuple[Surroundings, View]]) -> list[Tensor]:
        self.sizes.append([len(view.reads) for _, view in passes])
        return [self._row(view) for _, view in passes]

    def _row(self, view: View) -> Tensor:
        logits = torch.zeros(len(view.scored), 300)
        for index, slot in enumerate(view.scored):
            for token, value in self._says(len(view.reads), slot).items():
                logits[index, token] = value
        return logits


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write(tmp_path_factory.mktemp(name)) for name, write in WRITERS.items()}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, MaskedModel]:
    return {name: loaded(folder) for name, folder in folders.items()}


@pytest.fixture(params=list(WRITERS))
def model(request: pytest.FixtureRequest, models: dict[str, MaskedModel]) -> MaskedModel:
    return models[request.param]


def answers(proposal: Proposal) -> list[tuple[str, float]]:
    return [(draft.text, draft.confidence) for draft in proposal.drafts]


def never() -> None:
    return None


def id_of(model: MaskedModel, text: str) -> int:
    (token,) = model.tokenizer.encode(text)
    return token


@settings(max_examples=25)
@given(prefix=TEXT, suffix=TEXT, name=st.sampled_from(list(WRITERS)), seed=st.integers(0, 3))
def test_the_text_around_a_hole_stands_in_every_window_to_the_byte(
    models: dict[str, MaskedModel], prefix: str, suffix: str, name: str, seed: int
) -> None:
    model = models[name]
    recorder = Recorder(model)
    hole = hole_of(prefix, suffix, max_tokens=4, seed=seed, temperature=float(seed > 0))
    *_, proposal = model.with_network(recorder).propose(hole, never)
    cut = window(model.tokenizer, prefix, suffix, prefix_tokens=480, suffix_tokens=128)
    to_bytes = model.tokenizer.to_bytes
    assert to_bytes(cut.prefix_ids) + cut.left == encodable(prefix).encode()
    around = {
        (tuple(a.prefix_ids[1:]), tuple(a.suffix_ids[:-1])) for each in recorder.forwards for a, _ in each
    }
    assert around == {(tuple(cut.prefix_ids), tuple(cut.suffix_ids if suffix.strip() else ()))}
    if suffix.strip():
        rest = encodable(suffix)[len(cut.right.decode()) :]
        shown = rest if rest.strip() else END_OF_FILE  # as every model sees the end of a file
        assert to_bytes(cut.suffix_ids) == shown.encode()
        assert encodable(suffix).encode().startswith(cut.right)
    assert all(isinstance(draft.text, str) for draft in proposal.drafts)


def test_a_decided_slot_is_read_as_it_was_decided_ever_after(model: MaskedModel) -> None:
    recorder = Recorder(model)
    list(model.with_network(recorder).propose(hole_of(), never))
    reads = [passes[0][1].reads for passes in recorder.forwards if len(passes) == 1]
    for earlier, later in itertools.pairwise(reads):
        decided = iter([token for token in later if token != OPEN])
        assert all(token in decided for token in earlier if token != OPEN)


def test_the_left_edge_is_spelt_again_in_slots_that_are_fixed(model: MaskedModel) -> None:
    slots = last(model, hole_of(suffix="")).slots
    cut = window(model.tokenizer, PREFIX, "", prefix_tokens=480, suffix_tokens=128)
    assert "".join(slot.text for slot in slots).startswith(cut.left.decode())
    assert slots[0].state is SlotState.FIXED


def test_fills_are_the_same_each_time_and_sampled_ones_under_a_seed(model: MaskedModel) -> None:
    for hole in (hole_of(), hole_of(temperature=1.5, seed=7, candidates=2)):
        assert answers(last(model, hole)) == answers(last(model, hole))
    seeds = {answers(last(model, hole_of(temperature=1.5, seed=seed)))[0] for seed in range(4)}
    assert len(seeds) > 1


def test_greedy_candidates_differ_and_the_first_is_the_one_that_stands_alone(model: MaskedModel) -> None:
    three = last(model, hole_of("x = ", candidates=3))
    alone = last(model, hole_of("x = "))
    assert three.drafts[0].text == alone.drafts[0].text
    assert math.isclose(three.drafts[0].confidence, alone.drafts[0].confidence, rel_tol=1e-3)
    assert len({draft.confidence for draft in three.drafts}) == 3


def test_control_tokens_and_the_mask_are_never_written(model: MaskedModel) -> None:
    assert isinstance(model.network, MaskedNetwork)
    recorder = Recorder(model)
    list(model.with_network(recorder).propose(hole_of(temperature=9.0), never))
    (logits, *_) = model.network.forward(recorder.forwards[-1])
    writable = set(logits[0].isfinite().nonzero()[:, 0].tolist())
    spelt = {token for token in writable if token < 270 and model.tokenizer.to_bytes([token])}
    assert len(writable - spelt) <= 2  # the end of text, and what expands
    assert not any(slot.text.startswith("<|") for slot in last(model, hole_of(temperature=9.0)).slots)


def test_other_files_stand_before_the_prefix(model: MaskedModel) -> None:
    recorder = Recorder(model)
    list(model.with_network(recorder).propose(hole_of(extra=(ExtraFile("b.py", "B = 1\n"),)), never))
    around, _ = recorder.forwards[0][0]
    assert model.tokenizer.to_bytes(around.prefix_ids).startswith(b"b.py\nB = 1\n")


def test_a_fill_goes_through_the_engine_and_stops_between_two_steps(model: MaskedModel) -> None:
    engine = Engine(model)
    result = engine.fill(FillRequest.single(PREFIX, SUFFIX, max_tokens=6, candidates=2))
    assert isinstance(result, FillResult)
    assert result.cost.forwards > 0
    asked = iter([False, False, False])
    stopped = engine.fill(
        FillRequest.single(PREFIX, SUFFIX, max_tokens=6), cancelled=lambda: next(asked, True)
    )
    assert stopped.stopped is Stopped.CANCELLED
    assert stopped.cost.forwards < result.cost.forwards


def test_a_selection_is_refined(model: MaskedModel) -> None:
    selection = Hole(text="n a + 1", strength=0.5)
    result = Engine(model).fill(FillRequest(segments=(PREFIX, selection, SUFFIX)))
    assert result.stopped is Stopped.DONE


@pytest.mark.parametrize("planted", [32, 20, 10, 8, 7, 6, 5, 4, 3, 2, 1])
def test_a_hole_gets_the_length_that_the_first_step_is_surest_of(
    planted: int, models: dict[str, MaskedModel]
) -> None:
    model = models["llada"]
    token = id_of(model, "x")
    # Surest of the planted length, less sure the further away.
    network = Scripted(lambda size, _: {token: SURE - 2 * abs(size - planted)})
    proposal = last(model.with_network(network), hole_of("", "y = 1\n", max_tokens=32))
    ladder, around, chosen = network.sizes
    assert ladder == [32, 20, 12, 8, 5, 3]
    assert planted in ladder + around
    assert chosen == [planted]
    assert (proposal.drafts[0].text, proposal.drafts[0].finished) == ("x" * planted, True)
    assert proposal.cost.forwards == 3


def test_a_hole_of_few_tokens_is_tried_at_every_length_at_once(models: dict[str, MaskedModel]) -> None:
    model = models["llada"]
    token = id_of(model, "x")
    network = Scripted(lambda size, _: {token: SURE if size == 2 else 1.0})
    last(model.with_network(network), hole_of("", "y = 1\n", max_tokens=4))
    assert network.sizes == [[4, 3, 2, 1], [2]]


def test_the_bias_towards_short_holes_is_taken_out(models: dict[str, MaskedModel]) -> None:
    model = models["llada"]
    token = id_of(model, "x")
    network = Scripted(lambda size, _: {token: 6.3 if size > 12 else 6.5})
    last(model.with_network(network), hole_of("", "y = 1\n", max_tokens=32))
    assert network.sizes[-1] == [32]


def test_a_hole_at_the_end_of_a_text_is_as_long_as_it_may_be_and_ends_where_the_model_ends_it(
    models: dict[str, MaskedModel],
) -> None:
    model = models["dream"]
    token, end = id_of(model, "x"), model.control.end
    network = Scripted(lambda _, slot: {token if slot < 5 else end: SURE})
    proposal = last(model.with_network(network), hole_of("", "\n", max_tokens=16))
    assert network.sizes[0] == [17]  # and the line end behind the hole
    assert proposal.drafts[0].text.startswith("xxxxx")
    overlong = Scripted(lambda *_: {token: SURE})
    assert not last(model.with_network(overlong), hole_of("", "", max_tokens=4)).drafts[0].finished


def test_a_canvas_that_grows_begins_small_and_finds_its_size(models: dict[str, MaskedModel]) -> None:
    model = models["dreamon"]
    token, expand, delete = id_of(model, "x"), model.control.expand, model.control.delete
    assert expand is not None
    assert delete is not None

    def says(size: int, slot: int) -> dict[int, float]:
        wanted = token if slot else (expand if size < 7 else delete)
        return {wanted: SURE if slot == 0 else SURE - 1}

    network = Scripted(says)
    proposal = last(model.with_network(network), hole_of("", "y = 1\n", max_tokens=16))
    sizes = [size for (size,) in network.sizes]
    assert sizes[0] == GROWING_SLOTS
    assert max(sizes) <= 16
    draft = proposal.drafts[0]
    assert set(draft.text) == {"x"}
    assert draft.finished


def test_a_canvas_never_outgrows_the_hole(models: dict[str, MaskedModel]) -> None:
    model = models["dreamon"]
    expand = model.control.expand
    assert expand is not None
    network = Scripted(lambda *_: {expand: SURE})
    proposal = last(model.with_network(network), hole_of("", "y = 1\n", max_tokens=10))
    assert max(size for (size,) in network.sizes) == 10
    assert len(proposal.slots) == 10


def test_scores_are_probabilities_of_every_part_of_a_text(model: MaskedModel) -> None:
    text = "n a + 1\n    # ünï 🚀\n"
    scores = model.score(hole_of(), text, never)
    assert scores.finished
    assert "".join(text[token.start : token.end] for token in scores.tokens) == text
    assert all(0.0 < token.probability < 1.0 for token in scores.tokens)
    assert scores.cost.forwards == 8
    assert scores == dataclasses.replace(model.score(hole_of(), text, never), cost=scores.cost)


def test_a_token_is_scored_on_both_sides_of_it_and_not_on_itself(models: dict[str, MaskedModel]) -> None:
    model = models["llada"]
    recorder = Recorder(model)
    model.with_network(recorder).score(hole_of(), "a = b", never)
    for ((_, view),) in recorder.forwards:
        assert all(view.reads[slot] == OPEN for slot in view.scored)
        assert sum(token == OPEN for token in view.reads) == len(view.scored)
    scored = [slot for ((_, view),) in recorder.forwards for slot in view.scored]
    assert sorted(scored) == list(range(len(scored)))


def test_a_long_text_is_scored_in_sections_and_an_empty_one_has_no_scores(
    models: dict[str, MaskedModel],
) -> None:
    model = models["llada"]
    text = "q" * (SECTION_TOKENS + 9)
    scores = model.score(hole_of(), text, never)
    assert [(token.start, token.end) for token in scores.tokens] == [(n, n + 1) for n in range(len(text))]
    assert scores.cost.forwards == 16
    assert model.score(hole_of("x = ", "\n"), "", never).tokens == ()


def test_scoring_stops_when_it_is_told_to(models: dict[str, MaskedModel]) -> None:
    reasons = iter([None, None])
    scores = models["dream"].score(hole_of(), "a = b + c", lambda: next(reasons, Stopped.DEADLINE))
    assert not scores.finished
    assert scores.tokens == ()


@pytest.mark.parametrize("name", WRITERS)
def test_weights_that_are_no_numbers_are_a_failure_of_the_model(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    for path in folders[name].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    norm = next(key for key in tensors if key.endswith(("ln_f.weight", "model.norm.weight")))
    tensors[norm][0] = math.nan
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    broken = loaded(tmp_path)
    for suffix in (SUFFIX, ""):
        with pytest.raises(ModelFailedError, match="not finite"):
            Engine(broken).fill(FillRequest.single(PREFIX, suffix))
    with pytest.raises(ModelFailedError, match="not finite"):
        broken.score(hole_of(), "x", never)


def test_several_threads_get_what_each_would_get_alone(models: dict[str, MaskedModel]) -> None:
    holes = [hole_of(f"x{n} = ", max_tokens=4 + n, candidates=1 + n % 2, session=str(n)) for n in range(6)]
    for model in (models["llada"], models["dreamon"]):
        alone = [answers(last(model, hole)) for hole in holes]
        together = _in_threads(model, holes)
        for mine, right in zip(together, alone, strict=True):
            assert [text for text, _ in mine] == [text for text, _ in right]


def _in_threads(model: MaskedModel, holes: Sequence[HoleRequest]) -> list[list[tuple[str, float]]]:
    found: dict[int, list[tuple[str, float]]] = {}

    def run(index: int) -> None:
        found[index] = answers(last(model, holes[index]))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(holes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[index] for index in range(len(holes))]
