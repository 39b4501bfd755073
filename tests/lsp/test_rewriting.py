"""Rewriting: a new text in place of a selection is indented as the old one, unwrapped, and breaks nothing around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lsp.document import at_selection, show

from tenon_lsp.documents import Documents
from tenon_lsp.place import Place
from tenon_lsp.positions import Encoding
from tenon_lsp.rewriting import fitting, parses_as_well, with_line_ends

FENCE, TILDES = "```", "~~~"
URI = "file:///work/file"


def selected(marked: str, language: str) -> tuple[Place, str]:
    source, start, end = at_selection(marked)
    documents = Documents(Encoding.UTF_16)
    documents.open(URI, language, 1, source)
    snapshot = documents.snapshot(URI)
    assert snapshot is not None
    return Place.at(snapshot, start, end), source[start:end]


def rewritten(marked: str, new: str, language: str = "python") -> str:
    """The document with `new` as it fits; as it was when nothing fits."""
    place, old = selected(marked, language)
    source = place.snapshot.text.source
    text = fitting(show(new), old, place)
    return source[: place.start] + (text or old) + source[place.end :]


NESTED = "def f(a):⏎␣␣␣␣⟦if a:⏎␣␣␣␣␣␣␣␣b()⟧⏎␣␣␣␣d()⏎"
NESTED_AFTER = "def f(a):⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()⏎␣␣␣␣d()⏎"
CALL = "def f():⏎␣␣␣␣x = ⟦g(1)⟧⏎␣␣␣␣y()⏎"

INDENTED = [
    ("as at the start of a line", NESTED, "if a:⏎␣␣␣␣c()", NESTED_AFTER),
    ("as it stands there", NESTED, "if a:⏎␣␣␣␣␣␣␣␣c()", NESTED_AFTER),
    ("with its own indentation", NESTED, "␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()", NESTED_AFTER),
    ("in a fence", NESTED, f"{FENCE}python⏎if a:⏎␣␣␣␣c()⏎{FENCE}", NESTED_AFTER),
    ("in a fence, indented", NESTED, f"{FENCE}py⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣c()⏎{FENCE}⏎", NESTED_AFTER),
    ("between blank lines", NESTED, "⏎⏎if a:⏎␣␣␣␣c()⏎⏎", NESTED_AFTER),
    (
        *("with a blank line", NESTED, "if a:⏎␣␣␣␣␣␣⏎␣␣␣␣c()"),
        "def f(a):⏎␣␣␣␣if a:⏎⏎␣␣␣␣␣␣␣␣c()⏎␣␣␣␣d()⏎",
    ),
    (
        *("statements at the start of a line", NESTED, "b()⏎c()"),
        "def f(a):⏎␣␣␣␣b()⏎␣␣␣␣c()⏎␣␣␣␣d()⏎",
    ),
    (
        *("statements as they stand there", NESTED, "b()⏎␣␣␣␣c()"),
        "def f(a):⏎␣␣␣␣b()⏎␣␣␣␣c()⏎␣␣␣␣d()⏎",
    ),
    (
        *("two branches", NESTED, "if a:⏎␣␣␣␣b()⏎else:⏎␣␣␣␣c()"),
        "def f(a):⏎␣␣␣␣if a:⏎␣␣␣␣␣␣␣␣b()⏎␣␣␣␣else:⏎␣␣␣␣␣␣␣␣c()⏎␣␣␣␣d()⏎",
    ),
    (
        *("the end of a line", CALL, "g(⏎␣␣␣␣1,⏎)"),
        "def f():⏎␣␣␣␣x = g(⏎␣␣␣␣␣␣␣␣1,⏎␣␣␣␣)⏎␣␣␣␣y()⏎",
    ),
    (
        *("the end of a line, indented", CALL, "g(⏎␣␣␣␣␣␣␣␣1,⏎␣␣␣␣)"),
        "def f():⏎␣␣␣␣x = g(⏎␣␣␣␣␣␣␣␣1,⏎␣␣␣␣)⏎␣␣␣␣y()⏎",
    ),
    (
        *("text that must not move", 'def f():⏎␣␣␣␣x = ⟦"""a⏎b"""⟧⏎', '"""c⏎d"""'),
        'def f():⏎␣␣␣␣x = """c⏎d"""⏎',
    ),
    ("one line", "x = ⟦1 + 2⟧  # keep⏎", "3", "x = 3  # keep⏎"),
    ("a line end too many", "x = ⟦1⟧⏎y = 2⏎", "3⏎", "x = 3⏎y = 2⏎"),
]


@pytest.mark.parametrize(
    ("marked", "new", "after"), [each[1:] for each in INDENTED], ids=[each[0] for each in INDENTED]
)
@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["LF", "CRLF"])
def test_a_new_text_stands_where_the_old_one_stood(marked: str, new: str, after: str, line_end: str) -> None:
    result = rewritten(marked.replace("⏎", line_end), new.replace("⏎", line_end))
    assert result == show(after.replace("⏎", line_end))


@pytest.mark.parametrize(
    ("language", "marked", "new", "after"),
    [
        ("go", "⟦func f() {⏎⇥a()⏎}⟧", "func f() {⏎␣␣␣␣b()⏎}", "func f() {⏎⇥b()⏎}"),
        ("go", "⟦func f() {⏎⇥a()⏎}⟧", "func f() {⏎␣␣b {⏎␣␣␣␣c()⏎␣␣}⏎}", "func f() {⏎⇥b {⏎⇥⇥c()⏎⇥}⏎}"),
        ("go", "⟦func f() {⏎⇥a()⏎}⟧", "func f() {⏎⇥b()⏎}", "func f() {⏎⇥b()⏎}"),
        (
            *("c", "void f() {⏎⇥a();⏎⇥⟦b();⟧⏎}⏎", "if (a &&⏎␣␣␣␣␣␣␣b) {⏎␣␣␣␣c();⏎}"),
            "void f() {⏎⇥a();⏎⇥if (a &&⏎⇥⇥␣␣␣b) {⏎⇥⇥c();⏎⇥}⏎}⏎",
        ),
        (
            *("python", "⟦def f():⏎␣␣␣␣a()⟧⏎⏎def g():⏎␣␣␣␣h(1,⏎␣␣␣␣␣␣2)⏎", "def f():⏎⇥b()"),
            "def f():⏎␣␣␣␣b()⏎⏎def g():⏎␣␣␣␣h(1,⏎␣␣␣␣␣␣2)⏎",
        ),
        (
            *("python", "⟦def f():⏎␣␣␣␣a()⟧⏎⏎def g():⏎␣␣␣␣h('''⏎⇥x⏎''')⏎", "def f():⏎␣␣␣␣b()"),
            "def f():⏎␣␣␣␣b()⏎⏎def g():⏎␣␣␣␣h('''⏎⇥x⏎''')⏎",
        ),
        ("python", "⟦a()⟧⏎", "if a:⏎⇥b()", "if a:⏎⇥b()⏎"),
        (
            *("java", "class A {⏎⇥int a;⏎⏎⇥⟦int b;⟧⏎}⏎", "/**⏎␣* Two.⏎␣*/⏎int b = 2;"),
            "class A {⏎⇥int a;⏎⏎⇥/**⏎⇥␣* Two.⏎⇥␣*/⏎⇥int b = 2;⏎}⏎",
        ),
        (
            *("markdown", f"⇥x⏎⇥y⏎⏎{FENCE}py⏎⟦def f():⏎␣␣a()⟧⏎{FENCE}⏎", "def f():⏎⇥b()"),
            f"⇥x⏎⇥y⏎⏎{FENCE}py⏎def f():⏎␣␣b()⏎{FENCE}⏎",
        ),
    ],
)
def test_tabs_stay_tabs_and_spaces_spaces(language: str, marked: str, new: str, after: str) -> None:
    assert rewritten(marked, new, language) == show(after)


GUIDE = f"# Guide⏎⏎⟦Run:⏎⏎{FENCE}sh⏎npm test⏎{FENCE}⏎⏎Done⟧⏎⏎More text.⏎"
GUIDE_NEW = f"First:⏎⏎{FENCE}sh⏎npm ci⏎{FENCE}⏎⏎then:⏎⏎{FENCE}sh⏎npm test⏎{FENCE}⏎⏎Done"
ENDS_WITH_CODE = f"{FENCE}sh⏎npm ci⏎{FENCE}⏎⏎then:⏎⏎{FENCE}sh⏎npm test⏎{FENCE}"


@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    ("marked", "new", "fits"),
    [
        (GUIDE, GUIDE_NEW, GUIDE_NEW),
        (GUIDE, f"{FENCE}markdown⏎{GUIDE_NEW}⏎{FENCE}", GUIDE_NEW),
        (GUIDE, f"{FENCE}md⏎{GUIDE_NEW}⏎{FENCE}⏎", GUIDE_NEW),
        (GUIDE, f"{FENCE}⏎{GUIDE_NEW}⏎{FENCE}", GUIDE_NEW),
        (GUIDE, f"````markdown⏎{GUIDE_NEW}⏎````", GUIDE_NEW),
        (GUIDE, f"{TILDES}⏎{GUIDE_NEW}⏎{TILDES}", GUIDE_NEW),
        (GUIDE, ENDS_WITH_CODE, ENDS_WITH_CODE),
        ("Run ⟦ls⟧⏎⏎more⏎", f"{FENCE}⏎a⏎{FENCE}", "a"),
        ("⟦Run ls⟧⏎⏎more⏎", f"{FENCE}sh⏎ls⏎{FENCE}", f"{FENCE}sh⏎ls⏎{FENCE}"),
        (f"⟦{FENCE}sh⏎ls⏎{FENCE}⟧⏎", f"{FENCE}⏎dir⏎{FENCE}", f"{FENCE}⏎dir⏎{FENCE}"),
        (GUIDE, f"Run:⏎⏎{FENCE}sh⏎npm test", ""),
        (GUIDE, f"Run:⏎⏎npm test⏎{FENCE}⏎⏎Done", ""),
        (f"⟦Run:⟧⏎⏎{FENCE}sh⏎ls⏎{FENCE}⏎", f"Run:⏎⏎{FENCE}sh⏎ls", ""),
        ("⟦Text⟧⏎⏎More⏎", "<!-- xt", ""),
    ],
)
def test_fences_in_prose_stay_whole(marked: str, new: str, fits: str, line_end: str) -> None:
    marked, new, fits = (each.replace("⏎", line_end) for each in (marked, new, fits))
    place, old = selected(marked, "markdown")
    assert fitting(show(new), old, place) == show(fits)


@pytest.mark.parametrize(
    ("marked", "new"),
    [
        ("x = ⟦1 + 2⟧⏎", "1 +"),
        ("x = ⟦1 + 2⟧⏎", "(3"),
        ("func f() {⏎⇥⟦a()⟧⏎}⏎", "}"),
        ("x = ⟦1 + 2⟧⏎", "␣⏎␣"),
        ("x = ⟦1 + 2⟧⏎", ""),
        ("x = ⟦1 + 2⟧⏎", f"{FENCE}⏎{FENCE}"),
    ],
)
def test_what_does_not_fit_is_no_text(marked: str, new: str) -> None:
    place, old = selected(marked, "python")
    assert fitting(show(new), old, place) == ""


@pytest.mark.parametrize(
    ("marked", "language", "new", "well"),
    [
        ("x = ⟦1⟧⏎", "python", "2", True),
        ("x = ⟦1⟧⏎", "python", "= 2", False),
        ("x = ⟦= 1⟧⏎", "python", "= = 2", True),
        ("x = ⟦= 1⟧⏎", "python", "2", True),
        ("x = ⟦1⟧⏎", "klingon", "((", True),
        (f"{FENCE}py⏎x = ⟦1⟧⏎{FENCE}⏎", "markdown", "2", True),
        (f"{FENCE}py⏎x = ⟦1⟧⏎{FENCE}⏎", "markdown", "= 2", False),
        (f"⟦text⟧⏎{FENCE}py⏎{FENCE}⏎", "markdown", "= (", True),
        (f"⟦{FENCE}⟧⏎text⏎", "markdown", "text", True),
    ],
)
def test_a_text_may_be_as_wrong_as_the_old_one(marked: str, language: str, new: str, well: bool) -> None:
    place, _ = selected(marked, language)
    assert parses_as_well(show(new), place) is well


LINES = st.lists(
    st.sampled_from(
        ["a()", "if a:", "    b()", "        c()", "\tb()", "", "  ", "x = [", "]", "```", "é🚀", "}"]
    ),
    max_size=6,
).map("\n".join)
MARKED = [NESTED, CALL, "⟦x = 1⟧", "func f() {⏎⇥⟦a()⟧⏎}⏎", "- a⏎␣␣- ⟦b⟧⏎"]


@given(st.sampled_from(MARKED), LINES, st.sampled_from(["python", "go", "markdown", "klingon"]))
def test_what_fits_has_the_words_of_the_model_and_parses(marked: str, new: str, language: str) -> None:
    place, old = selected(marked, language)
    text = fitting(new, old, place)
    if text:
        assert not text.endswith(("\n", " "))
        assert all(line.strip() or not line for line in text.split("\n"))
        written = [line.strip() for line in new.split("\n") if line.strip()]
        assert [line.strip() for line in text.split("\n") if line.strip()] in (written, written[1:-1])
        assert parses_as_well(text, place)


@pytest.mark.parametrize(
    ("marked", "language", "line_end"),
    [
        ("<p>␍⏎<script>⟦a⟧</script>⏎", "html", "\r\n"),
        ("<script>⟦a⟧</script>␍⏎<p>⏎", "html", "\r\n"),
        ("␍⏎a⏎⟦a⟧␍⏎", "python", "\n"),
        ("a␍⟦a⟧", "python", "\r"),
        ("⟦a⟧", "python", "\n"),
    ],
)
def test_a_text_has_the_line_end_that_the_document_has_nearest(
    marked: str, language: str, line_end: str
) -> None:
    place, _ = selected(marked, language)
    assert with_line_ends("b\r\nc\rd\ne", place) == line_end.join("bcde")
