"""Regions: fences of every style, front matter, scripts and styles, with the cursor at every offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lsp.document import at_cursor, show

from tenon_lsp.documents import Documents, Snapshot
from tenon_lsp.positions import Encoding
from tenon_lsp.regions import Region, region_at

URI = "file:///work/a"
T, TILDES = "```", "~~~"

Lines = list[tuple[str, str]]  # a line, and the language of a cursor on it


def opened(source: str, language: str = "markdown") -> Snapshot:
    documents = Documents(Encoding.UTF_16)
    documents.open(URI, language, 1, source)
    snapshot = documents.snapshot(URI)
    assert snapshot is not None
    return snapshot


def at(marked: str, language: str = "markdown") -> Region:
    source, offset = at_cursor(marked)
    return region_at(opened(source, language), offset)


def check_everywhere(snapshot: Snapshot) -> None:
    source = snapshot.text.source
    for offset in range(len(source) + 1):
        region = region_at(snapshot, offset)
        assert region.start <= offset <= region.end
        assert region.text == source[region.start : region.end]
        assert region.inside(offset) == offset - region.start
        assert region.is_whole == (region.text == source and region.language == snapshot.language)
        assert region.syntax is None or region.syntax.source == region.text


def fence(mark: str, info: str, language: str, *body: str, indent: str = "", first: str = "") -> Lines:
    """A closed fence; the cursor is in its language on the lines of its body alone."""
    return [
        (f"{first or indent}{mark}{info}", "markdown"),
        *((f"{indent}{line}" if line else "", language) for line in body),
        (f"{indent}{mark}", "markdown"),
    ]


def prose(*lines: str) -> Lines:
    return [(line, "markdown") for line in lines]


BLOCKS: list[Lines] = [
    prose("Some *text*,", "of two lines."),
    prose("# Heading"),
    prose("- alpha", "- beta", "  gamma"),
    prose("| a | b |", "| - | - |", "| 1 | 2 |"),
    prose("> quoted `code`"),
    prose("`` ` ``"),
    fence(T, "py", "python", "def f():", "    return 1"),
    fence(T, 'python title="x.py" {1,3}', "python", "x = 1"),
    fence(T, "{python}", "python", "é = '🚀'", "", "y"),
    fence(T, " {.js .numberLines}", "javascript", "let a;"),
    fence(T, "rust,no_run", "rust", "fn f() {}"),
    fence(T, "js{1,3}", "javascript", "a"),
    fence(T, "C++", "cpp", "int a;"),
    fence(T, "klingon", "klingon", "a"),
    fence(T, "", "plaintext", "a", "", "- b"),
    fence(T, "sh", "shellscript"),
    fence(T, "yaml", "yaml", ""),
    fence(T, "md", "markdown", "# Title", "text"),
    fence(TILDES, "sh", "shellscript", "npm test", T, "no end"),
    fence("~~~~", " go", "go", TILDES, "x"),
    fence("````", "text", "text", "a", T, "b"),
    [*prose("````markdown", "text", "", "```py"), ("x", "python"), *prose("```", "more", "````")],
    [*prose("~~~~~markdown", "", "~~~"), ("x", "plaintext"), *prose("~~~", "~~~~~")],
    [*prose("- item"), *fence(T, "py", "python", "x = 1", indent="  "), *prose("  more")],
    [*prose("- item", ""), *fence(T, "py", "python", "x = 1", "", "y", indent="  "), *prose("", "- more")],
    [*fence(T, "py", "python", "x = 1", indent="  ", first="- "), *prose("- more")],
    [*prose("1. one"), *fence(TILDES, "sh", "shellscript", "ls", indent="   "), *prose("2. two")],
    [*prose("- a", "  - b"), *fence(T, "go", "go", "x()", indent="    ")],
    fence(T, "py", "python", "x = 1", indent="   "),
    fence(T, "py", "python", "x = 1", "y = 2", indent="> "),
]
OPEN: list[Lines] = [
    [*prose("```py"), ("x = 1", "python")],
    [*prose("```py"), ("x = 1", "python"), ("", "python")],
    [*prose("```py"), ("", "python")],
    [*prose("~~~"), ("```", "plaintext"), ("", "plaintext"), ("", "plaintext")],
    [*prose("````md", "```py"), ("x", "python")],
    [*prose("- a", "  ```sh"), ("  ls", "shellscript")],
    [*prose("> ```sh"), ("> ls", "shellscript")],
    prose("```py"),
]


def expect(lines: Lines, line_end: str) -> None:
    """Every place of every line has the line's language."""
    source = line_end.join(line for line, _ in lines)
    snapshot = opened(source)
    for number, (line, language) in enumerate(lines):
        start, end = snapshot.text.line_span(number)
        assert source[start:end] == line
        found = [region_at(snapshot, offset).language for offset in range(start, end + 1)]
        assert found == [language] * len(found), f"{line!r} of {source!r}"
    check_everywhere(snapshot)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(line for line, _ in block))
