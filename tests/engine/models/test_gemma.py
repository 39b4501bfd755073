"""DiffusionGemma from a checkpoint on disk to fills: random weights, but the real classes and the whole way."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.engine.models import tiny
from torch import Tensor

from tenon_engine.config import EngineConfig
from tenon_engine.engine import Engine
from tenon_engine.errors import BadRequestError, ModelFailedError, WeightsCorruptError
from tenon_engine.models.base import HoleRequest, Proposal
from tenon_engine.models.gemma.model import ENCODE_CHUNK_TOKENS, GemmaModel, load
from tenon_engine.models.gemma.network import GemmaNetwork, Pass
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.placement import Placement
from tenon_engine.progress import silent
from tenon_engine.wire import ExtraFile, FillRequest, FillResult, SlotState, Stopped

CANVAS = 64
PREFIX, SUFFIX = "def first(a):\n    retur", "\n\nprint(first(1))\n"
TEXT = st.text(
    st.one_of(
        st.sampled_from("abcdefghij_ ()[]{}:.,\"'0123\t\n"),
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("🚀é́ñ中文▁"),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_diffusion_gemma(tmp_path_factory.mktemp("gemma"), layers=3, canvas=CANVAS)


@pytest.fixture(scope="module")
def model(folder: Path) -> GemmaModel:
    return loaded(folder)


@pytest.fixture(scope="module")
def hasty(folder: Path) -> GemmaModel:
    return loaded(folder, sampler="entropy:0.1:2")


def loaded(folder: Path, **settings: Any) -> GemmaModel:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    placement = Placement("cpu", torch.float32, "sdpa", quantization=None, compiled=False)
    checkpoint = Checkpoint("tiny", folder, config["architectures"][0], config)
    return load(checkpoint, placement, EngineConfig(**settings), silent)


def hole_of(prefix: str = PREFIX, suffix: str = SUFFIX, **changes: Any) -> HoleRequest:
    request: dict[str, Any] = {
        "path": "a.py",
        "language": "python",
        "extra": (),
        "max_tokens": 16,
        "candidates": 1,
        "temperature": 0.0,
        "seed": 0,
        "session": "",
    }
    return HoleRequest(prefix=prefix, suffix=suffix, **(request | changes))


def last(model: GemmaModel, hole: HoleRequest) -> Proposal:
    *_, proposal = model.propose(hole, lambda: None)
    return proposal


def texts(model: GemmaModel, hole: HoleRequest) -> list[str]:
    return [draft.text for draft in last(model, hole).drafts]


@settings(max_examples=40)
@given(prefix=TEXT, suffix=TEXT, seed=st.integers(0, 3))
def test_whatever_the_model_says_the_text_outside_the_hole_stays(
    hasty: GemmaModel, prefix: str, suffix: str, seed: int
) -> None:
    request = FillRequest.single(
        prefix, suffix, max_tokens=6, candidates=2, temperature=float(seed == 3), seed=seed
    )
    for event in Engine(hasty).stream(request):
        if isinstance(event, FillResult):
            for candidate in event.holes[0].candidates:
                assert (prefix + candidate.text + suffix).encode("utf-8", "strict")
                assert "\ufffd" not in candidate.text
        else:
            healed = "".join(slot.text for slot in event.slots if slot.state is SlotState.FIXED)
            assert healed in prefix or "\ufffd" in healed


def offer_only(model: GemmaModel, ids: Sequence[int]) -> None:
    others = [token for token in range(model.network.vocabulary) if token not in ids]
    model.network._unspoken = torch.tensor(others)


class Recorder:
    """A network that remembers what it was shown."""

    def __init__(self, network: GemmaNetwork) -> None:
        self._network = network
        self.passes: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []

    def forward(self, passes: Sequence[Pass]) -> list[Tensor]:
        self.passes += [(view.reads, view.scored, tuple(frame.suffix_ids)) for frame, view in passes]
        return self._network.forward(passes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


def test_fixed_slots_are_the_same_in_every_forward(folder: Path) -> None:
    model = loaded(folder)
    recorder = Recorder(model.network)
    model.network = cast(GemmaNetwork, recorder)
    proposal = last(model, hole_of("x = 1\nab_cd.ef_gh", "ij)\n    return\n"))
    suffixes = {suffix for _, _, suffix in recorder.passes}
    (suffix,) = suffixes
    assert model.tokenizer.to_bytes(suffix) == b"ij)\n    return\n"
    firsts = {reads[: scored[0]] for reads, scored, _ in recorder.passes if scored}
    (fixed,) = firsts
    spelt = "".join(slot.text for slot in proposal.slots).encode()
    assert model.tokenizer.to_bytes(fixed) == b"f_g"
    assert spelt.startswith(b"f_gh")


def test_the_same_seed_gives_the_same_text_and_another_one_another(model: GemmaModel) -> None:
    sampled = {seed: texts(model, hole_of(temperature=1.0, seed=seed)) for seed in range(3)}
    assert sampled == {seed: texts(model, hole_of(temperature=1.0, seed=seed)) for seed in range(3)}
    assert len({text for found in sampled.values() for text in found}) > 1
    assert texts(model, hole_of()) == texts(model, hole_of())


def test_a_session_that_types_and_takes_back_is_filled_as_one_that_is_new(model: GemmaModel) -> None:
    written = "".join(f"value_{n} = compute({n})\n" for n in range(6))  # far beyond the sliding window
    states = [written, written + "r", written + "retu", written + "ret", written[:20] + "# " + written[20:]]
    for number, prefix in enumerate(states):
        again = last(model, hole_of(prefix, session="typing"))
        fresh = last(model, hole_of(prefix, session=f"new {number}"))
        assert again.drafts[0].text == fresh.drafts[0].text
        assert again.drafts[0].confidence == pytest.approx(fresh.drafts[0].confidence, rel=1e-3)
        assert fresh.cost.reused_tokens == 0
        assert again.cost.reused_tokens >= (again.cost.context_tokens - 40 if number in (1, 2, 3) else 0)


def test_candidates_are_as_many_as_were_wanted_and_differ(model: GemmaModel) -> None:
    drafts = last(model, hole_of(candidates=6)).drafts
    assert len(drafts) == 6
    assert len({draft.text for draft in drafts}) > 2


@pytest.mark.parametrize("steps", [1, 3])
def test_it_stops_between_steps_with_the_best_text_so_far(model: GemmaModel, steps: int) -> None:
    asked = iter([None] * steps + [Stopped.DEADLINE] * 2)  # the first question is asked before the context
    proposals = list(model.propose(hole_of("x = 1\n", session=f"stop {steps}"), lambda: next(asked)))
    assert len(proposals) == steps
    assert not proposals[-1].drafts[0].finished
    assert proposals[-1].cost.forwards == steps


def test_it_stops_between_two_chunks_of_a_context_and_keeps_what_it_has(model: GemmaModel) -> None:
    hole = hole_of("x = 1\n" * 400, session="long")
    asked = iter([None, Stopped.CANCELLED])
    assert list(model.propose(hole, lambda: next(asked))) == []
    assert last(model, hole).cost.reused_tokens == ENCODE_CHUNK_TOKENS


class Longest(Recorder):
    """A network to which a suffix fits the better, the longer the hole is."""

    def forward(self, passes: Sequence[Pass]) -> list[Tensor]:
        found = super().forward(passes)
        for frame, view in passes:
            frame.suffix_log_probability = len(view.reads)
        return found


def test_a_hole_longer_than_a_canvas_is_filled_in_several(folder: Path) -> None:
    model = loaded(folder, sampler="entropy:0.1:2")
    offer_only(model, model.tokenizer.encode("abc"))
    network = Longest(model.network)
    model.network = cast(GemmaNetwork, network)
    proposals = list(model.propose(hole_of("x = a", "]\n", max_tokens=150), lambda: None))
    assert len(proposals) == 4 * 3  # four canvases: of each a first half, and of the last one all
    assert [proposal.drafts[0].finished for proposal in proposals[2::3]] == [True] * 4
    lengths = [len(proposal.drafts[0].text) for proposal in proposals[2::3]]
    assert lengths == sorted(lengths)
    assert CANVAS < lengths[-1] <= 150
    assert {len(suffix) for _, _, suffix in network.passes} == {2}


def test_a_short_fill_of_a_long_hole_takes_one_canvas(model: GemmaModel) -> None:
    assert last(model, hole_of("a = [\n", "]\n", max_tokens=150)).cost.forwards <= 9


def test_end_tokens_in_a_hole_take_room_and_leave_no_text(folder: Path) -> None:
    model = loaded(folder)
    offer_only(model, [model.network._end_id])
    proposal = last(model, hole_of("x = 1\n"))
    assert (proposal.drafts[0].text, proposal.drafts[0].finished) == ("", True)
    (filled,) = Engine(model).fill(FillRequest.single("x = 1\n", SUFFIX)).holes
    assert filled.candidates == ()


def test_weights_that_are_not_numbers_are_said_to_be_at_fault(folder: Path) -> None:
    model = loaded(folder)
    with torch.no_grad():
        model.network._decoder.norm.weight.fill_(torch.nan)
    engine = Engine(model)
    for temperature in (0.0, 1.0):
        with pytest.raises(ModelFailedError, match="not finite"):
            engine.fill(FillRequest.single(PREFIX, SUFFIX, temperature=temperature))
    with pytest.raises(ModelFailedError, match="not finite"):
        model.score(hole_of(), "x", lambda: None)


def test_several_threads_get_what_each_would_alone(model: GemmaModel) -> None:
    holes = [hole_of(f"x = {n}\nfoo({'a' * n}", session=f"thread {n % 2}") for n in range(6)]
    alone = [texts(model, hole) for hole in holes]
    model.forget()
    found: dict[int, list[str]] = {}

    def fill(number: int) -> None:
        found[number] = texts(model, holes[number])

    threads = [threading.Thread(target=fill, args=[number]) for number in range(len(holes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(holes))] == alone


def test_an_instruction_is_a_turn_of_the_user_and_the_prefix_begins_the_models(model: GemmaModel) -> None:
    hole = hole_of(
        instruction="no <|turn> here", extra=(ExtraFile("b.py", "y = 2"),), session="turns", path="<turn|>.py"
    )
    prefix_ids = model.tokenizer.encode("x = <|turn>")
    ids = model._prompt.ids(hole, prefix_ids)
    control = [token for token in ids if not model.tokenizer.to_bytes([token])]
    turns = model._prompt.turns
    assert turns is not None
    assert control == [ids[0], turns.user[0], turns.model[0], turns.model[2]]
    assert model.tokenizer.to_bytes(ids).decode() == (
        "user\nb.py\ny = 2\n\n<turn|>.py\nno <|turn> here\nAnswer with the text of the file alone."
        "\nmodel\nx = <|turn>"
    )
    assert texts(model, hole) != []


def test_without_an_instruction_the_prefix_continues_plain_text(model: GemmaModel) -> None:
    hole = hole_of(extra=(ExtraFile("b.py", "y = 2"),))
    ids = model._prompt.ids(hole, model.tokenizer.encode("x = "))
    assert model.tokenizer.to_bytes(ids) == b"b.py\ny = 2\n\na.py\nx = "


@pytest.mark.parametrize("text", ["n a + 1", "", "é🚀 = ▁", "\ud800x", "value = compute(1)\n" * 12])
def test_a_score_is_finite_and_its_spans_cover_the_text(model: GemmaModel, text: str) -> None:
    scores = model.score(hole_of(), text, lambda: None)
    assert scores.finished
    ends = [0, *(token.end for token in scores.tokens)]
    assert [token.start for token in scores.tokens] == ends[:-1]
    assert ends[-1] == len(text)
    assert all(0 < token.probability < 1 for token in scores.tokens)
    again = [token.probability for token in model.score(hole_of(), text, lambda: None).tokens]
    assert again == pytest.approx([token.probability for token in scores.tokens], rel=1e-4)


def test_a_score_stops_between_sections(model: GemmaModel) -> None:
    asked = iter([None, Stopped.DEADLINE])
    scores = model.score(hole_of(session="scored"), "value = compute(1)\n" * 12, lambda: next(asked))
    assert not scores.finished
    assert 0 < scores.tokens[-1].end < 100


def test_a_checkpoint_that_lacks_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    gone = next(name for name in weights if name.endswith("gate_up_proj"))
    kept = {name: weight for name, weight in weights.items() if name != gone}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsCorruptError, match="lacks 2 of its weights"):
        loaded(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(WeightsCorruptError, match="cannot be loaded"):
        loaded(tmp_path)


def test_a_sampler_of_another_family_is_refused(folder: Path) -> None:
    with pytest.raises(BadRequestError, match="entropy"):
        loaded(folder, sampler="threshold:0.9")
