"""Code actions, with the real engine process and a scripted model: what is offered, and what carrying it out edits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.lsp.connection import on_loop, run
from tests.lsp.document import applied, at_cursor, at_selection, show
from tests.lsp.script import Script

from tenon_engine import line_ends
from tenon_engine.wire import FillStep
from tenon_lsp.actions import (
    HOLES_AT_MOST,
    SELECTION_CHARACTERS,
    Deed,
    Means,
    Offer,
    Refused,
    carry_out,
    offers,
)
from tenon_lsp.context import Budget
from tenon_lsp.documents import Documents, Snapshot
from tenon_lsp.engines.client import EngineError, EngineFault
from tenon_lsp.engines.daemon import daemon_engine
from tenon_lsp.engines.health import Listeners
from tenon_lsp.hunks import Edit
from tenon_lsp.place import Place
from tenon_lsp.positions import Encoding
from tenon_lsp.settings import Settings

FENCE = "```"
URI = "file:///work/file"
REFINEMENTS = [Deed.REFINE_LIGHT, Deed.REFINE_MEDIUM, Deed.REFINE_STRONG]
ON_SELECTION = [Deed.REWRITE, *REFINEMENTS]


class Stage:
    """A scripted engine, and the means to carry actions out with it."""

    def __init__(self, folder: Path) -> None:
        self.script = Script(folder / "script.json")
        self.engine = daemon_engine(f"scripted:{self.script.path}", Listeners(), idle_minutes=0)
        self.steps: list[FillStep] = []

    def means(self, settings: Settings | None = None, instruction: str | None = None) -> Means:
        return Means(
            self.engine,
            settings or Settings(),
            Budget.of(480, 128, 256),
            instruction=instruction,
            on_step=self.steps.append,
        )

    async def edits(self, marked: str, deed: Deed, language: str = "python", **options: object) -> list[Edit]:
        """The edits of an action; all are in what it was offered for, apart from each other, and change something."""
        snapshot, start, end = opened(marked, language)
        offer = Offer(deed, URI, 1, start, end)
        edits = await carry_out(offer, snapshot, self.means(configured(**options)))
        source = snapshot.text.source
        first, last = (0, len(source)) if deed is Deed.FILL_HOLES and start == end else (start, end)
        assert edits
        assert all(first <= edit.start <= edit.end <= last for edit in edits)
        assert all(one.end <= other.start for one, other in itertools.pairwise(edits))
        assert all(source[edit.start : edit.end] != edit.new for edit in edits)
        return edits

    async def after(self, marked: str, deed: Deed, language: str = "python", **options: object) -> str:
        """The document after an action."""
        snapshot, _, _ = opened(marked, language)
        edits = await self.edits(marked, deed, language, **options)
        return applied(snapshot.text.source, edits)


def configured(**options: object) -> Settings:
    settings, complaints = Settings.parse(options)
    assert complaints == []
    return settings


def opened(marked: str, language: str) -> tuple[Snapshot, int, int]:
    """The document, and what of it is selected; a cursor selects nothing."""
    if "█" in marked:
        source, start = at_cursor(marked)
        end = start
    else:
        source, start, end = at_selection(marked)
    documents = Documents(Encoding.UTF_16)
    documents.open(URI, language, 1, source)
    snapshot = documents.snapshot(URI)
    assert snapshot is not None
    return snapshot, start, end


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("stage"))
    yield stage
    run(stage.engine.close())


@pytest.fixture
def stage(shared: Stage) -> Stage:
    shared.script.says("")
    shared.script.forget_calls()
    shared.steps.clear()
    return shared


@pytest.fixture
def in_turn(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """A stage of its own, whose model answers with these texts in turn."""
    stage = Stage(tmp_path)

    def prepared(*texts: str) -> Stage:
        stage.script.path.write_text(json.dumps([{"raw": text} for text in texts]), encoding="utf-8")
        return stage

    yield prepared
    run(stage.engine.close())


async def refusal(work: Awaitable[object]) -> str:
    with pytest.raises(Refused) as refused:
        await work
    return str(refused.value)


# What is offered

OFFERS = [
    ("python", "x = ⟦1 + 2⟧⏎", ON_SELECTION),
    ("python", "x = 1⟦⏎␣␣⟧y = 2⏎", []),
    ("python", "def f():⏎␣␣␣␣█⏎", [Deed.COMPLETE_BLOCK]),
    ("python", 'def f():⏎␣␣␣␣"""Do █"""⏎', [Deed.COMPLETE_DOCSTRING]),
    ("markdown", "Some █⏎", []),
    ("markdown", f"{FENCE}py⏎x = █⏎{FENCE}⏎", [Deed.COMPLETE_BLOCK]),
    ("klingon", "x = █⏎", []),
    ("klingon", "⟦x⟧ = 1⏎", ON_SELECTION),
    ("python", "█x = ___⏎", [Deed.COMPLETE_BLOCK, Deed.FILL_HOLES]),
    ("markdown", "█x ___⏎", [Deed.FILL_HOLES]),
    ("python", "⟦x = ___⟧⏎", [*ON_SELECTION, Deed.FILL_HOLES]),
    ("python", "⟦x = 1⟧⏎y = ___⏎", ON_SELECTION),
    ("python", "⟦x = TODO_FILL⏎⟧", [*ON_SELECTION, Deed.FILL_HOLES]),
    ("klingon", "a___b ____ __init__ TODO_FILLED xTODO_FILL⏎█", []),
    ("klingon", "⟦___⟧b⏎", ON_SELECTION),
    ("klingon", "(___)+TODO_FILL.█", [Deed.FILL_HOLES]),
    ("markdown", "█Text⏎⏎___⏎⏎More⏎", []),
    ("markdown", "█Text⏎⏎> ___⏎⏎More⏎", []),
    ("markdown", "█Text⏎⏎- ___⏎", [Deed.FILL_HOLES]),
    ("markdown", "█This is ___very bold___.⏎", []),
    ("markdown", f"█{FENCE}py⏎___⏎{FENCE}⏎", [Deed.FILL_HOLES]),
]


@pytest.mark.parametrize(("language", "marked", "deeds"), OFFERS)
def test_what_is_offered(language: str, marked: str, deeds: list[Deed]) -> None:
    snapshot, start, end = opened(marked, language)
    found = offers(Place.at(snapshot, start, end), Settings())
    assert [offer.deed for offer in found] == deeds
    assert all((offer.uri, offer.version, offer.start, offer.end) == (URI, 1, start, end) for offer in found)


def test_the_user_names_the_markers() -> None:
    snapshot, start, end = opened("x = ??? + ___⏎█", "klingon")
    place = Place.at(snapshot, start, end)
    assert [offer.deed for offer in offers(place, configured(holeMarkers=["???"]))] == [Deed.FILL_HOLES]
    assert offers(place, configured(holeMarkers=["!!!"])) == []
    assert offers(place, configured(holeMarkers=[])) == []


@pytest.mark.parametrize("deed", Deed)
def test_every_deed_has_a_title_and_a_kind(deed: Deed) -> None:
    assert deed.title.startswith("Tenon: ")
    assert Offer(deed, URI, 1, 0, 0).kind == f"refactor.rewrite.tenon.{deed.value}"


# Rewrite

GUIDE = f"# Guide⏎⏎⟦Run:⏎⏎{FENCE}sh⏎npm test⏎{FENCE}⏎⏎Done⟧⏎⏎More⏎"
REWRITES = [
    ("python", "x = ⟦1 + 2⟧  # keep⏎", "3", "x = 3  # keep⏎"),
    ("python", "x =⟦ 1 + 2  ⟧# keep⏎", "3", "x = 3  # keep⏎"),
    ("python", "a = 1⏎⟦b = 2⏎⟧c = 3⏎", "b = 4⏎", "a = 1⏎b = 4⏎c = 3⏎"),
    (
        *("python", "def f(a):⏎⟦␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣b()⏎⟧␣␣␣␣d()⏎", "if a:⏎␣␣␣␣c()"),
        "def f(a):⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()⏎␣␣␣␣d()⏎",
    ),
    (
        *("python", "def f(a):⏎␣␣␣␣⟦if a:⏎␣␣␣␣␣␣␣␣b()⟧⏎", f"{FENCE}py⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()⏎{FENCE}"),
        "def f(a):⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()⏎",
    ),
    ("go", "⟦func f() {⏎⇥a()⏎}⟧⏎", "func f() {⏎␣␣␣␣b()⏎}", "func f() {⏎⇥b()⏎}⏎"),
    ("markdown", GUIDE, "Read this.", "# Guide⏎⏎Read this.⏎⏎More⏎"),
    ("markdown", f"{FENCE}py⏎x = ⟦1⟧⏎{FENCE}⏎text⏎", "2", f"{FENCE}py⏎x = 2⏎{FENCE}⏎text⏎"),
    ("markdown", "- one⏎␣␣- ⟦two⏎␣␣- three⟧⏎", "2⏎- 3", "- one⏎␣␣- 2⏎␣␣- 3⏎"),
    ("markdown", f"{FENCE}py⏎x = ⟦1⏎{FENCE}⏎⏎text⟧⏎", f"2⏎{FENCE}⏎⏎word", f"{FENCE}py⏎x = 2⏎{FENCE}⏎⏎word⏎"),
    ("klingon", "s = '🚀'; x = ⟦1⟧ # 🚀⏎", "2", "s = '🚀'; x = 2 # 🚀⏎"),
]


@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("language", "marked", "raw", "after"), REWRITES)
@on_loop
async def test_a_rewrite(
    stage: Stage, language: str, marked: str, raw: str, after: str, line_end: str
) -> None:
    stage.script.says(raw)
    result = await stage.after(marked.replace("⏎", line_end), Deed.REWRITE, language)
    assert result == show(after.replace("⏎", line_end))


@on_loop
async def test_a_rewrite_touches_only_the_lines_that_change(stage: Stage) -> None:
    stage.script.says("a = 1⏎b = 5⏎c = 3⏎d = 6")
    edits = await stage.edits("⟦a = 1⏎b = 2⏎c = 3⏎d = 4⟧⏎", Deed.REWRITE)
    assert edits == [Edit(10, 11, "5"), Edit(22, 23, "6")]


REFUSED_REWRITES = [
    ("x = ⟦1 + 2⟧⏎", "1 + 2", "python"),
    ("x = ⟦1 + 2⟧⏎", "", "python"),
    ("x = ⟦1 + 2⟧⏎", "= = 3", "python"),
    (GUIDE, f"Run:⏎⏎{FENCE}sh⏎npm test", "markdown"),
]


@pytest.mark.parametrize(("marked", "raw", "language"), REFUSED_REWRITES)
@on_loop
async def test_a_rewrite_that_brings_nothing_is_refused(
    stage: Stage, marked: str, raw: str, language: str
) -> None:
    stage.script.says(raw)
    assert "no other text" in await refusal(stage.edits(marked, Deed.REWRITE, language))


@pytest.mark.parametrize("deed", ON_SELECTION)
@on_loop
async def test_nothing_but_space_is_no_selection(stage: Stage, deed: Deed) -> None:
    assert await refusal(stage.edits("x = 1⟦⏎␣␣⟧", deed)) == "nothing is selected"
    assert stage.script.calls() == []


@on_loop
async def test_a_selection_may_be_so_long_and_no_longer(stage: Stage) -> None:
    stage.script.says("y")
    assert await stage.after(f"⟦{'x' * SELECTION_CHARACTERS}⟧⏎", Deed.REWRITE, "klingon") == "y\n"
    stage.script.forget_calls()
    sentence = await refusal(stage.edits(f"⟦{'x' * (SELECTION_CHARACTERS + 1)}⟧⏎", Deed.REWRITE))
    assert "too long" in sentence
    assert stage.script.calls() == []


@on_loop
async def test_the_model_is_told_what_is_wanted_and_what_is_around(stage: Stage) -> None:
    stage.script.says("3")
    snapshot, start, end = opened("x = ⟦1 + 2⟧  # keep⏎", "python")
    means = stage.means(instruction="shorter")
    await carry_out(Offer(Deed.REWRITE, URI, 1, start, end), snapshot, means)
    (call,) = stage.script.calls()
    assert "shorter" in call["prefix"]
    assert call["prefix"].endswith("x = ")
    assert (call["suffix"], call["language"], call["candidates"]) == ("  # keep\n", "python", 3)
    assert [step.step for step in stage.steps] == [1]


@on_loop
async def test_a_failure_of_the_model_is_the_engines_error(stage: Stage) -> None:
    stage.script.says(fail="out of memory")
    with pytest.raises(EngineError) as failed:
        await stage.edits("x = ⟦1⟧⏎", Deed.REWRITE)
    assert failed.value.code is EngineFault.FAILED
    assert "out of memory" in str(failed.value)


PIECES = [
    "a()",
    "if a:",
    "    b()",
    "\tb()",
    "x = [1]",
    "",
    "]",
    "# é🚀",
    "```",
    "```sh",
    "- a",
    "'",
    "{",
    "}",
]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("⏎".join)


@examples(max_examples=60)
@given(
    *(TEXTS, TEXTS, TEXTS, TEXTS),
    st.sampled_from(["python", "markdown", "go", "klingon"]),
    st.sampled_from(["⏎", "␍⏎"]),
    st.sampled_from([*ON_SELECTION, Deed.COMPLETE_BLOCK, Deed.FILL_HOLES]),
)
def test_whatever_the_model_writes_stays_where_it_was_asked_for(
    shared: Stage, before: str, old: str, after: str, raw: str, language: str, line_end: str, deed: Deed
) -> None:
    shared.script.says(raw)
    marked = f"{before} ⟦{old} ___⟧ {after}"
    if deed is Deed.COMPLETE_BLOCK:
        marked = f"{before} █ {after}"
    marked = marked.replace("⏎", line_end)
    try:
        edits = run(shared.edits(marked, deed, language))
    except Refused:
        return
    source = opened(marked, language)[0].text.source
    result = applied(source, edits)
    if "\r" in source:
        assert result.count("\n") == result.count("\r\n") == result.count("\r")
    else:
        assert "\r" not in result


# Refine


@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("deed", REFINEMENTS)
@on_loop
async def test_a_refinement_changes_what_the_model_is_least_sure_of(
    stage: Stage, deed: Deed, line_end: str
) -> None:
    stage.script.says("three", scores=[["one", 0.9], ["two", 0.01], ["three", 0.95]])
    marked = "a = 0⏎⟦b = [⏎␣␣␣␣one,⏎␣␣␣␣two,⏎]⏎⟧c = 0⏎".replace("⏎", line_end)
    result = await stage.after(marked, deed)
    assert "two" not in result
    assert result.startswith(show("a = 0⏎b = [⏎␣␣␣␣".replace("⏎", line_end)))
    assert result.endswith(show("⏎]⏎c = 0⏎".replace("⏎", line_end)))


@on_loop
async def test_a_light_refinement_locks_all_the_rest(stage: Stage) -> None:
    stage.script.says("9", scores=[["1", 0.9], ["2", 0.01], ["9", 0.95]])
    edits = await stage.edits("x = ⟦f(1, 2)⟧  # keep⏎", Deed.REFINE_LIGHT)
    assert edits == [Edit(9, 10, "9")]


@on_loop
async def test_a_refinement_that_brings_nothing_better_is_refused(stage: Stage) -> None:
    stage.script.says("9", scores=[["1", 0.9], ["2", 0.8], ["9", 0.1]])
    assert "content" in await refusal(stage.edits("x = ⟦f(1, 2)⟧⏎", Deed.REFINE_LIGHT))


@on_loop
async def test_a_refinement_that_does_not_parse_is_refused(stage: Stage) -> None:
    stage.script.says("= =", scores=[["1", 0.9], ["2", 0.01], ["= =", 0.95]])
    assert "does not parse" in await refusal(stage.edits("x = ⟦f(1, 2)⟧⏎", Deed.REFINE_LIGHT))


# Fill holes

HOLES = [
    ("python", "█x = ___⏎y = TODO_FILL⏎", "x = 1⏎y = 1⏎"),
    ("python", "⟦x = ___⏎⟧y = ___⏎", "x = 1⏎y = ___⏎"),
    ("python", "x = ___⏎⟦y = ___⟧⏎z = ___⏎", "x = ___⏎y = 1⏎z = ___⏎"),
    ("python", "█def __init__(self, a___b, ____):⏎␣␣␣␣self.a = ___⏎", None),
    ("python", "█# 🚀⏎s = '🚀'; x = ___; y = ___ # 🚀⏎", "# 🚀⏎s = '🚀'; x = 1; y = 1 # 🚀⏎"),
    ("python", "█f(___, ___)⏎", "f(1, 1)⏎"),
    ("python", "x = f(⟦___⟧)⏎", "x = f(1)⏎"),
    ("go", "█func f() int {⏎⇥return ___⏎}⏎", "func f() int {⏎⇥return 1⏎}⏎"),
    ("markdown", "█There is ___ thing.⏎⏎___⏎⏎- ___⏎", "There is 1 thing.⏎⏎___⏎⏎- 1⏎"),
    (
        *("markdown", f"█{FENCE}py⏎x = ___⏎{FENCE}⏎⏎See ___.⏎"),
        f"{FENCE}py⏎x = 1⏎{FENCE}⏎⏎See 1.⏎",
    ),
    ("markdown", "█| a | b |⏎| - | - |⏎| x | ___ |⏎", "| a | b |⏎| - | - |⏎| x | 1 |⏎"),
    ("klingon", "█a ___ b TODO_FILL___ TODO_FILL⏎", "a 1 b TODO_FILL___ 1⏎"),
]


@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("language", "marked", "after"), HOLES)
@on_loop
async def test_every_marker_that_stands_alone_is_filled(
    stage: Stage, language: str, marked: str, after: str | None, line_end: str
) -> None:
    stage.script.says("1")
    if after is None:  # the only hole is the last marker
        head, _, tail = marked.replace("█", "").rpartition("___")
        after = f"{head}1{tail}"
    result = await stage.after(marked.replace("⏎", line_end), Deed.FILL_HOLES, language)
    assert result == show(after.replace("⏎", line_end))


@on_loop
async def test_edits_replace_the_markers_alone(stage: Stage) -> None:
    stage.script.says("1")
    edits = await stage.edits("█x = ___⏎y = TODO_FILL⏎", Deed.FILL_HOLES)
    assert edits == [Edit(4, 7, "1"), Edit(12, 21, "1")]


def test_holes_are_filled_jointly_and_each_with_its_own_text(in_turn: Callable[..., Stage]) -> None:
    stage = in_turn("alpha", "beta", "alpha", "beta")
    result = run(stage.after("█def f(___):⏎␣␣␣␣return ___⏎", Deed.FILL_HOLES))
    assert result == "def f(alpha):\n    return beta\n"
    calls = stage.script.calls()
    assert calls[0]["prefix"] == "def f("
    assert calls[1]["prefix"] == "def f(alpha):\n    return "
    assert calls[2]["suffix"] == "):\n    return beta\n"


def test_what_does_not_fit_keeps_its_marker(in_turn: Callable[..., Stage]) -> None:
    stage = in_turn("1", "= =", "1", "= =")
    result = run(stage.after("█x = ___⏎y = ___⏎", Deed.FILL_HOLES))
    assert result == "x = 1\ny = ___\n"


@on_loop
async def test_a_line_that_goes_on_keeps_its_hole_on_the_line(stage: Stage) -> None:
    stage.script.says("1⏎y = 2")
    assert await stage.after("█x = ___ + 1⏎", Deed.FILL_HOLES) == "x = 1 + 1\n"


@on_loop
async def test_as_many_holes_are_filled_at_once_and_no_more(stage: Stage) -> None:
    stage.script.says("1")
    lines = [f"a{index} = ___⏎" for index in range(HOLES_AT_MOST + 1)]
    result = await stage.after("█" + "".join(lines[:-1]), Deed.FILL_HOLES)
    assert result.count("___") == 0
    assert result.count("= 1\n") == HOLES_AT_MOST
    stage.script.forget_calls()
    sentence = await refusal(stage.edits("█" + "".join(lines), Deed.FILL_HOLES))
    assert str(len(lines)) in sentence
    assert str(HOLES_AT_MOST) in sentence
    assert stage.script.calls() == []


@pytest.mark.parametrize("marked", ["█x = 1⏎", "⟦x = 1⟧⏎y = ___⏎", "█a___b⏎", "⟦___⟧b⏎", "⟦__⟧_⏎"])
@on_loop
async def test_without_a_marker_there_is_nothing_to_fill(stage: Stage, marked: str) -> None:
    assert "no marker" in await refusal(stage.edits(marked, Deed.FILL_HOLES))


@on_loop
async def test_without_any_marker_set_there_is_nothing_to_fill(stage: Stage) -> None:
    assert "no marker" in await refusal(stage.edits("█x = ___⏎", Deed.FILL_HOLES, holeMarkers=[]))


@on_loop
async def test_markers_may_be_any_text(stage: Stage) -> None:
    stage.script.says("1")
    markers = ["???", "<hole>", "(.*)", "é"]
    result = await stage.after("█? ??? <hole> (.*) é éa", Deed.FILL_HOLES, "klingon", holeMarkers=markers)
    assert result == "? 1 1 1 1 éa"


@on_loop
async def test_holes_the_model_has_nothing_for_are_refused(stage: Stage) -> None:
    assert "nothing that fits" in await refusal(stage.edits("█x = ___⏎", Deed.FILL_HOLES))


# Complete

COMPLETIONS = [
    (Deed.COMPLETE_BLOCK, "go", "func f() {⏎⇥█⏎}⏎", "a()⏎⇥b()", "func f() {⏎⇥a()⏎⇥b()⏎}⏎"),
    (Deed.COMPLETE_BLOCK, "python", "def f():⏎␣␣␣␣█⏎", "a()⏎␣␣␣␣b()", "def f():⏎␣␣␣␣a()⏎␣␣␣␣b()⏎"),
    (Deed.COMPLETE_BLOCK, "python", "x = f(█)⏎", "1,⏎␣␣␣␣2", "x = f(1,⏎␣␣␣␣2)⏎"),
    (Deed.COMPLETE_BLOCK, "python", "x = █ + 1⏎", "2⏎y = 3", "x = 2 + 1⏎"),
    (
        *(Deed.COMPLETE_DOCSTRING, "python", 'def f():⏎␣␣␣␣"""█"""⏎␣␣␣␣a()⏎'),
        *("Do it.⏎⏎␣␣␣␣Twice.", 'def f():⏎␣␣␣␣"""Do it.⏎⏎␣␣␣␣Twice."""⏎␣␣␣␣a()⏎'),
    ),
    (
        *(Deed.COMPLETE_DOCSTRING, "python", 'def f():⏎␣␣␣␣"""Do █⏎␣␣␣␣"""⏎'),
        *("it.⏎⏎␣␣␣␣Twice.", 'def f():⏎␣␣␣␣"""Do it.⏎⏎␣␣␣␣Twice.⏎␣␣␣␣"""⏎'),
    ),
    (
        *(Deed.COMPLETE_BLOCK, "markdown", f"{FENCE}py⏎def f():⏎␣␣␣␣█⏎{FENCE}⏎More⏎"),
        *(f"return 1⏎{FENCE}⏎More", f"{FENCE}py⏎def f():⏎␣␣␣␣return 1⏎{FENCE}⏎More⏎"),
    ),
]


@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("deed", "language", "marked", "raw", "after"), COMPLETIONS)
@on_loop
async def test_a_completion(
    stage: Stage, deed: Deed, language: str, marked: str, raw: str, after: str, line_end: str
) -> None:
    stage.script.says(raw)
    result = await stage.after(marked.replace("⏎", line_end), deed, language)
    assert result == show(after.replace("⏎", line_end))


@on_loop
async def test_a_completion_may_be_four_times_as_long_as_a_suggestion(stage: Stage) -> None:
    stage.script.says("a()")
    for max_tokens, asked in ((10, 40), (100, 256)):
        await stage.edits("def f():⏎␣␣␣␣█⏎", Deed.COMPLETE_BLOCK, maxTokens=max_tokens)
        assert stage.script.calls()[-1]["max_tokens"] == asked


@pytest.mark.parametrize("raw", ["", "= = 1", ")"])
@on_loop
async def test_a_completion_that_does_not_fit_is_refused(stage: Stage, raw: str) -> None:
    stage.script.says(raw)
    assert "nothing that fits" in await refusal(stage.edits("def f():⏎␣␣␣␣█⏎", Deed.COMPLETE_BLOCK))


@on_loop
async def test_half_a_character_beside_a_selection_does_no_harm_and_one_in_it_is_refused(
    stage: Stage,
) -> None:
    stage.script.says("2")
    before = "s = '\ud83d'⏎x = "
    assert await stage.after(f"{before}⟦1⟧⏎", Deed.REWRITE) == show(f"{before}2⏎")
    (call,) = stage.script.calls()
    assert call["prefix"] == show("s = '\ufffd'⏎x = ")
    assert "half a character" in await refusal(stage.edits("⟦s = '\ud83d'⟧⏎", Deed.REFINE_LIGHT))


@examples(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["___", "\r", "\n", "\r\n", "a()"]), min_size=1, max_size=6).map("".join),
    st.sampled_from(["b()", "b()\nc()", "\nb()", "b()\n", "\n"]),
    st.sampled_from([Deed.FILL_HOLES, Deed.REWRITE, Deed.REFINE_STRONG]),
)
def test_no_edit_joins_or_splits_line_ends_around_it(
    shared: Stage, source: str, raw: str, deed: Deed
) -> None:
    shared.script.says(raw)
    selection = source if deed is Deed.FILL_HOLES else source.strip().split("\n")[0].split("\r")[0]
    if not selection or (deed is Deed.FILL_HOLES and "___" not in source):
        return
    start = source.index(selection)
    snapshot, _, _ = opened(f"⟦{source}⟧", "plaintext")
    try:
        edits = run(carry_out(Offer(deed, URI, 1, start, start + len(selection)), snapshot, shared.means()))
    except Refused:
        return
    for edit in edits:
        before, after = source[: edit.start], source[edit.end :]
        assert not line_ends.splits_or_joins(before, edit.new, after)
