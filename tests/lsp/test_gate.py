"""The gate: every refusal and every shape at a cursor, who may overrule it, how long and how tall a fill may be."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lsp.document import at_cursor

from tenon_lsp.documents import Change, Documents
from tenon_lsp.gate import BLOCK_FACTOR, Refusal, Shape, Verdict, judge
from tenon_lsp.place import Place
from tenon_lsp.positions import Encoding, Position
from tenon_lsp.settings import Multiline, Settings

FENCE = "```"
URI = "file:///work/file"


@dataclasses.dataclass(frozen=True)
class Case:
    """A cursor, and everything else that the gate looks at."""

    marked: str
    language: str = "python"
    options: dict[str, object] = dataclasses.field(default_factory=dict)
    uri: str = URI
    has_popup: bool = False
    excluded: str = ""
    is_disabled: bool = False
    was_shortened: bool = False

    def judge(self, *, is_invoked: bool = False) -> Verdict:
        parsed, complaints = Settings.parse(self.options)
        assert complaints == []
        return judge(
            self.place(),
            parsed,
            is_invoked=is_invoked,
            has_popup=self.has_popup,
            excluded=self.excluded,
            is_disabled=self.is_disabled,
        )

    def place(self) -> Place:
        source, offset = at_cursor(self.marked)
        documents = Documents(Encoding.UTF_32)
        documents.open(self.uri, self.language, 1, source + "~" * self.was_shortened)
        if self.was_shortened:
            span = (Position(99, 0), Position(99, 0))
            documents.change(self.uri, 2, [Change(span, ""), Change(None, source)])
        snapshot = documents.snapshot(self.uri)
        assert snapshot is not None
        return Place.at(snapshot, offset)


def in_markdown(marked: str) -> Case:
    return Case(marked, "markdown")


# Refusals

NEVER = [
    *((Refusal.SCHEME, Case("x = █", uri=uri)) for uri in ("output:x", "git:/a.py", "GIT:/a.py")),
    (Refusal.SCHEME, Case("fix █", uri="vscode-scm:git/scm0/input")),
    (Refusal.EXCLUDED, Case("x = █", excluded="a secret")),
    (Refusal.POPUP, Case("x.le█", has_popup=True, options={"whenPopupVisible": "off"})),
]
OFF = [
    (Refusal.OFF, Case("x = █", options={"enabled": False})),
    (Refusal.LANGUAGE_OFF, Case("x = █", options={"disabled": {"languages": ["python"]}})),
    (Refusal.LANGUAGE_OFF, Case("x = █", options={"disabled": {"languages": ["Py"]}})),
    (Refusal.LANGUAGE_OFF, Case(f"{FENCE}py⏎x = █⏎{FENCE}⏎", "markdown", {"disabled.languages": ["python"]})),
    (
        Refusal.LANGUAGE_OFF,
        Case(f"{FENCE}py⏎x = █⏎{FENCE}⏎", "markdown", {"disabled.languages": ["markdown"]}),
    ),
    (Refusal.LANGUAGE_OFF, Case("Fix █", "git-commit")),
    (Refusal.LANGUAGE_OFF, Case("Fix █", "gitcommit")),
    (Refusal.GLOB_OFF, Case("x = █", is_disabled=True)),
    (Refusal.COMMENT, Case("x = 1  # note: █", options={"suggestIn.comments": False})),
    (Refusal.COMMENT, Case('def f():⏎␣␣␣␣"""Do █"""⏎', options={"suggestIn.comments": False})),
    (Refusal.COMMENT, Case("/* a █ */", "c", {"suggestIn.comments": False})),
    (Refusal.STRING, Case('x = "a#█b"', options={"suggestIn.strings": False})),
    (Refusal.STRING, Case("x = `a${b} █`", "javascript", {"suggestIn.strings": False})),
    (Refusal.PROSE, Case("Some █", "markdown", {"suggestIn.prose": False})),
    (Refusal.PROSE, Case("Some █", "plaintext", {"suggestIn.prose": False})),
]
UNWANTED = [
    (Refusal.AFTER_DELETION, Case("x = █", was_shortened=True)),
    (Refusal.INSIDE_WORD, Case("doc█ument.open(1)")),
    (Refusal.INSIDE_WORD, Case("é█é = 1")),
    (Refusal.INSIDE_WORD, in_markdown("Some wo█rds")),
    (Refusal.INSIDE_WORD, Case("a_█_b")),
    (Refusal.BEFORE_TEXT, Case("␣␣␣␣█return 1")),
    (Refusal.BEFORE_TEXT, Case("█x = 1")),
    (Refusal.BEFORE_TEXT, Case("f(⏎␣␣█, b)")),
    (Refusal.BEFORE_TEXT, in_markdown("█# Title")),
    (Refusal.BEFORE_TEXT, in_markdown(f"{FENCE}py⏎█{FENCE}⏎")),
    (
        Refusal.UNDER_INDENTED,
        Case("class M:⏎␣␣␣␣def r(self):⏎␣␣␣␣␣␣␣␣a = 1⏎█⏎␣␣␣␣␣␣␣␣b = 2"),
    ),
    (Refusal.UNDER_INDENTED, Case("func f() {⏎⇥if a {⏎⇥⇥b()⏎⇥█⏎⏎⇥⇥c()⏎⇥}⏎}⏎", "go")),
    (Refusal.UNDER_INDENTED, Case("a:␍⏎␣␣b: 1␍⏎█␍⏎␣␣c: 2␍⏎", "yaml")),
]
REFUSALS = [*NEVER, *OFF, *UNWANTED]


@pytest.mark.parametrize(("refusal", "case"), REFUSALS)
def test_a_refusal_has_its_reason(refusal: Refusal, case: Case) -> None:
    assert case.judge() == Verdict(None, refusal)


@pytest.mark.parametrize(("refusal", "case"), NEVER)
def test_some_refusals_hold_whoever_asks(refusal: Refusal, case: Case) -> None:
    assert case.judge(is_invoked=True) == Verdict(None, refusal)


@pytest.mark.parametrize(("refusal", "case"), [*OFF, *UNWANTED])
def test_all_others_are_overruled_by_hand(refusal: Refusal, case: Case) -> None:
    verdict = case.judge(is_invoked=True)
    assert verdict.refusal is None
    assert verdict.shape is not None
    assert verdict.max_tokens > 0


def test_every_refusal_is_tried() -> None:
    assert {refusal for refusal, _ in REFUSALS} == set(Refusal)


def test_a_secret_is_refused_before_anything_else_is_looked_at() -> None:
    case = Case("█x", excluded="a secret", is_disabled=True, options={"enabled": False})
    assert case.judge().refusal is Refusal.EXCLUDED


# No refusals

WANTED = [
    Case("x = █", options={"disabled": {"languages": ["go"], "globs": ["*.py"]}}),
    Case('x = "a#b" + █', options={"suggestIn.comments": False, "suggestIn.strings": False}),
    Case("x = █  # note", options={"suggestIn.comments": False}),
    Case("x = 1 # note: █", options={"suggestIn.strings": False, "suggestIn.prose": False}),
    Case('x = "a█"', options={"suggestIn.comments": False, "suggestIn.prose": False}),
    Case('x = f"a {█}"', options={"suggestIn.strings": False}),
    Case("x = `a${█}`", "javascript", {"suggestIn.strings": False}),
    Case(f"{FENCE}py⏎x = █⏎{FENCE}⏎", "markdown", {"suggestIn.prose": False}),
    Case("x.le█", has_popup=True),
    Case("total = █ + tax"),
    Case("doc.█open(1)"),
    Case("int█ x", "c"),
    Case("f(⏎␣␣␣␣█)"),
    Case("f(() => {⏎␣␣█});", "javascript"),
    Case("f(⏎␣␣[⏎␣␣␣␣█],⏎)", "javascript"),
    Case("let f x =⏎█", "fsharp"),
    Case("class M:⏎␣␣␣␣def r(self):⏎␣␣␣␣␣␣␣␣a = 1⏎␣␣␣␣█⏎␣␣␣␣def s(self): ..."),
    Case("class M:⏎␣␣␣␣def r(self):⏎␣␣␣␣␣␣␣␣a = 1⏎⏎█⏎⏎class N: ..."),
    Case("def r():⏎␣␣␣␣a = 1⏎␣␣␣␣█⏎␣␣␣␣b = 2"),
    in_markdown(f"␣␣␣more⏎⏎{FENCE}py⏎█⏎{FENCE}⏎⏎␣␣␣more⏎"),
    in_markdown("- █text"),
    Case("x = █", uri="untitled:Untitled-1"),
    Case("x = █", uri="vscode-notebook-cell:/work/n.ipynb#W0"),
    Case("x = █", uri="vscode-remote://ssh/work/a.py"),
]


@pytest.mark.parametrize("case", WANTED)
def test_everywhere_else_there_may_be_a_suggestion(case: Case) -> None:
    assert case.judge().refusal is None


# Shapes

SHAPES = [
    (Shape.REST_OF_LINE, Case("x = █")),
    (Shape.REST_OF_LINE, Case("x = █␍⏎y")),
    (Shape.REST_OF_LINE, Case("x = █␣⏎y")),
    (Shape.REST_OF_LINE, Case("if a:⏎␣␣␣␣return█⏎")),
    (Shape.INSIDE_LINE, Case("total = █ + tax")),
    (Shape.INSIDE_LINE, Case("f(a, █)")),
    (Shape.INSIDE_LINE, Case("f(█]")),
    *((Shape.INSIDE_PAIR, Case(f"f{pair}")) for pair in ("(█)", "[█]", "{█}")),
    (Shape.INSIDE_PAIR, Case('log("█")')),
    (Shape.INSIDE_PAIR, Case("foo(█)⏎bar()")),
    (Shape.STATEMENT, Case("a = 1⏎█")),
    (Shape.STATEMENT, Case("█")),
    (Shape.STATEMENT, Case("def f():⏎␣␣␣␣a = 1⏎␣␣␣␣█⏎␣␣␣␣b = 2⏎")),
    (Shape.STATEMENT, Case("if a:⏎␣␣␣␣█⏎␣␣␣␣b = 2⏎")),
    (Shape.STATEMENT, Case("x = undo⏎█")),
    (Shape.STATEMENT, Case("x = todo⏎█")),
    (Shape.STATEMENT, Case("x = athen⏎█")),
    (Shape.BLOCK, Case("def f():⏎␣␣␣␣█")),
    (Shape.BLOCK, Case("def f():⏎⏎␣␣␣␣█⏎⏎def g(): ...")),
    (Shape.BLOCK, Case("func f() {⏎⇥█⏎}⏎", "go")),
    (Shape.BLOCK, Case("f(() =>⏎␣␣█", "javascript")),
    (Shape.BLOCK, Case("x = [␍⏎␣␣█␍⏎]␍⏎")),
    (Shape.BLOCK, Case("for i in a; do⏎␣␣█⏎done⏎", "shellscript")),
    (Shape.BLOCK, Case("if a then⏎␣␣█⏎end⏎", "lua")),
    (Shape.BLOCK, Case("let f x =⏎␣␣█", "fsharp")),
    (Shape.BLOCK, in_markdown(f"{FENCE}py⏎def f():⏎␣␣␣␣█⏎{FENCE}⏎")),
    (Shape.DOCSTRING, Case('def f():⏎␣␣␣␣"""Do █⏎␣␣␣␣"""⏎')),
    (Shape.DOCSTRING, Case('def f():⏎␣␣␣␣"""█"""⏎')),
    (Shape.COMMENT, Case("x = 1  # note: █")),
    (Shape.COMMENT, Case("// note █", "go")),
    (Shape.LIST_ITEM, in_markdown("- alpha⏎- █⏎- gamma")),
    (Shape.LIST_ITEM, in_markdown("1. alpha⏎2. █")),
    (Shape.LIST_ITEM, in_markdown("- alpha⏎␣␣- be█")),
    (Shape.TABLE_CELL, in_markdown("| a | b |⏎| - | - |⏎| 1 | █ |⏎")),
    (Shape.TABLE_CELL, in_markdown("| a | █ |⏎| - | - |⏎")),
    (Shape.HEADING, in_markdown("# Some █")),
    (Shape.HEADING, in_markdown("Some █⏎====⏎")),
    (Shape.PARAGRAPH, in_markdown("Some text █")),
    (Shape.PARAGRAPH, in_markdown("> Some text █")),
    (Shape.PARAGRAPH, in_markdown("Text.⏎⏎█")),
    (Shape.PARAGRAPH, Case("Some text █", "plaintext")),
    (Shape.PARAGRAPH, Case("Some text (█)", "restructuredtext")),
    (Shape.INSIDE_PAIR, in_markdown("Call `█`")),
    (Shape.INSIDE_PAIR, in_markdown("See [█](a.md)")),
    (Shape.INSIDE_PAIR, in_markdown("See [a](█)")),
    (Shape.REST_OF_LINE, in_markdown(f"{FENCE}py⏎x = █⏎{FENCE}⏎")),
    (Shape.REST_OF_LINE, in_markdown(f"{FENCE}py⏎x = █")),
    (Shape.REST_OF_LINE, Case("<script>⏎let a = █⏎</script>", "html")),
    (Shape.REST_OF_LINE, Case("x = █", "klingon")),
]


@pytest.mark.parametrize(("shape", "case"), SHAPES)
def test_the_shape_at_a_cursor(shape: Shape, case: Case) -> None:
    verdict = case.judge()
    assert (verdict.shape, verdict.refusal) == (shape, None)


def test_every_shape_is_tried() -> None:
    assert {shape for shape, _ in SHAPES} == set(Shape)


# How long and how tall

LINES = [
    (False, Case("x = █")),
    (False, Case("foo(█)")),
    (False, Case("foo(█);", "javascript")),
    (False, Case('say("█")')),
    (False, Case("def f():⏎␣␣␣␣█")),
    (True, Case("x = foo(█, 3)")),
    (True, Case("total = █ + tax")),
    (True, Case("x = █  # note")),
    (True, in_markdown("# Some █")),
    (True, in_markdown("| a | █")),
    (True, in_markdown("Call `█`")),
    (True, in_markdown("Some █ text")),
    (False, in_markdown("Some text █")),
    (False, in_markdown("- a █")),
    (True, Case("x.le█", has_popup=True)),
]


@pytest.mark.parametrize(("one_line", "case"), LINES)
def test_a_fill_stays_on_its_line_where_the_line_goes_on(one_line: bool, case: Case) -> None:
    assert case.judge().one_line is one_line


@pytest.mark.parametrize("case", [case for _, case in LINES])
@pytest.mark.parametrize("multiline", [Multiline.ALWAYS, Multiline.NEVER])
def test_the_user_has_the_last_word_on_several_lines(multiline: Multiline, case: Case) -> None:
    verdict = dataclasses.replace(case, options={"multiline": multiline.value}).judge()
    assert verdict.one_line is (multiline is Multiline.NEVER or case.has_popup)


@pytest.mark.parametrize(
    ("case", "max_tokens"),
    [
        (Case("x = █"), 40),
        (Case("a = 1⏎█"), 40),
        (Case("x = █ + 1"), 30),
        (Case("foo(█)"), 30),
        (Case("def f():⏎␣␣␣␣█"), 40 * BLOCK_FACTOR),
    ],
)
def test_a_block_may_be_longer_and_what_stands_in_a_line_is_shorter(case: Case, max_tokens: int) -> None:
    assert dataclasses.replace(case, options={"maxTokens": 40}).judge().max_tokens == max_tokens


def test_there_is_always_room_for_a_token() -> None:
    assert Case("x = █ + 1", options={"maxTokens": 1}).judge().max_tokens == 1


PIECES = [
    *(
        "def f():",
        "if a:",
        "\n",
        "\r\n",
        "    ",
        "\t",
        "x = 1",
        '"""',
        "'",
        "(",
        ")",
        "{",
        "}",
        "# é",
        "🚀",
        "`",
    ),
    *(
        "```py\n",
        "```\n",
        "- ",
        "1. ",
        "| a |",
        "| - |\n",
        "> ",
        "# ",
        "---\n",
        "](",
        "[",
        "<script>",
        "<!--",
    ),
]
LANGUAGES = ["python", "javascript", "markdown", "html", "plaintext", "klingon", "yaml"]


@given(
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.sampled_from(LANGUAGES),
)
def test_any_place_has_a_shape_when_asked_by_hand(before: str, after: str, language: str) -> None:
    verdict = Case(f"{before}█{after}", language).judge(is_invoked=True)
    assert verdict.shape is not None
    assert verdict.refusal is None
    assert verdict.max_tokens > 0


@given(
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.sampled_from(LANGUAGES),
)
def test_a_place_is_refused_or_has_the_shape_that_it_has_by_hand(
    before: str, after: str, language: str
) -> None:
    case = Case(f"{before}█{after}", language)
    verdict = case.judge()
    assert verdict.refusal is not None or verdict == case.judge(is_invoked=True)
