"""Refinement and rewriting: what is opened, what is locked, what is taken, and how texts are scored."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tenon_engine import diffusion, scoring
from tenon_engine.diffusion import DiffusionModel, Limits
from tenon_engine.engine import Engine
from tenon_engine.errors import BadRequestError, InputFileError, ModelFailedError
from tenon_engine.models.base import HoleRequest, Scores, TokenScore
from tenon_engine.models.embedded import SPECIAL as EMBEDDED_IDS
from tenon_engine.models.qwen2 import KeyValues
from tenon_engine.models.scripted import ScriptedModel
from tenon_engine.models.toy import END, SPECIAL, ByteTokenizer, ToyContext, ToyNetwork
from tenon_engine.refine import UNCHANGED, least_certain, refine
from tenon_engine.samplers import plan_named
from tenon_engine.view import View
from tenon_engine.wire import (
    Candidate,
    Cost,
    FillRequest,
    FillResult,
    FillStep,
    Hole,
    HoleFill,
    Segment,
    Stopped,
)

Toy = DiffusionModel[ToyContext]
Scripted = Callable[..., Engine]

LINE_END = re.compile(r"\r\n|\r|\n")
LETTERS = (*b"ab c()", END)

document_text = st.lists(
    st.sampled_from(["foo", "bar_1", "é", "🚀", " ", "  ", "(", ")", ".", '"', "\n", "\r\n", "\r", "\t"]),
    max_size=12,
).map("".join)
strengths = st.floats(0, 1, exclude_max=True)


class Scribbler(ToyNetwork):
    """Says a few letters at random, so that it finds no other text likely."""

    def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
        unlikely = torch.full((END + 1,), -1e4).index_fill(0, torch.tensor(LETTERS), 0.0)
        return [logits + unlikely for logits in super().forward(passes)]


def toy(network: ToyNetwork, plan: str = "left") -> Toy:
    return DiffusionModel(
        name="toy",
        network=network,
        tokenizer=ByteTokenizer(),
        special=SPECIAL,
        plan=plan_named(plan),
        limits=Limits(prefix_tokens=60, suffix_tokens=30, path_header=True),
    )


def hole_request(prefix: str, suffix: str, **rest: Any) -> HoleRequest:
    fields = {
        "path": None,
        "language": None,
        "extra": (),
        "max_tokens": 12,
        "candidates": 1,
        "temperature": 0.0,
        "seed": 0,
        "session": "",
    }
    return HoleRequest(prefix=prefix, suffix=suffix, **{**fields, **rest})


def never() -> Stopped | None:
    return None


def refining(text: str, strength: float = 0.01, *, before: str = "", after: str = "") -> FillRequest:
    """The default strength opens one word."""
    return FillRequest(segments=(before, Hole(text=text, strength=strength), after))


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    def engine(*entries: dict[str, object], **settings: Any) -> Engine:
        path = tmp_path / "script.json"
        path.write_text(json.dumps(entries), encoding="utf-8")
        return Engine(ScriptedModel(path), **settings)

    return engine


def calls(folder: Path) -> list[dict[str, Any]]:
    path = folder / "script.json.calls.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# What is opened


@st.composite
def scored_texts(draw: st.DrawFn) -> tuple[str, tuple[TokenScore, ...]]:
    """Any text cut into tokens anywhere, each with any probability."""
    text = LINE_END.sub("\n", draw(document_text))
    cuts = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=10))})
    tokens = [TokenScore(start, end, draw(st.floats(0, 1))) for start, end in itertools.pairwise(cuts)]
    return text, (*tokens, TokenScore(len(text), len(text), 0.0))


@given(scored_texts(), st.floats(0, 1))
def test_opened_spans_are_whole_words_within_lines_in_order(
    scored: tuple[str, tuple[TokenScore, ...]], strength: float
) -> None:
    text, tokens = scored
    spans = least_certain(text, tokens, strength)
    assert all(left.stop < right.start for left, right in itertools.pairwise(spans))
    for span in spans:
        opened = text[span.start : span.stop]
        assert opened == opened.strip() != ""
        assert "\n" not in opened
        for edge in (span.start, span.stop):
            assert not re.fullmatch(r"\w\w", text[max(edge - 1, 0) : edge + 1])


@given(scored_texts(), st.floats(0, 1))
def test_the_share_of_tokens_that_is_asked_for_is_opened_the_least_likely_first(
    scored: tuple[str, tuple[TokenScore, ...]], strength: float
) -> None:
    text, tokens = scored
    opened = {position for span in least_certain(text, tokens, strength) for position in span}
    written = [token for token in tokens if text[token.start : token.end].strip()]
    reopened = [
        token
        for token in written
        if all(at in opened for at in range(token.start, token.end) if not text[at].isspace())
    ]
    locked = [token.probability for token in written if token not in reopened]
    assert len(reopened) >= round(strength * len(written))
    assert bool(opened) == (strength > 0 and bool(written))
    assert len(locked) < len(written) or not opened
    if locked and opened:
        assert min(token.probability for token in reopened) <= min(locked)


def test_words_next_to_each_other_are_filled_as_one_and_distant_ones_apart() -> None:
    text = "a = b\nfoo(bar, baz)\n"

    def opened(*words: str) -> list[str]:
        tokens = [
            TokenScore(*found.span(), 0.0 if found.group() in words else 1.0)
            for found in re.finditer(r"\w+|[^\w\s]", text)
        ]
        spans = least_certain(text, tokens, len(words) / len(tokens))
        return [text[span.start : span.stop] for span in spans]

    assert opened("a", "b") == ["a = b"]
    assert opened("foo", "bar") == ["foo(bar"]
    assert opened("foo", "baz") == ["foo", "baz"]
    assert opened("b", "foo") == ["b", "foo"]


# How the text is put together again


@settings(max_examples=300)
@given(
    texts=st.lists(document_text, min_size=2, max_size=4),
    holes=st.lists(st.tuples(document_text, strengths), min_size=3, max_size=3),
    found=st.lists(st.booleans(), min_size=40, max_size=40),
    odds=st.randoms(use_true_random=False),
)
@example(["", ""], [("a\r\nb\rc\n", 0.9)] * 3, [True] * 40, None)
def test_locked_text_never_changes_and_the_parts_add_up(
    texts: list[str], holes: list[tuple[str, float]], found: list[bool], odds: Any
) -> None:
    segments: list[Segment] = [texts[0]]
    for text, (old, strength) in zip(texts[1:], holes, strict=False):
        segments += [Hole(text=old, strength=strength), text]
    inner: list[Segment] = []

    def score(prefix: str, suffix: str, text: str) -> Scores:
        words = [
            TokenScore(*word.span(), odds.random() if odds else 0.1) for word in re.finditer(r"\S+", text)
        ]
        return Scores(tuple(words), Cost(forwards=1), finished=True)

    def fill(request: FillRequest) -> Iterator[FillStep | FillResult]:
        inner.extend(request.segments)
        count = sum(isinstance(segment, Hole) for segment in inner)
        fills = [HoleFill((Candidate(f"<{index}>", 0.5),) if found[index] else ()) for index in range(count)]
        yield from (FillStep(index, 1, (), 0.0) for index in range(count))
        yield FillResult(tuple(fills), "toy", cost=Cost(forwards=count))

    *steps, result = refine(FillRequest(segments=tuple(segments)), score=score, fill=fill)

    assert isinstance(result, FillResult)
    assert spelt(inner) == spelt(segments)
    asked = [segment for segment in segments if isinstance(segment, Hole)]
    new = iter([fill.text or hole.text for hole, fill in zip(asked, result.holes, strict=True)])
    marks = (f"<{index}>" if found[index] else None for index in range(len(found)))
    assert "".join(next(new) if isinstance(segment, Hole) else segment for segment in segments) == "".join(
        (next(marks) or segment.text) if isinstance(segment, Hole) else segment for segment in inner
    )
    assert len(steps) == sum(isinstance(segment, Hole) for segment in inner)
    assert result.cost.forwards == len(steps) + sum(bool(hole.text) for hole in asked)


def spelt(segments: Sequence[Segment]) -> str:
    return "".join(segment.text if isinstance(segment, Hole) else segment for segment in segments)


@settings(max_examples=60)
@given(document_text, document_text, document_text, strengths)
def test_a_models_own_refinement_keeps_the_lines_and_changes_something_or_says_why(
    before: str, text: str, after: str, strength: float
) -> None:
    engine = Engine(toy(Scribbler()))
    fill = engine.fill(refining(text or "x", strength, before=before, after=after)).holes[0]
    if fill.candidates:
        assert fill.text != text
        assert LINE_END.findall(fill.text) == LINE_END.findall(text or "x")
    else:
        assert fill.reason


# What a refinement answers

CODE = "def f(x):\n    retrun x\n"
RETRUN = {"raw": "return", "confidence": 0.9, "scores": [["retrun", 0.01], ["return", 0.8]]}


def test_the_least_certain_word_is_replaced_and_the_answer_is_the_whole_text(scripted: Scripted) -> None:
    result = scripted(RETRUN).fill(refining(CODE, before="import a\n", after="f(1)\n"))
    assert result.holes == (HoleFill((Candidate("def f(x):\n    return x\n", 0.9),)),)
    assert (result.stopped, result.rounds) == (Stopped.DONE, 1)


def test_the_model_sees_what_is_locked_and_not_what_is_opened(scripted: Scripted, tmp_path: Path) -> None:
    scripted(RETRUN).fill(refining(CODE, before="import a\n", after="f(1)\n"))
    (call,) = calls(tmp_path)
    assert call["prefix"] == "import a\ndef f(x):\n    "
    assert call["suffix"] == " x\nf(1)\n"
    assert call["max_tokens"] == 17  # the one word, and room


def test_every_line_end_of_the_locked_text_stays(scripted: Scripted, tmp_path: Path) -> None:
    result = scripted(RETRUN).fill(refining("a\r\n\tretrun x\rb\n\r\n", before="\n", after="\r\n"))
    assert result.holes[0].text == "a\r\n\treturn x\rb\n\r\n"
    assert calls(tmp_path)[0]["prefix"] == "\na\n\t"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("retrun", "it is what stands there"),
        ("reutrn", "the model is less sure of it"),
        ("rtn", "the model is as sure of it"),
        ("return 1\n    return", "it would add a line"),
        ("return (", "it would open a bracket"),
        (" ", "it is blank"),
    ],
)
def test_a_word_stays_unless_the_model_is_surer_of_one_that_fits(
    scripted: Scripted, raw: str, why: str
) -> None:
    scores = [["return (", 0.9], ["retrun", 0.2], ["reutrn", 0.1], ["rtn", 0.2], ["return", 0.9]]
    fill = scripted({"raw": raw, "scores": scores}).fill(refining(CODE)).holes[0]
    assert (fill.candidates, fill.reason) == ((), UNCHANGED), why


def test_of_several_candidates_the_one_the_model_is_surest_of_is_taken() -> None:
    model = toy(Scribbler())
    engine = Engine(model)
    alone = engine.fill(refining("xyz", before="ab ", after=" c")).holes[0]
    request = FillRequest(segments=("ab ", Hole(text="xyz", strength=0.5), " c"), candidates=4)
    fill = engine.fill(request).holes[0]
    assert len(alone.candidates) == len(fill.candidates) == 1

    def surety(text: str) -> float:
        return model.score(hole_request("ab ", " c"), text, never).mean_log_probability

    assert surety(fill.text) >= surety(alone.text) > surety("xyz")


def test_strength_zero_and_blank_text_open_nothing(scripted: Scripted, tmp_path: Path) -> None:
    engine = scripted(RETRUN)
    for request in (refining(CODE, 0.0), refining(" \n\t\r\n", 0.9)):
        result = engine.fill(request)
        assert (result.holes, result.stopped) == ((HoleFill((), UNCHANGED),), Stopped.DONE)
    assert not (tmp_path / "script.json.calls.jsonl").exists()


def test_nearly_full_strength_opens_every_word(scripted: Scripted, tmp_path: Path) -> None:
    scripted({"raw": "a"}).fill(refining("(foo, bar)\n  baz()", 0.999))
    assert [(call["prefix"], call["suffix"]) for call in calls(tmp_path)] == [
        ("", "\n  baz()"),
        ("(foo, bar)\n  ", ""),
    ]


def test_where_no_text_stands_strength_means_nothing(scripted: Scripted) -> None:
    assert scripted({"raw": "1"}).fill(refining("", 0.3, before="x = ")).holes[0].text == "1"


def test_a_size_that_is_asked_for_holds_for_every_opened_span(scripted: Scripted, tmp_path: Path) -> None:
    request = FillRequest(segments=("", Hole(5, CODE, 0.01), ""))
    scripted(RETRUN).fill(request)
    assert calls(tmp_path)[0]["max_tokens"] == 5
    nothing = FillRequest(segments=("", Hole(0, CODE, 0.01), ""))
    assert scripted(RETRUN).fill(nothing).holes[0].reason == UNCHANGED


def test_opened_words_and_other_holes_of_the_request_are_filled_together(
    scripted: Scripted, tmp_path: Path
) -> None:
    scores = [["retrun", 0.01], ["return", 0.9], ["pritn", 0.02], ["print", 0.9]]
    engine = scripted(
        *({"raw": raw, "scores": scores} for raw in ("return", "1", "print", "return", "2", "print"))
    )
    request = FillRequest(
        segments=(
            "",
            Hole(text=CODE, strength=0.1),
            "x = ",
            Hole(),
            "\n",
            Hole(text="pritn(x)", strength=0.1),
            "",
        )
    )
    result = engine.fill(request)
    assert [fill.text for fill in result.holes] == ["def f(x):\n    return x\n", "2", "print(x)"]
    first, second, third, *again = calls(tmp_path)
    assert (first["prefix"], first["suffix"]) == ("def f(x):\n    ", " x\nx = \npritn(x)")
    assert (second["prefix"], second["suffix"]) == ("def f(x):\n    return x\nx = ", "\npritn(x)")
    assert (third["prefix"], third["suffix"]) == ("def f(x):\n    return x\nx = 1\n", "(x)")
    assert (result.rounds, len(again)) == (2, 3)


def test_steps_carry_the_number_of_the_hole_and_count_on_over_its_words(scripted: Scripted) -> None:
    *steps, _ = scripted({"raw": "1"}).stream(
        FillRequest(
            segments=("", Hole(text="a.b.c.d.e\nf.g", strength=0.99), "", Hole(text="h", strength=0.5), "")
        )
    )
    numbers = [(step.hole, step.step) for step in steps if isinstance(step, FillStep)]
    assert numbers == [(0, 1), (0, 2), (1, 1)]


def test_scoring_is_part_of_the_cost(scripted: Scripted) -> None:
    cost = scripted(RETRUN).fill(refining(CODE)).cost
    assert cost.forwards == 1 + 1 + 2  # the whole text; the fill; the old word and the new one


def test_a_script_that_scores_nothing_has_no_better_word(scripted: Scripted) -> None:
    assert scripted({"raw": "return"}).fill(refining(CODE)).holes[0].reason == UNCHANGED


@pytest.mark.parametrize("scores", ["a", [["a"]], [["a", 2]], [["", 0.5]], [["a", "b"]], [5]])
def test_scores_of_a_script_that_mean_nothing_are_named(scripted: Scripted, scores: object) -> None:
    with pytest.raises(InputFileError, match="scores"):
        scripted({"raw": "x", "scores": scores})


@pytest.mark.parametrize("strength", [-0.1, 1.1, math.nan])
def test_a_strength_outside_its_range_is_refused(scripted: Scripted, strength: float) -> None:
    with pytest.raises(BadRequestError, match="strength from 0 to 1"):
        scripted(RETRUN).stream(refining(CODE, strength))


def test_whatever_a_model_raises_while_scoring_becomes_one_line() -> None:
    class Broken(ToyNetwork):
        def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
            raise ValueError("shapes differ")

    with pytest.raises(ModelFailedError, match=r"^the model toy failed \(ValueError: shapes differ\)$"):
        Engine(toy(Broken())).fill(refining(CODE))


# Cancellation and deadlines


def test_whenever_it_is_cancelled_nothing_is_offered() -> None:
    engine = Engine(toy(Scribbler()))
    request = refining("xyz = uvw\nuvw", 0.9)
    done = 0
    for calls_left in range(100):
        asked = iter([False] * calls_left)
        result = engine.fill(request, cancelled=lambda asked=asked: next(asked, True))  # type: ignore[misc]
        done += result.stopped is Stopped.DONE
        assert (result.stopped is Stopped.CANCELLED) == (result.holes == (HoleFill((), "cancelled"),))
    assert 0 < done < 100


def test_a_deadline_keeps_what_was_found_and_the_old_words_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Ticking(Scribbler):
        def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
            now[0] += 1e-3
            return super().forward(passes)

    texts = []
    for deadline_ms in range(1, 60):
        now[0] = 0.0
        request = FillRequest(
            segments=("", Hole(text="xyz\nuvw\nxyz", strength=0.9), ""), deadline_ms=deadline_ms
        )
        result = Engine(toy(Ticking())).fill(request)
        texts.append(result.holes[0].text)
        if not texts[-1] and result.stopped is Stopped.DEADLINE:
            assert result.holes[0].reason == "deadline"
    changed = [
        sum(new != old for new, old in zip(text.split("\n"), ("xyz", "uvw", "xyz"), strict=True))
        for text in texts
        if text
    ]
    assert not texts[0]
    assert {1, 2} <= set(changed)


# A rewrite: every slot open


def test_a_rewrite_does_not_show_the_model_the_old_text_and_has_room_for_its_length(
    scripted: Scripted, tmp_path: Path
) -> None:
    old = "x = 1 # one\r\n" * 20
    for text, size in ((old, 151), ("x", 17), (old * 9, 256)):
        scripted({"raw": "y = 2\n"}).fill(FillRequest(segments=("a\r\n", Hole(text=text), "b\r\n")))
        call = calls(tmp_path)[-1]
        assert (call["prefix"], call["suffix"], call["max_tokens"]) == ("a\n", "b\n", size)


def test_a_rewrite_takes_the_line_ends_of_the_text_it_replaces(scripted: Scripted) -> None:
    request = FillRequest(segments=("", Hole(text="a\r\nb\r\n"), ""))
    assert scripted({"raw": "c\nd\n"}).fill(request).holes[0].text == "c\r\nd\r\n"


def test_a_rewrite_to_the_same_text_is_not_offered(scripted: Scripted) -> None:
    fill = scripted({"raw": "a\nb"}).fill(FillRequest(segments=("", Hole(text="a\r\nb"), ""))).holes[0]
    assert (fill.candidates, fill.reason) == ((), UNCHANGED)


def test_a_hole_sees_the_old_text_of_the_others_until_there_is_a_new_one(
    scripted: Scripted, tmp_path: Path
) -> None:
    request = FillRequest(segments=("x = ", Hole(text="1"), "\ny = ", Hole(text="2"), "\n"))
    scripted({"raw": "3"}).fill(request)
    assert [(call["prefix"], call["suffix"]) for call in calls(tmp_path)] == [
        ("x = ", "\ny = 2\n"),
        ("x = 3\ny = ", "\n"),
        ("x = ", "\ny = 3\n"),
    ]


# Scoring


@given(st.text(st.sampled_from("ab é🚀\n中"), max_size=30), st.integers(1, 9))
def test_scores_tile_the_text_however_it_is_cut_into_sections_and_forwards(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        model = toy(ToyNetwork())
        whole = model.score(hole_request("x = ", ";"), text, never)
        patch.setattr(scoring, "CHUNK_TOKENS", size)
        assert model.score(hole_request("x = ", ";"), text, never).tokens == whole.tokens
        patch.setattr(diffusion, "SECTION_TOKENS", size)
        in_sections = model.score(hole_request("x = ", ";"), text, never)
    for scores in (whole, in_sections):
        assert scores.finished
        *written, end = scores.tokens
        assert (end.start, end.end) == (len(text), len(text))
        assert "".join(text[token.start : token.end] for token in written) == text
        assert all(0.0 <= token.probability <= 1.0 for token in scores.tokens)


def test_a_text_is_as_likely_as_it_was_when_the_model_wrote_it() -> None:
    model = toy(Scribbler(), "left")
    holes = [hole_request(f"ab{number}", "c", max_tokens=40) for number in range(60)]
    drafts = [[*model.propose(hole, never)][-1].drafts[0] for hole in holes]
    # Inside of a bracket END is forbidden where a text is written, but not where one is scored.
    found = [(h, d) for h, d in zip(holes, drafts, strict=True) if d.finished and not {*"()"} & {*d.text}]
    hole, draft = found[0]
    scores = model.score(hole, draft.text, never)
    assert math.prod(token.probability for token in scores.tokens) == pytest.approx(draft.confidence)


def test_to_score_where_a_hole_was_filled_takes_no_context_again() -> None:
    model = toy(ToyNetwork())
    list(model.propose(hole_request("x = ", ";"), never))
    cost = model.score(hole_request("x = ", ";"), "abc", never).cost
    assert cost.reused_tokens == cost.context_tokens > 0


def test_stop_is_asked_between_two_forwards() -> None:
    network = ToyNetwork()
    asked = iter([None, None, None])
    scores = toy(network).score(hole_request("", ""), "a" * 1000, lambda: next(asked, Stopped.CANCELLED))
    assert not scores.finished
    assert network.forwards == scores.cost.forwards == 2
    assert len(scores.tokens) == 2 * scoring.CHUNK_TOKENS


@pytest.mark.weights
@settings(max_examples=50)
@given(prefix=document_text, text=document_text, suffix=document_text)
@example(prefix="🚀👩\u200d👩\u200d👧👩", text="\u200d👧é́", suffix="́\n")
def test_scores_tile_the_text_with_the_real_vocabulary_wherever_it_begins_and_ends(
    embedded: DiffusionModel[KeyValues], prefix: str, text: str, suffix: str
) -> None:
    model = DiffusionModel(
        name="babbler",
        network=ToyNetwork(EMBEDDED_IDS.end + 1),
        tokenizer=embedded.tokenizer,
        special=EMBEDDED_IDS,
        plan=plan_named("left"),
        limits=Limits(prefix_tokens=60, suffix_tokens=30, path_header=True),
    )
    *written, end = model.score(hole_request(prefix, suffix), text, never).tokens
    assert "".join(text[token.start : token.end] for token in written) == text
    assert (end.start, end.end) == (len(text), len(text))


# The embedded model

WRONG = '''def total(prices: list[float], tax: float) -> float:
    """Sum of prices plus tax."""
    result = 0.0
    for price in prices:
        result += price
    retrun result * (1 + tax)
'''


@pytest.mark.weights
def test_the_embedded_model_finds_a_misspelt_word_and_corrects_nothing_else(
    embedded: DiffusionModel[KeyValues],
) -> None:
    before, after = "import math\n\n\n", "\n\nprint(total([1.0, 2.0], 0.1))\n"
    scores = embedded.score(hole_request(before, after, path="shop.py"), WRONG, never)
    least = sorted(scores.tokens, key=lambda token: token.probability)[:3]
    wrong = WRONG.index("retrun")
    assert any(token.start < wrong + 6 and token.end > wrong for token in least)
    assert scores.tokens[-1].probability > 0.5  # the end of the text is where it should be
    request = FillRequest(
        segments=(before, Hole(text=WRONG, strength=0.05), after), path="shop.py", language="python"
    )
    fill = Engine(embedded).fill(request).holes[0]
    assert "    return result" in fill.text
    assert fill.text.startswith(WRONG[: WRONG.index("prices")])
