"""The window: exact where the text fits; else contiguous at the place, folded above, cut at lines, in the budget."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lsp.document import at_cursor, show

from tenon_lsp.context import Budget, Window, window
from tenon_lsp.documents import CellText, Documents, Snapshot
from tenon_lsp.place import Place
from tenon_lsp.positions import Encoding

ROOT = Path(__file__).parents[2]
BUDGET = Budget.of(480, 128, 256)
SMALL = Budget(300, 120, 0)

_JAVASCRIPT = """import { tax } from "./tax";

export class Basket {
  constructor(owner) {
    this.owner = owner;
  }

  total() {
    let sum = 0;
    for (const item of this.items) {
      if (item.count > 0) {
        sum += item.price * item.count;
      }
    }
    return sum;
  }
}

"""
_GO = """package basket

import (
\t"fmt"
\t"os"
)

type Basket struct {
\titems []Item
}

func (b *Basket) Total() int {
\tsum := 0
\tfor _, item := range b.items {
\t\tif item.Count > 0 {
\t\t\tsum += item.Price
\t\t}
\t}
\treturn sum
}

"""
_RUST = """use std::fmt;

pub struct Basket {
    items: Vec<Item>, // é🚀
}

impl Basket {
    pub fn total(&self) -> u32 {
        let mut sum = 0;
        for item in &self.items {
            sum += item.price;
        }
        sum
    }
}

"""
_YAML = "jobs:\n  test:\n    steps:\n      - run: make\n        env:\n          A: é\n      - uses: it\n"
_HTML = "<body>\n  <div>\n    <p>one</p>\n    <script>\n      let a = 1;\n    </script>\n  </div>\n</body>\n"
_KLINGON = "begin\n  wo'\n    jatlh x\n    jatlh y\n  end\n"
_FENCES = (
    "# A\n\nSome words.\n\n```python\nimport a\n\ndef f():\n    return a.b\n```\n\n## B\n\n- one\n  - two\n"
)


@functools.cache
def sources() -> list[tuple[str, str]]:
    """Language and text of real files, and of made ones in other languages."""
    files = {
        "python": ["engine/tenon_engine/diffusion.py", "lsp/tenon_lsp/syntax.py", "examples/shapes.py"],
        "javascript": ["examples/basket.js", "engine/tenon_engine/trace.js"],
        "css": ["engine/tenon_engine/trace.css"],
        "markdown": ["README.md"],
        "toml": ["pyproject.toml"],
    }
    real = [(name, (ROOT / path).read_text("utf-8")) for name, paths in files.items() for path in paths]
    made = {"javascript": _JAVASCRIPT, "go": _GO, "rust": _RUST, "yaml": _YAML, "html": _HTML}
    made |= {"klingon": _KLINGON, "markdown": _FENCES}
    return [*real, *((name, text * 12) for name, text in made.items())]


def snapshot(text: str, language: str, uri: str = "file:///work/app/a.txt") -> Snapshot:
    documents = Documents(Encoding.UTF_16)
    documents.open(uri, language, 1, text)
    found = documents.snapshot(uri)
    assert found is not None
    return found


@functools.lru_cache(maxsize=64)
def _cached(text: str, language: str) -> Snapshot:
    return snapshot(text, language)


def at(marked: str, language: str, budget: Budget = BUDGET) -> Window:
    text, offset = at_cursor(marked)
    return window(Place.at(snapshot(text, language), offset), budget)


@st.composite
def places(draw: st.DrawFn) -> Place:
    """A hole in one of the files, as it is or with other line ends; none tears a CRLF apart."""
    language, text = draw(st.sampled_from(sources()))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    offset = st.integers(0, len(text)).map(lambda at: at - (text[at - 1 : at + 1] == "\r\n"))
    start = draw(offset)
    end = draw(st.one_of(st.just(start), offset.filter(lambda end: end >= start)))
    return Place.at(_cached(text, language), start, end)


BUDGETS = st.builds(Budget, st.integers(0, 4000), st.integers(0, 1500), st.just(0))


def lines_of(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def contiguous(seen: str, own: str) -> str:
    """The part of a window's prefix that is the text just before the place, as far as whole lines go."""
    if seen.endswith(own):
        return own
    common = next(n for n in range(len(own) + 1) if seen[-n - 1 :] != own[-n - 1 :])
    tail = own[len(own) - common :]
    if own[len(own) - common - 1] == "\n":
        return tail
    return tail[tail.index("\n") + 1 :] if "\n" in tail else ""