def test_a_cursor_has_the_language_of_its_line(block: Lines, line_end: str) -> None:
    expect(block, line_end)
    expect([*block, *prose("")], line_end)
    expect([*prose("text", ""), *block, *prose("", "text")], line_end)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("block", OPEN, ids=lambda block: " ".join(line for line, _ in block))
def test_a_fence_that_is_still_open_goes_on_up_to_the_end(block: Lines, line_end: str) -> None:
    expect(block, line_end)
    expect([*prose("text", ""), *block], line_end)


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(BLOCKS), max_size=4),
    st.none() | st.sampled_from(OPEN),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_regions_of_any_document_are_those_of_its_blocks(
    blocks: list[Lines], last: Lines | None, line_end: str, has_front_matter: bool
) -> None:
    lines: Lines = [("---", "markdown"), ("a: 1", "yaml"), ("---", "markdown")] if has_front_matter else []
    for block in blocks:
        lines += [*prose("", "***", ""), *block]  # a rule between them, so that no list goes on
    expect([*lines, *prose("", "***", ""), *(last or [])], line_end)


@pytest.mark.parametrize(
    ("marked", "language", "text"),
    [
        ("---⏎ti█tle: x⏎---⏎⏎# T⏎", "yaml", "title: x⏎"),
        ("+++⏎title = █⏎+++⏎# T⏎", "toml", "title = ⏎"),
        ("---⏎a: 1⏎b:█⏎---⏎", "yaml", "a: 1⏎b:⏎"),
        (f"{T}py⏎█{T}⏎", "markdown", None),
        (f"{T}py⏎x⏎{T}█", "markdown", None),
        (f"{T}py⏎x⏎█{T}", "markdown", None),
        (f"{T}p█y⏎x⏎{T}", "markdown", None),
        ("---⏎---⏎█", "markdown", None),
        ("---⏎█---⏎", "markdown", None),
        ("text⏎---⏎mo█re⏎", "markdown", None),
        ("█", "markdown", None),
        (f"- a⏎  {T}sh⏎  ls⏎█", "markdown", None),
        (f"> {T}sh⏎> ls⏎█⏎", "markdown", None),
    ],
)
def test_the_region_in_markdown(marked: str, language: str, text: str | None) -> None:
    region = at(marked)
    assert region.language == language
    assert region.is_whole == (text is None)
    assert text is None or region.text == show(text)


@pytest.mark.parametrize(
    ("marked", "language", "text"),
    [
        ("<p>█</p><script>let a</script>", "html", None),
        ("<script>⏎let█ a;⏎</script>", "javascript", "⏎let a;⏎"),
        ("<script>█</script>", "javascript", ""),
        ("<script>a</sc█ript>", "html", None),
        ("<scri█pt>a</script>", "html", None),
        ("<style>a {█}</style>", "css", "a {}"),
        ('<style lang="klingon">█</style>', "css", ""),
        ('<script lang="ts">let a█</script>', "typescript", "let a"),
        ("<script type='text/typescript'>a█</script>", "typescript", "a"),
        ("<script type=module src=/json/typescript.js>a█</script>", "javascript", "a"),
        ('<script type="application/ld+json">{█}</script>', "json", "{}"),
        ('<script type="application/json" id=a>{█}</script>', "json", "{}"),
        ("<div>⏎<script>⏎  é('🚀');█⏎</script>⏎</div>", "javascript", "⏎  é('🚀');⏎"),
    ],
)
def test_the_region_in_html(marked: str, language: str, text: str | None) -> None:
    region = at(marked, "html")
    assert region.language == language
    assert region.is_whole == (text is None)
    assert text is None or region.text == show(text)
    check_everywhere(opened(at_cursor(marked)[0], "html"))


@pytest.mark.parametrize("language", ["python", "klingon", "json"])
def test_other_languages_have_one_region(language: str) -> None:
    region = at("```py⏎x█⏎```", language)
    assert (region.language, region.is_whole, region.text) == (language, True, "```py\nx\n```")
    assert (region.syntax is None) == (language == "klingon")


PIECES = [
    *(
        "```",
        "````",
        "~~~",
        "py",
        "{r}",
        "\n",
        "\r\n",
        "\n\n",
        "- ",
        "  ",
        "> ",
        "---\n",
        "+++\n",
        "x",
        "é🚀",
    ),
    *("<script>", "</script>", "<style>", "</style>", "<!--", "-->", "<div>", "# ", "|", "\r"),
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.sampled_from(["markdown", "html"]))
def test_every_place_of_any_text_is_in_its_region(source: str, language: str) -> None:
    check_everywhere(opened(source, language))


def test_a_fence_that_yaml_cannot_be_parsed_in_is_still_a_region() -> None:
    region = at(f"# t\n\n{T}yaml\n{'- ' * 260}█\n{T}\n")
    assert region.language == "yaml"
    assert region.syntax is not None
    assert region.syntax.errors == ()


def test_fences_that_are_nested_without_end_are_read_to_a_depth() -> None:
    source = "".join("`" * (403 - depth) + "markdown\n" for depth in range(400))
    region = region_at(opened(source), len(source))
    assert region.language == "markdown"
    assert region.text.count("\n") == 397
