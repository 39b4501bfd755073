"""What users report about completion, replayed on the wire: one row for each reported case that is one question.

The server is the real one, its engine the real one with a scripted model. `█` is the cursor, `⏎` a line end, `␍⏎` CRLF,
`⇥` a tab, `␣` a space that matters. Every row also obeys the invariants of `invariants`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from tests.lsp import invariants
from tests.lsp.client import AUTOMATIC, INVOKED, Client, running
from tests.lsp.connection import on_loop, run
from tests.lsp.document import Json, show

FENCE = "```"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What stands in the editor, what the model says, and what accepting the item must insert ('' for no item)."""

    name: str
    language: str
    document: str
    raw: str
    inserted: str
    _: dataclasses.KW_ONLY
    settings: Json = dataclasses.field(default_factory=dict)
    trigger: int = AUTOMATIC
    asked_language: str = ""  # what the engine must be told, when it matters


AREA = "def area(r):⏎␣␣␣␣█⏎␣␣␣␣return r * r * pi"
GO_NESTED = "func f() {⏎⇥if ok {⏎⇥⇥█⏎⇥}⏎}"
GO_TWO = "func g() {⏎⇥return⏎}"
TRI = "␣␣␣␣if n < 1: return 0⏎␣␣␣␣return n + tri(n-1)"
UNDER_INDENTED = "class M:⏎␣␣␣␣def r(self):⏎␣␣␣␣␣␣␣␣a = 1⏎█⏎␣␣␣␣␣␣␣␣b = 2"
FENCED = f"Text⏎⏎{FENCE}python⏎def f():⏎␣␣␣␣█⏎{FENCE}⏎⏎More text⏎"
NO_COMMENTS: Json = {"suggestIn": {"comments": False}}
NO_STRINGS: Json = {"suggestIn": {"strings": False}}

CASES = [
    # Indentation
    Case("U01a", "python", "def hi(n):⏎⇥█", "␣␣␣print(n)", "print(n)"),
    Case("U01b", "python", "def f():⏎␣␣␣␣█", "␣a = 1⏎␣␣␣␣␣b = 2", "a = 1⏎␣␣␣␣b = 2"),
    Case("U01c", "python", "if a:⏎␣␣␣␣b()⏎def f():⏎␣␣␣␣█", "␣a = 1⏎␣␣␣␣␣b = 2", "a = 1⏎␣␣␣␣b = 2"),
    Case("U02a", "go", GO_NESTED, "a()⏎␣␣␣␣␣␣␣␣b()", "a()⏎⇥⇥b()"),
    Case("U02b", "go", "func a() {⏎⇥x()⏎}⏎⏎█", GO_TWO, GO_TWO),
    Case("U03a", "fsharp", "let f x =⏎█", "␣␣␣␣x + 1", "␣␣␣␣x + 1"),
    Case("U03b", "fsharp", "let f x =⏎␣␣␣␣█", "␣␣␣␣x + 1", "x + 1"),
    # The Tab key stays the user's
    Case("U06a", "python", UNDER_INDENTED, "␣␣␣␣␣␣␣␣c = 3", ""),
    Case("U06b", "python", UNDER_INDENTED, "␣␣␣␣␣␣␣␣c = 3", "␣␣␣␣␣␣␣␣c = 3", trigger=INVOKED),
    # What follows is not said again
    Case("U07a", "python", AREA, "pi = 3.14⏎␣␣␣␣return r * r * pi", "pi = 3.14"),
    Case("U07b", "python", AREA, "return r * r * pi", ""),
    Case("U08a", "css", 'use "./parts/█.css"', 'button.css"', "button"),
    Case("U08b", "python", "foo(█)⏎bar()", "a, b)", "a, b"),
    Case("U08c", "python", "foo(█)⏎bar()", "a, b)⏎bar()", "a, b"),
    Case("U09", "python", "def tri(n):⏎█⏎⏎tri(7)", TRI, TRI),
    # Brackets and the tail of the line
    Case("U12a", "python", "log(█)", '"up"', '"up"'),
    Case("U12b", "python", "log(█)", '"up")', '"up"'),
    Case("U14", "python", 'say("B█")', "ye", "ye"),
    Case("U14b", "python", 'say("B█")', 'ye")', "ye"),
    Case("U15", "rust", "let b = Box {⏎␣␣█⏎}", "w,⏎␣␣h,⏎};", "w,⏎␣␣h,"),
    # One line or several
    Case("U29a", "python", "x = foo(█, 3)", "a, b⏎y = 2", "a, b", settings={"multiline": "auto"}),
    Case("U29b", "latex", "\\frac{█}{2}", "a +⏎b", "a +⏎b", settings={"multiline": "always"}),
    Case("U29c", "python", "def f():⏎␣␣␣␣█", "a = 1⏎␣␣␣␣b = 2", "a = 1", settings={"multiline": "never"}),
    Case(
        "U29d",
        "python",
        "def f():⏎␣␣␣␣█",
        "a = 1⏎␣␣␣␣b = 2",
        "a = 1⏎␣␣␣␣b = 2",
        settings={"multiline": "auto"},
    ),
    Case("U29e", "latex", "\\frac{█}{2}", "a +⏎b", "a +", settings={"multiline": "never"}),
    # Where to suggest
    Case("U31", "python", "total = █ + tax", "price * qty", "price * qty"),
    Case("U31b", "python", "total = █ + tax", "price * qty + tax", "price * qty"),
    Case("U33a", "python", "x = 1  # note: █", "the first", "", settings=NO_COMMENTS),
    Case("U33b", "python", 'x = "a#b" + █', "tail", "tail", settings=NO_COMMENTS),
    Case(
        "U33c", "python", "x = 1  # note: █", "the first", "the first", settings=NO_COMMENTS, trigger=INVOKED
    ),
    Case("U33d", "python", "x = 1  # note: █", "the first", "the first"),
    Case("U33e", "python", 'x = "on the █"', "left", "", settings=NO_STRINGS),
    Case("U33f", "python", 'x = "on the █"', "left", "left", settings=NO_STRINGS, trigger=INVOKED),
    Case("U33g", "javascript", "let x = 1 // note: █", "the first", "", settings=NO_COMMENTS),
    Case("U33h", "javascript", "let u = 'http://' + █", "host", "host", settings=NO_COMMENTS),
    Case("U35a", "python", "int█ x", "␣", ""),
    Case("U35b", "python", "doc█ument.open(1)", "s_and_doc", ""),
    Case("U35c", "python", "doc█ument.open(1)", "ument", "", trigger=INVOKED),
    Case("U35d", "python", "doc█ument.open(1)", "s_and_doc", "s_and_doc", trigger=INVOKED),
    # Markdown
    Case("U39a", "markdown", FENCED, f"return 1⏎{FENCE}⏎More", "return 1", asked_language="python"),
    Case(
        "U39b", "markdown", "# Title⏎⏎The tool █⏎", "fills holes.", "fills holes.", asked_language="markdown"
    ),
    Case("U40a", "markdown", "- alpha⏎- █⏎- gamma", "- beta⏎- gamma", "beta"),
    Case("U40b", "markdown", "| a | b | c |⏎|---|---|---|⏎| a | █ | c |⏎", "b | c |", "b"),
    Case("U40c", "markdown", "1. alpha⏎2. █⏎3. gamma", "2. beta⏎3. gamma", "beta"),
    Case("U40d", "markdown", "| a █ c |", "b | c |", "b"),
    # What no model should say, and says
    Case("U51a", "python", "def f():⏎␣␣␣␣█", "return x<|endoftext|>", "return x"),
    Case("U51b", "python", "x = █", "<|fim_pad|><|fim_pad|>", ""),
    Case("U51c", "python", "x = █", "<|mask|><|endoftext|>", ""),
    Case("U53", "python", "█", "x = 1⏎x = 1⏎x = 1⏎x = 1", "x = 1"),
    Case("U54a", "python", "total = █", "total = price", "price"),
    Case("U54b", "python", "def f(x):⏎␣␣␣␣return █", "def f(x):⏎␣␣␣␣return x + 1", "x + 1"),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"))


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    yield shared
    run(shared.tidy())


def as_crlf(text: str) -> str:
    return text.replace("⏎", "␍⏎")


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES])
@on_loop
async def test_case(client: Client, case: Case) -> None:
    await replay(client, case)


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES if "⏎" in each.document])
@on_loop
async def test_case_with_crlf(client: Client, case: Case) -> None:
    document, inserted = as_crlf(case.document), as_crlf(case.inserted)
    await replay(client, dataclasses.replace(case, document=document, inserted=inserted))
    assert not any("\r" in call["prefix"] + call["suffix"] for call in client.script.calls())