def is_left_out(line: str) -> bool:
    return not line.strip() or line.endswith(" ...")


@settings(max_examples=300)
@given(places(), BUDGETS)
def test_a_window_is_within_its_budget(place: Place, budget: Budget) -> None:
    seen = window(place, budget)
    assert len(seen.prefix) <= budget.prefix_characters
    assert len(seen.suffix) <= budget.suffix_characters
    assert seen.language == place.language


@settings(max_examples=300)
@given(places(), BUDGETS)
def test_what_fits_is_given_as_it_stands(place: Place, budget: Budget) -> None:
    seen = window(place, budget)
    if len(place.prefix) <= budget.prefix_characters:
        assert seen.prefix.endswith(place.prefix)
        if place.region.is_whole:
            assert seen.prefix == place.prefix
    if len(place.suffix) <= budget.suffix_characters:
        assert seen.suffix == place.suffix


@settings(max_examples=300)
@given(places(), st.integers(1200, 4000))
def test_what_does_not_fit_is_cut_at_a_line_and_folded_above(place: Place, characters: int) -> None:
    own, seen = place.prefix, window(place, Budget(characters, 0, 0)).prefix
    near = contiguous(seen, own)
    if len(own) > characters and max(map(len, lines_of(own))) < characters / 4:
        assert len(near) > characters / 5
        above = lines_of(own[: len(own) - len(near)])
        folded = lines_of(seen[: len(seen) - len(near)])
        assert [line for line in folded if line not in above and not is_left_out(line)] == []


@settings(max_examples=300)
@given(places(), st.integers(200, 1500))
def test_the_far_end_of_a_suffix_is_the_end_of_a_line(place: Place, characters: int) -> None:
    own, seen = place.suffix, window(place, Budget(0, characters, 0)).suffix
    assert own.startswith(seen)
    longest = max(map(len, lines_of(own)))
    if longest < characters / 2 - 2 and len(own) > characters:
        assert seen.endswith("\n")
        assert len(seen) > characters / 2


@given(places(), BUDGETS)
def test_a_window_depends_on_the_place_and_the_budget_alone(place: Place, budget: Budget) -> None:
    source = place.snapshot.text.source
    again = Place.at(snapshot(source, place.snapshot.language), place.start, place.end)
    assert window(place, budget) == window(again, budget)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(("language", "text"), sources(), ids=lambda value: value[:12].split("\n")[0])
