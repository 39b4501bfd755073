"""The engine: what a request may ask, what an answer promises, several holes, deadlines, cancellation."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenon_engine import engine as engine_module
from tenon_engine.engine import Engine
from tenon_engine.errors import BadRequestError, ModelFailedError, WeightsMissingError
from tenon_engine.models.base import ContextBudget, Draft, HoleRequest, Proposal, Scores, StopCheck
from tenon_engine.wire import (
    Cost,
    ExtraFile,
    FillRequest,
    FillResult,
    FillStep,
    Hole,
    Slot,
    SlotState,
    Stopped,
)

BUDGET = ContextBudget(prefix_tokens=480, suffix_tokens=128, extra_tokens=256)
COST = Cost(forwards=1, tokens=2, context_tokens=3, context_ms=4.0, denoise_ms=5.0)


class Indifferent:
    """A model without an opinion on text that is there already."""

    device = ""
    reads_instructions = False

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        return Scores((), Cost(), finished=True)

    def count_tokens(self, text: str) -> int:
        return len(text)


class Says(Indifferent):
    """A model that says the same to everyone, or what a function of the hole says, and remembers the holes."""

    name = "says"
    budget = BUDGET

    def __init__(self, *drafts: Draft | str, answer: Callable[[HoleRequest], str] | None = None) -> None:
        self.asked: list[HoleRequest] = []
        self._answer = answer
        self._drafts = tuple(
            draft if isinstance(draft, Draft) else Draft(draft, 1.0, True) for draft in drafts
        )

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        self.asked.append(hole)
        drafts = (Draft(self._answer(hole), 1.0, True),) if self._answer else self._drafts
        yield Proposal(drafts, (Slot(drafts[0].text, SlotState.DECIDED, 1.0),), COST)


class Slow(Indifferent):
    """A model that decides one more piece per step and never ends by itself."""

    name = "slow"
    budget = BUDGET

    def __init__(self, *parts: str, before_step: Callable[[int], None] = lambda step: None) -> None:
        self._parts, self._before_step = parts, before_step

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        for step in itertools.count(1):
            self._before_step(step)
            yield Proposal((Draft("".join(self._parts[:step]), 0.5, False),), (), COST)
            if stop():
                return


def request(*segments: str | Hole, **rest: object) -> FillRequest:
    return dataclasses.replace(FillRequest(segments=segments), **rest)  # type: ignore[arg-type]


LINES = (
    "def f(a):",
    "    return a",
    "\tx = [1,",
    "}",
    "é = '🚀'",
    "",
    "   ",
    "foo(bar)",
    "- item",
    "\u2028",
    "a\x0bb",
)
ENDS = ("\n", "\r\n", "\r")
CONTROL = re.compile(r"<\|\w+\|>|\x00|\ufffd|[\ud800-\udfff]")

any_text = st.one_of(
    st.sampled_from(LINES),
    st.text(max_size=6),
    st.sampled_from(("<|mask|>", "\ufffd", "\x00", "<|endoftext|>")),
)


@st.composite
def fills(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """Any document cut anywhere, and what a model that likes to repeat it says."""
    ends = draw(st.sampled_from([*((end,) for end in ENDS), ENDS]))
    lines = draw(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=8)), max_size=7))
    document = "".join(line + draw(st.sampled_from(ends)) for line in lines) + draw(st.sampled_from(LINES))
    cut = draw(st.integers(0, len(document)))
    prefix, suffix = document[:cut], document[cut:]
    repeated = (suffix, suffix[:9], suffix.lstrip(), prefix[-9:], *suffix.split("\n")[:2])
    piece = st.one_of(any_text, st.sampled_from([*repeated, *ENDS, " ", ")", "    "]))
    return prefix, suffix, draw(st.lists(st.lists(piece, max_size=5).map("".join), min_size=1, max_size=3))


@settings(max_examples=6000, deadline=None, derandomize=True, database=None)
@given(fills())
@example(("a\r", "\nb\r\n", ["x"]))
@example(("a\r", "b\nc\n", ["\nx"]))
@example(("", "", [""]))
def test_whatever_the_model_says_the_applied_document_keeps_its_promises(
    case: tuple[str, str, list[str]],
) -> None:
    prefix, suffix, raws = case
    model = Says(*raws)
    fill = Engine(model).fill(FillRequest.single(prefix, suffix, candidates=len(raws))).holes[0]
    assert "\r" not in model.asked[0].prefix + model.asked[0].suffix
    texts = [candidate.text for candidate in fill.candidates]
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert text.strip()
        assert not CONTROL.search(text)
        assert line_end_kinds(prefix + text + suffix) <= (line_end_kinds(prefix + suffix) or {"\n"})
        assert not repeats_the_rest_of_the_line(text, suffix), text
        assert not repeats_the_next_line(prefix, text, suffix), text


def line_end_kinds(text: str) -> set[str]:
    return set(re.findall(r"\r\n|\r|\n", text))


def lines_of(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text)


def repeats_the_rest_of_the_line(text: str, suffix: str) -> bool:
    """The rest may be said again where it closes what the fill opened, lies deeper, or draws a line."""
    rest = lines_of(suffix)[0].rstrip()
    line = lines_of(text)[-1].rstrip()
    if not re.search(r"\w", rest) or not line.endswith(rest) or re.search(r"[()\[\]{}]", rest):
        return False
    head = line[: len(line) - len(rest)]
    return not (head.isspace() and rest[0].isspace()) and len(set(rest)) > 1


def repeats_the_next_line(prefix: str, text: str, suffix: str) -> bool:
    before = lines_of(prefix)[-1]
    rest, *below = lines_of(suffix)
    filled = lines_of(before + text)
    if rest.strip():
        if filled[-1].strip():
            return False
        below.insert(0, filled.pop() + rest)
    said = [line.rstrip() for line in filled[1 if before.strip() else 0 :] if line.strip()]
    following = [line.rstrip() for line in below if line.strip()]
    return any(
        said[-count:] == following[:count] and any(re.search(r"\w", line) for line in said[-count:])
        for count in range(1, min(len(said), len(following)) + 1)
    )


@pytest.mark.parametrize(
    ("segments", "rest"),
    [
        ((), {}),
        (("a",), {}),
        (("a", Hole()), {}),
        ((Hole(), "a", Hole()), {}),
        (("a", "b", "c"), {}),
        (("a", Hole(), Hole(), "b"), {}),
        (("a", Hole(-1), "b"), {}),
        (("a", Hole(), "b"), {"candidates": 0}),
        (("a", Hole(), "b"), {"candidates": 17}),
        (("a", Hole(), "b"), {"temperature": -0.1}),
        (("a", Hole(), "b"), {"temperature": float("nan")}),
        (("a", Hole(), "b"), {"deadline_ms": 0}),
    ],
)
def test_a_request_that_contradicts_itself_is_refused_in_one_line(
    segments: tuple[str | Hole, ...], rest: dict[str, object]
) -> None:
    model = Says("x")
    with pytest.raises(BadRequestError) as refused:
        Engine(model).stream(request(*segments, **rest))  # at once, before the first step is asked for
    assert "\n" not in str(refused.value)
    assert not model.asked


def test_the_model_gets_the_request_with_lf_alone() -> None:
    model = Says("x")
    asked = request(
        "a\r\nb\r",
        Hole(7),
        "\rc",
        path="a.go",
        language="go",
        extra=(ExtraFile("b.go", "d\r\ne"),),
        candidates=2,
        temperature=0.5,
        seed=3,
        session="s",
    )
    Engine(model).fill(asked)
    assert model.asked == [
        HoleRequest(
            prefix="a\nb\n",
            suffix="\nc",
            path="a.go",
            language="go",
            extra=(ExtraFile("b.go", "d\ne"),),
            max_tokens=7,
            candidates=2,
            temperature=0.5,
            seed=3,
            session="s",
        )
    ]


@pytest.mark.parametrize(
    ("document", "end"),
    [("a\r\nb\r\nc\n", "\r\n"), ("a\nb\nc\r\n", "\n"), ("a\rb\r", "\r"), ("a", "\n")],
)
def test_a_fill_takes_the_line_end_that_the_document_uses_most(document: str, end: str) -> None:
    fill = Engine(Says("x\r\ny\nz\rw")).fill(FillRequest.single("", document)).holes[0]
    assert fill.text == f"x{end}y{end}z{end}w"


def test_nothing_is_offered_between_the_halves_of_a_crlf() -> None:
    fill = Engine(Says("x")).fill(FillRequest.single("a\r", "\nb")).holes[0]
    assert (fill.text, fill.reason) == ("", engine_module.LINE_END)


def test_a_model_that_reads_instructions_gets_one_apart_from_the_text() -> None:
    model = Says("1")
    model.reads_instructions = True
    Engine(model).fill(FillRequest.single("x = ", "\n", instruction=" sort by age "))
    assert [(hole.prefix, hole.instruction) for hole in model.asked] == [("x = ", "sort by age")]


@pytest.mark.parametrize(
    ("language", "line"),
    [
        (None, "    # sort by age"),
        ("python", "    # sort by age"),
        ("rust", "    // sort by age"),
        ("html", "    <!-- sort by age -->"),
    ],
)
def test_an_instruction_is_a_comment_before_the_holes_line_in_the_context_only(
    language: str | None, line: str
) -> None:
    model = Says("y")
    answer = Engine(model).fill(
        FillRequest.single("a\n    x = ", "\n", instruction="sort\n by age ", language=language)
    )
    assert model.asked[0].prefix == f"a\n{line}\n    x = "
    assert answer.holes[0].text == "y"


def test_an_empty_document_can_be_filled() -> None:
    assert Engine(Says("x = 1")).fill(FillRequest.single("", "")).holes[0].text == "x = 1"


def test_the_best_candidate_is_first_and_equal_or_empty_ones_are_gone() -> None:
    drafts = [
        Draft("b", 0.2, True),
        Draft("a", 0.9, True),
        Draft("b<|endoftext|>", 0.4, True),
        Draft(" ", 1.0, True),
    ]
    fill = Engine(Says(*drafts)).fill(FillRequest.single("x = ", "", candidates=4)).holes[0]
    assert [(each.text, each.confidence) for each in fill.candidates] == [("a", 0.9), ("b", 0.4)]
    assert (fill.text, fill.confidence, fill.reason) == ("a", 0.9, "")


def test_below_the_threshold_there_is_silence_and_a_reason() -> None:
    drafts = [Draft("a", 0.5, True), Draft("b", 0.2, True)]
    request = FillRequest.single("x = ", "", candidates=2)
    assert [
        each.text for each in Engine(Says(*drafts), min_confidence=0.3).fill(request).holes[0].candidates
    ] == ["a"]
    silent = Engine(Says(*drafts), min_confidence=0.6).fill(request).holes[0]
    assert (silent.candidates, silent.reason) == ((), engine_module.UNSURE)


def test_a_budget_of_zero_is_no_suggestion_and_no_exception() -> None:
    model = Says("x")
    result = Engine(model).fill(request("a", Hole(0), "b"))
    assert (result.holes[0].candidates, result.holes[0].reason) == ((), engine_module.NO_BUDGET)
    assert (result.stopped, model.asked) == (Stopped.DONE, [])


def test_steps_come_first_and_the_result_last() -> None:
    *steps, result = Engine(Slow("a", " = 1\n", "b")).stream(
        FillRequest.single("", ""), cancelled=Countdown(calls=4)
    )
    assert [step.step for step in steps if isinstance(step, FillStep)] == list(range(1, len(steps) + 1))
    assert isinstance(result, FillResult)


class Countdown:
    """True from the call after `calls` on."""

    def __init__(self, calls: int) -> None:
        self._calls = calls

    def __call__(self) -> bool:
        self._calls -= 1
        return self._calls < 0


def test_after_cancellation_nothing_is_offered() -> None:
    for calls in range(6):
        result = Engine(Slow("a = 1\n", "b")).fill(FillRequest.single("", ""), cancelled=Countdown(calls))
        assert result.stopped is Stopped.CANCELLED
        assert [fill.candidates for fill in result.holes] == [()]


def test_a_fill_that_ends_as_it_is_cancelled_is_not_offered() -> None:
    result = Engine(Says("a")).fill(request("", Hole(), "\n", Hole(), ""), cancelled=Countdown(2))
    assert (result.stopped, [fill.text for fill in result.holes]) == (Stopped.CANCELLED, ["", ""])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as the engine sees it."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def tick(clock: list[float], seconds: float) -> Callable[[int], None]:
    def before_step(step: int) -> None:
        clock[0] += seconds

    return before_step


def test_after_a_deadline_the_longest_whole_piece_is_offered(clock: list[float]) -> None:
    model = Slow("a = foo(", "1)", "\nb", " = 2\n", "c", before_step=tick(clock, 0.1))
    result = Engine(model).fill(FillRequest.single("", "", deadline_ms=450))
    assert (result.stopped, result.holes[0].text) == (Stopped.DEADLINE, "a = foo(1)\nb = 2")
    assert result.holes[0].reason == "unfinished"
    assert result.cost.total_ms == pytest.approx(500)


def test_after_a_deadline_half_a_call_is_not_offered(clock: list[float]) -> None:
    result = Engine(Slow("foo(", "1", before_step=tick(clock, 1.0))).fill(
        FillRequest.single("x = ", "", deadline_ms=10)
    )
    assert (result.stopped, result.holes[0].candidates) == (Stopped.DEADLINE, ())


def test_an_answer_that_was_finished_when_the_deadline_passed_counts(clock: list[float]) -> None:
    def late(hole: HoleRequest) -> str:
        clock[0] += 9.0
        return "a"

    result = Engine(Says(answer=late)).fill(FillRequest.single("x = ", "", deadline_ms=10))
    assert (result.stopped, result.holes[0].text) == (Stopped.DONE, "a")


def test_holes_that_a_deadline_leaves_no_time_for_stay_empty(clock: list[float]) -> None:
    def late(hole: HoleRequest) -> str:
        clock[0] += 9.0
        return "a"

    result = Engine(Says(answer=late)).fill(request("x = ", Hole(), "\ny = ", Hole(), "\n", deadline_ms=10))
    assert (result.stopped, result.rounds) == (Stopped.DEADLINE, 1)
    assert [(fill.text, fill.reason) for fill in result.holes] == [("a", ""), ("", "deadline")]


def test_each_hole_sees_the_others_as_they_are_and_a_second_round_revisits_the_first() -> None:
    model = Says(answer=lambda hole: "1" if hole.suffix.startswith("\nb") else "2")
    result = Engine(model).fill(request("a = ", Hole(), "\nb = ", Hole(), "\nc"))
    assert [(hole.prefix, hole.suffix) for hole in model.asked] == [
        ("a = ", "\nb = \nc"),
        ("a = 1\nb = ", "\nc"),
        ("a = ", "\nb = 2\nc"),
    ]
    assert ([fill.text for fill in result.holes], result.rounds) == (["1", "2"], 2)
    assert result.cost == dataclasses.replace(COST + COST + COST, total_ms=result.cost.total_ms)


def test_a_hole_whose_neighbour_changed_in_the_second_round_is_revisited_there_and_no_more() -> None:
    asked: Counter[str] = Counter()

    def always_new(hole: HoleRequest) -> str:
        asked[hole.suffix[:2]] += 1
        return f"{hole.suffix[1]}{asked.total()}"

    result = Engine(Says(answer=always_new)).fill(
        request("x = ", Hole(), "\nb = ", Hole(), "\nc = ", Hole(), "\nd")
    )
    assert (result.rounds, asked) == (2, {"\nb": 2, "\nc": 2, "\nd": 2})


def test_one_hole_takes_one_round() -> None:
    model = Says("1")
    assert Engine(model).fill(FillRequest.single("a = ", "")).rounds == len(model.asked) == 1


def test_a_second_round_that_finds_nothing_in_time_keeps_the_first_answer(clock: list[float]) -> None:
    class SlowSecondTime(Says):
        def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
            if len(self.asked) == 2:
                clock[0] += 9.0
                return
            yield from super().propose(hole, stop)

    result = Engine(SlowSecondTime("1")).fill(request("a = ", Hole(), "\nb = ", Hole(), "\n", deadline_ms=10))
    assert (result.stopped, [fill.text for fill in result.holes]) == (Stopped.DEADLINE, ["1", "1"])


def test_whatever_a_model_raises_becomes_one_line() -> None:
    def fail(hole: HoleRequest) -> str:
        raise ValueError("shapes differ\nat layer 3")

    with pytest.raises(
        ModelFailedError, match=r"^the model says failed \(ValueError: shapes differ\)$"
    ) as failed:
        Engine(Says(answer=fail)).fill(FillRequest.single("", ""))
    assert isinstance(failed.value.__cause__, ValueError)


def test_an_engine_error_of_a_model_stays_what_it_is() -> None:
    def fail(hole: HoleRequest) -> str:
        raise WeightsMissingError("run `tenon model fetch`")

    with pytest.raises(WeightsMissingError, match="run `tenon model fetch`"):
        Engine(Says(answer=fail)).fill(FillRequest.single("", ""))


def test_a_model_that_proposes_nothing_is_no_suggestion() -> None:
    class Silent(Says):
        def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
            return iter(())

    fill = Engine(Silent()).fill(FillRequest.single("", "")).holes[0]
    assert (fill.candidates, fill.reason) == ((), engine_module.NO_PROPOSAL)