async def replay(client: Client, case: Case) -> None:
    await client.configure(case.settings)
    client.script.says(case.raw)
    document, offset = client.open_at(case.document, case.language)
    items = await client.ask(document, offset, case.trigger)
    texts = invariants.check(document, offset, items)
    before, after = show(case.document).split("█")
    assert texts == ([before + show(case.inserted) + after] if case.inserted else [])
    if case.asked_language:
        assert [call["language"] for call in client.script.calls()] == [case.asked_language]


SELECTED = [
    # The entry selected in the editor's own list is part of the text already.
    pytest.param("arr.le█", "length", " > 0⏎y = 1", "length > 0", id="U43a"),
    pytest.param("if arr.le█:", "length", " > 0", "length > 0", id="U43b"),
    pytest.param("arr.█", "length", " > 0", "length > 0", id="U43c"),
]


@pytest.mark.parametrize(("marked", "entry", "raw", "new"), SELECTED)
@on_loop
async def test_selected_entry(client: Client, marked: str, entry: str, raw: str, new: str) -> None:
    client.script.says(raw)
    document, offset = client.open_at(marked, "javascript")
    start = document.text.index("arr.") + len("arr.")
    selected = {"range": document.span(start, offset), "text": entry}
    (item,) = await client.ask(document, offset, selected=selected)
    invariants.check(document, offset, [item], selected)
    assert (item["range"], item["insertText"]) == (selected["range"], new)
    (call,) = client.script.calls()
    assert call["prefix"].endswith("arr.length")
    assert call["suffix"] == document.text[offset:]


@on_loop
async def test_u44_no_ghost_text_beside_the_popup_when_it_is_not_wanted(client: Client) -> None:
    await client.configure({"whenPopupVisible": "off"})
    client.script.says(" > 0")
    document, offset = client.open_at("arr.le█", "javascript")
    selected = {"range": document.span(4, offset), "text": "length"}
    assert await client.ask(document, offset, selected=selected) == []
    assert await client.ask(document, offset, INVOKED, selected) == []
    assert client.script.calls() == []
    assert len(await client.ask(document, offset)) == 1