def test_while_one_types_the_window_seldom_changes_but_at_its_end(
    language: str, text: str, line_end: str
) -> None:
    offset = text.index("\n", len(text) * 2 // 3) + 1
    words = ("value = other, " * 20)[:280]
    text = text.replace("\n", line_end)
    offset = text.index("\n", offset - 1) + 1
    before, moves = "", 0
    current = snapshot(text, language)
    for count, key in enumerate(words):
        here = offset + count
        current = dataclasses.replace(
            current,
            text=current.text.edited(here, here, key),
            syntax=current.syntax and current.syntax.edited(here, here, key),
        )
        seen = window(Place.at(current, here + 1), BUDGET).prefix
        moves += bool(before) and not seen.startswith(before)
        before = seen
    assert moves <= 5


def test_a_budget_is_what_so_many_tokens_hold() -> None:
    assert BUDGET.suffix_characters == int(128 * 3.1)


_METHODS = "".join(f"    def step_{n}(self, x: int) -> int:\n        return x + {n}\n\n" for n in range(6))
_LONG = f"""import os
import json
from app.models import Order


@final
class Basket(
    Base,
):
    '''Items.'''

{_METHODS}    def total(
        self,
        tax: float = 0.0,
    ) -> float:
        for item in self.items:
{"            self.see(item)⏎" * 40}            item.█
"""


def test_a_folded_text_has_imports_headers_and_signatures_in_the_order_of_the_document() -> None:
    prefix = at(_LONG, "python", Budget(900, 100, 0)).prefix
    assert prefix.startswith("""import os
import json
from app.models import Order
# ...
class Basket(
    Base,
):
    # ...
    def step_5(self, x: int) -> int:
        # ...
    def total(
        self,
        tax: float = 0.0,
    ) -> float:
        for item in self.items:
            # ...
            self.see(item)
""")


def test_headers_come_before_imports_and_the_last_imports_before_the_first() -> None:
    prefix = at(_LONG, "python", Budget(660, 100, 0)).prefix
    assert "class Basket(" in prefix
    assert "from app.models import Order" in prefix
    assert "import os" not in prefix


def test_headers_survive_a_tree_that_is_broken_at_the_cursor() -> None:
    broken = _LONG.replace("item.█", "item.call(x[█")
    assert at(broken, "python", Budget(900, 100, 0)).prefix.count("class Basket(") == 1
    assert "def total(" in at(broken, "python", Budget(900, 100, 0)).prefix


def test_the_brace_that_opens_a_body_belongs_to_the_header() -> None:
    body = "⏎".join(f"␣␣␣␣step({n});" for n in range(60))
    prefix = at(f"namespace a {{⏎int f(int a,⏎      int b)⏎{{⏎{body}⏎␣␣␣␣█⏎}}⏎}}", "cpp", SMALL).prefix
    assert prefix.startswith("namespace a {\nint f(int a,\n      int b)\n{\n    // ...\n    step(")


def test_without_a_grammar_indentation_tells_what_encloses_the_place() -> None:
    body = "⏎".join(f"␣␣␣␣jatlh {n}" for n in range(60))
    prefix = at(f"wej⏎taH yuQ⏎␣␣chugh x⏎{body}⏎␣␣␣␣█", "klingon", SMALL).prefix
    assert prefix.startswith("taH yuQ\n  chugh x\n\n    jatlh ")


def test_a_suffix_ends_with_the_scope_when_that_is_long_enough() -> None:
    rest = "⏎".join(f"␣␣␣␣c = {n}" for n in range(8))
    seen = at(f"def f():⏎␣␣␣␣█⏎{rest}⏎⏎⏎def g():⏎␣␣␣␣pass⏎{'x = 1⏎' * 50}", "python", SMALL)
    assert seen.suffix == show(f"⏎{rest}⏎")


@pytest.mark.parametrize("ending", ["", "\n", "\n\n\n", "\n\nMore text"])
def test_long_prose_begins_with_the_headings_it_is_under(ending: str) -> None:
    words = "⏎".join(f"A line of prose with the number {n}.⏎" for n in range(40))
    text = f"# Manual⏎⏎Hello.⏎⏎## Install⏎⏎Text.⏎⏎### Linux⏎⏎{words}{ending}█"
    prefix = at(text, "markdown", Budget(600, 100, 0)).prefix
    headings = [line for line in prefix.split("\n") if line.startswith("#")]
    assert headings == ["# Manual", "## Install", "### Linux"]


def test_a_fence_is_preceded_by_the_prose_just_above_it_as_comments() -> None:
    seen = at("# A⏎⏎Far.⏎⏎Add two numbers:⏎as here⏎⏎```python⏎def add(█⏎```⏎⏎Prose.⏎", "markdown")
    assert seen == Window("# Add two numbers:\n# as here\ndef add(", "\n", None, "python")


def test_nothing_stands_before_a_fence_in_a_language_without_line_comments() -> None:
    assert at("Style:⏎⏎```css⏎a {█⏎```⏎", "markdown").prefix == "a {"


def with_cells(marked: str, language: str, cells: list[tuple[str, bool]]) -> Place:
    text, offset = at_cursor(marked)
    before = tuple(CellText(show(cell), is_code) for cell, is_code in cells)
    cell = snapshot(text, language, "vscode-notebook-cell:/work/app/a.ipynb#c2")
    return Place.at(dataclasses.replace(cell, cells=before), offset)


def test_u41_earlier_cells_stand_before_a_cell_and_markdown_is_commented() -> None:
    cells = [("import db", True), ("# Load⏎⏎the data", False), ("df = load()⏎", True)]
    seen = window(with_cells("df.█", "python", cells), BUDGET)
    assert seen.prefix == "import db\n\n# # Load\n#\n# the data\n\ndf = load()\n\ndf."
    assert (seen.suffix, seen.path) == ("", None)


def test_u41_a_markdown_cell_shows_code_as_indented_code() -> None:
    cells = [("df = load()", True), ("# Load", False)]
    assert window(with_cells("We█", "markdown", cells), BUDGET).prefix == "    df = load()\n\n# Load\n\nWe"


def test_u41_of_many_cells_the_nearest_are_given_from_the_start_of_a_line() -> None:
    cells = [("⏎".join(f"c{cell} = {line}" for line in range(9)), True) for cell in range(40)]
    prefix = window(with_cells("own = 1⏎x = █", "python", cells), SMALL).prefix
    assert prefix.endswith("c39 = 8\n\nown = 1\nx = ")
    assert len(prefix) > 200
    assert prefix.split("\n")[0] in {f"c{cell} = {line}" for cell in range(40) for line in range(9)}


def test_u41_a_cell_that_does_not_fit_is_folded_alone() -> None:
    own = "⏎".join(f"x{n} = {n}" for n in range(100))
    prefix = window(with_cells(f"{own}⏎█", "python", [("df = load()", True)]), SMALL).prefix
    assert prefix.endswith("x99 = 99\n")
    assert "df" not in prefix


def test_what_is_put_before_a_text_has_the_line_ends_of_the_text() -> None:
    seen = at("Add:⏎⏎```python⏎x = 1⏎def add(█⏎```⏎".replace("⏎", "␍⏎"), "markdown")
    assert seen.prefix == "# Add:\r\nx = 1\r\ndef add("
    folded = at(_LONG.replace("⏎", "\n").replace("\n", "␍⏎"), "python", Budget(900, 100, 0)).prefix
    assert folded.count("\r\n") == folded.count("\n")


@pytest.mark.parametrize("language", ["javascript", "plaintext", "markdown", "json"])
def test_a_line_of_a_megabyte_is_cut_at_a_character(language: str) -> None:
    line = "f(1,2);" * 150_000
    seen = window(Place.at(_cached(f"a\n{line}\nb\n", language), 500_000), BUDGET)
    assert len(seen.prefix) > BUDGET.prefix_characters / 2
    assert (f"a\n{line}")[:500_000].endswith(seen.prefix.rsplit("\n", 1)[-1])
    assert seen.suffix == (f"a\n{line}")[500_000:][: BUDGET.suffix_characters]


@pytest.mark.parametrize("position", [0.0, 0.3, 0.6, 1.0])
def test_u45_a_window_of_a_large_file_is_contiguous_with_the_cursor(position: float) -> None:
    body = "".join(
        f"def f{n}(a, b):\n    if a > {n}:\n        return b\n\n    return a\n\n\n" for n in range(2900)
    )
    text = f"import os\n\n\n{body}"
    assert text.count("\n") > 20_000
    offset = int(len(text) * position)
    seen = window(Place.at(_cached(text, "python"), offset), BUDGET)
    near = contiguous(seen.prefix, text[:offset])
    assert len(near) >= min(offset, BUDGET.prefix_characters / 3)
    assert text[: offset - len(near)].endswith("\n") or len(near) == offset
    assert text[offset:].startswith(seen.suffix)
    assert seen.suffix.endswith("\n") or not text[offset:]
    assert position in (0.0, 0.3) or "import os\n" in seen.prefix


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///work/app/src/a%20b.py", "src/a b.py"),
        ("file:///work/lib/c.py", "lib/c.py"),
        ("file:///else/where/d.py", "d.py"),
        ("untitled:Untitled-1", None),
        ("vscode-notebook-cell:/work/app/a.ipynb#c2", None),
    ],
)
def test_a_path_is_told_from_the_innermost_folder(uri: str, path: str | None) -> None:
    place = Place.at(snapshot("x", "python", uri), 1)
    assert window(place, BUDGET, [Path("/work"), Path("/work/app")]).path == path
