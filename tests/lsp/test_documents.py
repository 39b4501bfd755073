"""Documents: random edits followed as an independent model follows them, trees kept in step, notebooks, closing."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import re
import weakref
from pathlib import Path

import pytest
import tree_sitter
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon_lsp.documents import Cell, CellText, Change, Documents, LastChange, Snapshot, name_of, path_of
from tenon_lsp.positions import Encoding, Position
from tenon_lsp.syntax import Syntax

URI = "file:///work/a.py"
OTHER = "file:///work/b.py"
NOTEBOOK = "file:///work/n.ipynb"

_CODECS = {Encoding.UTF_8: ("utf-8", 1), Encoding.UTF_16: ("utf-16-le", 2), Encoding.UTF_32: ("utf-32-le", 4)}


@dataclasses.dataclass(slots=True)
class Model:
    """A text edited as the protocol says, counted in bytes of the codec itself."""

    text: str
    encoding: Encoding

    def offset(self, position: Position) -> int:
        codec, width = _CODECS[self.encoding]
        lines = re.split(r"(\r\n|\r|\n)", self.text)
        if 2 * position.line >= len(lines):
            return len(self.text)
        head = lines[2 * position.line].encode(codec)[: position.character * width]
        return len("".join(lines[: 2 * position.line])) + len(head.decode(codec, "ignore"))

    def apply(self, change: Change) -> None:
        if change.span is None:
            self.text = change.text
            return
        start, end = sorted(map(self.offset, change.span))
        self.text = self.text[:start] + change.text + self.text[end:]


PIECES = [
    *("def f(a):\n", "    return a\r\n", "x = 1\r", "if x:\n    y\n", '"""', "(", ")", "[", "# é"),
    *("é", "e\u0301", "🚀", "👩‍🚀", "汉", "\u2028", "\x0b", "\ufeff", "\n", "\r", "\r\n", " ", "\t", "a"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
POSITIONS = st.builds(Position, st.integers(0, 12), st.integers(0, 14) | st.just(2**31 - 1))
EDITS = st.builds(Change, st.tuples(POSITIONS, POSITIONS), TEXTS)
CHANGES = st.lists(EDITS | st.builds(Change, st.none(), TEXTS), max_size=3)


def opened(source: str, encoding: Encoding = Encoding.UTF_16, language: str = "python") -> Documents:
    documents = Documents(encoding)
    documents.open(URI, language, 1, source)
    return documents


def now(documents: Documents, uri: str = URI) -> Snapshot:
    snapshot = documents.snapshot(uri)
    assert snapshot is not None
    return snapshot


def shape(node: tree_sitter.Node) -> list[object]:
    return [node.type, node.start_byte, node.end_byte, *map(shape, node.children)]


@settings(max_examples=300)
@given(TEXTS, st.sampled_from(list(Encoding)), st.lists(CHANGES, max_size=5), st.data())
def test_text_and_tree_are_those_of_the_editor_after_every_change(
    source: str, encoding: Encoding, steps: list[list[Change]], data: st.DataObject
) -> None:
    documents, model = opened(source, encoding), Model(source, encoding)
    for version, changes in enumerate(steps, 2):
        length_before, before = len(model.text), model.text
        texts = [before]
        for change in changes:
            model.apply(change)
            texts.append(model.text)
        assert documents.change(URI, version, changes)
        snapshot = now(documents)
        assert (snapshot.version, snapshot.text.source) == (version, model.text)
        if any(one != other for one, other in itertools.pairwise(texts)):
            shrank = len(model.text) < length_before
            assert snapshot.last_change is (LastChange.SHRANK if shrank else LastChange.GREW)
        if data.draw(st.booleans(), "whether anyone looks at the tree"):
            check_tree(snapshot)
    check_tree(now(documents))


def check_tree(snapshot: Snapshot) -> None:
    syntax, source = snapshot.syntax, snapshot.text.source
    assert syntax is not None
    assert syntax.source == source
    root = syntax.tree.root_node
    assert not source[: syntax.span(root)[0]].replace("\ufeff", "").strip()
    assert root.end_byte == len(source.encode())
    fresh = Syntax.parse(source, "python")
    assert fresh is not None
    if not fresh.errors:  # tree-sitter may recover from an error in more than one way
        assert shape(root) == shape(fresh.tree.root_node)


@settings(max_examples=200)
@given(TEXTS, TEXTS, st.sampled_from(["markdown", "javascript", "html", "yaml"]))
def test_a_tree_follows_a_whole_new_text(old: str, new: str, language: str) -> None:
    documents = opened(old, language=language)
    assert now(documents).syntax is not None
    documents.change(URI, 2, [Change(None, new)])
    syntax, fresh = now(documents).syntax, Syntax.parse(new, language)
    assert syntax is not None
    assert fresh is not None
    if not fresh.errors:
        assert shape(syntax.tree.root_node) == shape(fresh.tree.root_node)


@given(TEXTS, CHANGES)
def test_a_snapshot_never_changes(source: str, changes: list[Change]) -> None:
    documents = opened(source)
    before = now(documents)
    documents.change(URI, 2, changes)
    assert (before.version, before.text.source) == (1, source)
    assert before.syntax is not None
    assert before.syntax.source == source


@given(TEXTS, st.sampled_from(list(Encoding)), POSITIONS)
def test_a_snapshot_counts_as_the_model_does(source: str, encoding: Encoding, position: Position) -> None:
    snapshot = now(opened(source, encoding))
    offset = snapshot.offset(position)
    assert offset == Model(source, encoding).offset(position)
    assert snapshot.offset(snapshot.position(offset)) == offset


# The last change


def edit(start: int, end: int, text: str) -> Change:
    return Change((Position(0, start), Position(0, end)), text)


@pytest.mark.parametrize(
    ("changes", "last_change"),
    [
        ([], LastChange.OPENED),
        ([edit(2, 2, "x")], LastChange.GREW),
        ([edit(2, 3, "")], LastChange.SHRANK),
        ([edit(0, 4, "ab")], LastChange.SHRANK),
        ([edit(0, 4, "wxyz")], LastChange.GREW),
        ([edit(0, 4, "")], LastChange.SHRANK),
        ([edit(0, 4, "abcd")], LastChange.OPENED),
        ([edit(1, 1, "")], LastChange.OPENED),
        ([Change(None, "abcd")], LastChange.OPENED),
        ([Change(None, "abxcd")], LastChange.GREW),
        ([Change(None, "ad")], LastChange.SHRANK),
        ([edit(0, 1, ""), edit(0, 0, "xyz")], LastChange.GREW),
        ([edit(0, 3, ""), edit(0, 0, "x")], LastChange.SHRANK),
    ],
)
def test_the_last_change_says_whether_text_was_taken_away(
    changes: list[Change], last_change: LastChange
) -> None:
    documents = opened("abcd")
    assert documents.change(URI, 2, changes)
    assert now(documents).last_change is last_change
    assert now(documents).version == 2


def test_a_change_that_changes_nothing_leaves_what_the_last_one_did() -> None:
    documents = opened("abcd")
    documents.change(URI, 2, [edit(0, 1, "")])
    documents.change(URI, 3, [])
    documents.change(URI, 4, [Change(None, "bcd")])
    assert now(documents).last_change is LastChange.SHRANK


def test_a_document_that_is_opened_again_is_begun_anew() -> None:
    documents = opened("abcd")
    documents.change(URI, 7, [edit(0, 1, "")])
    documents.open(URI, "go", 1, "package a\n")
    snapshot = now(documents)
    assert (snapshot.version, snapshot.text.source, snapshot.language) == (1, "package a\n", "go")
    assert snapshot.last_change is LastChange.OPENED
    assert snapshot.syntax is not None
    assert snapshot.syntax.language.id == "go"


def test_a_document_that_is_not_open_is_not_followed() -> None:
    documents = Documents(Encoding.UTF_16)
    assert not documents.change(URI, 2, [Change(None, "x")])
    assert documents.snapshot(URI) is None
    assert documents.edition(URI) is None
    documents.close(URI)
    documents.focus(URI)


# Kinds of documents


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///work/a%20b.py", Path("/work/a b.py")),
        ("file:///work/%C3%A9.py", Path("/work/é.py")),
        ("untitled:Untitled-1", None),
        ("git:/a.py", None),
        ("vscode-notebook-cell:/work/n.ipynb#W0", None),
    ],
)
def test_only_a_file_has_a_path(uri: str, path: Path | None) -> None:
    documents = Documents(Encoding.UTF_16)
    documents.open(uri, "python", 1, "x")
    assert now(documents, uri).path == path


def test_a_language_without_grammar_has_text_but_no_tree() -> None:
    documents = opened("a\n", language="Klingon")
    documents.change(URI, 2, [edit(0, 0, "b")])
    snapshot = now(documents)
    assert (snapshot.text.source, snapshot.language, snapshot.syntax) == ("ba\n", "klingon", None)


# The other documents


def with_others() -> Documents:
    documents = opened("a")
    for name in "bcd":
        documents.open(f"file:///work/{name}.py", "python", 1, name)
    return documents


def others(documents: Documents, uri: str = URI) -> str:
    return "".join(text for _, text in documents.others(uri))


def test_the_other_documents_come_in_the_order_of_their_last_use() -> None:
    documents = with_others()
    assert others(documents) == "bcd"
    documents.focus(OTHER)
    assert others(documents) == "cdb"
    documents.change("file:///work/c.py", 2, [Change(None, "C")])
    assert others(documents) == "dbC"
    documents.open("file:///work/d.py", "python", 1, "D")
    assert others(documents) == "bCD"
    assert others(documents, OTHER) == "aCD"
    documents.close(OTHER)
    assert others(documents) == "CD"
    assert documents.others(URI)[0][0] == "file:///work/c.py"


# Notebooks


def notebook(*cells: tuple[str, bool]) -> tuple[Documents, list[str]]:
    documents = Documents(Encoding.UTF_16)
    uris = [f"vscode-notebook-cell:/work/n.ipynb#{index}" for index in range(len(cells))]
    pairs = list(zip(uris, cells, strict=True))
    documents.set_cells(NOTEBOOK, [Cell(uri, is_code) for uri, (_, is_code) in pairs])
    for uri, (text, is_code) in pairs:
        documents.open(uri, "python" if is_code else "markdown", 1, text)
    return documents, uris


def test_a_cell_knows_what_is_before_it_and_no_more() -> None:
    documents, uris = notebook(("a = 1", True), ("# T", False), ("b", True), ("c", True))
    assert now(documents, uris[2]).cells == (CellText("a = 1", True), CellText("# T", False))
    assert now(documents, uris[0]).cells == ()


def test_a_cell_sees_the_present_text_and_order_of_those_before_it() -> None:
    documents, uris = notebook(("a", True), ("b", True), ("c", True))
    documents.change(uris[0], 2, [Change(None, "A")])
    documents.set_cells(NOTEBOOK, [Cell(uris[1], True), Cell(uris[0], True), Cell(uris[2], True)])
    assert [cell.text for cell in now(documents, uris[2]).cells] == ["b", "A"]
    assert [cell.text for cell in now(documents, uris[0]).cells] == ["b"]


def test_a_closed_cell_is_no_longer_before_the_others() -> None:
    documents, uris = notebook(("a", True), ("b", True), ("c", True))
    documents.close(uris[1])
    assert [cell.text for cell in now(documents, uris[2]).cells] == ["a"]


def test_cells_are_not_among_the_other_documents() -> None:
    documents, uris = notebook(("a", True), ("b", True))
    documents.open(URI, "python", 1, "x")
    documents.open(OTHER, "python", 1, "y")
    assert documents.others(URI) == [(OTHER, "y")]
    assert documents.others(uris[0]) == [(URI, "x"), (OTHER, "y")]


def test_the_cells_of_two_notebooks_are_kept_apart() -> None:
    documents, uris = notebook(("a", True), ("b", True))
    documents.set_cells("file:///work/m.ipynb", [Cell("cell:m0", True), Cell("cell:m1", True)])
    documents.open("cell:m0", "python", 1, "m")
    documents.open("cell:m1", "python", 1, "")
    assert [cell.text for cell in now(documents, "cell:m1").cells] == ["m"]
    assert [cell.text for cell in now(documents, uris[1]).cells] == ["a"]
    assert len(documents.cells(NOTEBOOK)) == 2


def test_a_notebook_without_cells_is_forgotten() -> None:
    documents, uris = notebook(("a", True), ("b", True))
    documents.set_cells(NOTEBOOK, [])
    assert documents.cells(NOTEBOOK) == ()
    assert now(documents, uris[1]).cells == ()


# Memory


def test_closing_frees_text_and_tree() -> None:
    documents = opened("x = 1\n")
    syntax = now(documents).syntax
    assert syntax is not None
    assert not syntax.errors
    gone = weakref.ref(syntax)
    documents.close(URI)
    del syntax
    gc.collect()
    assert documents.snapshot(URI) is None
    assert documents.edition(URI) is None
    assert gone() is None


def test_a_change_frees_the_trees_before_it() -> None:
    documents = opened("x = 1\n")
    syntax = now(documents).syntax
    assert syntax is not None
    assert not syntax.errors
    gone = weakref.ref(syntax)
    del syntax
    documents.change(URI, 2, [edit(0, 0, "y")])
    gc.collect()
    assert gone() is None


def test_a_document_opened_anew_has_another_edition_though_its_version_is_the_same() -> None:
    documents = opened("x = 1")
    first = now(documents).edition
    documents.close(URI)
    documents.open(URI, "python", 1, "y = 2")
    second = now(documents).edition
    documents.open(URI, "python", 1, "y = 2")
    assert first.version == second.version == now(documents).version == 1
    assert len({first, second, now(documents).edition}) == 3
    assert documents.edition(URI) == now(documents).edition


def test_a_cell_is_kept_in_its_notebooks_file() -> None:
    documents = opened("x = 1")
    assert now(documents).file_uri == URI
    documents.set_cells(NOTEBOOK, [Cell(URI, is_code=True)])
    assert now(documents).file_uri == NOTEBOOK


def test_a_cell_of_an_unknown_notebook_is_kept_where_its_uri_says() -> None:
    documents = Documents(Encoding.UTF_16)
    uri = "vscode-notebook-cell:/work/n%20b.ipynb#W1"
    documents.open(uri, "python", 1, "x = 1")
    assert path_of(now(documents, uri).file_uri) == Path("/work/n b.ipynb")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///work/a%00b.py",
        "file://[bad",
        "file://[bad/a.py",
        "file:///%00",
        "file:",
        "",
        "file:///\ud83d",
    ],
)
def test_a_uri_that_no_file_can_have_has_no_path(uri: str) -> None:
    assert path_of(uri) is None
    assert name_of(uri).is_absolute()


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("untitled:/work/.env", "/work/.env"),
        ("untitled:Untitled-1", "/Untitled-1"),
        ("vscode-remote://ssh/work/%2Eenv?a#b", "/work/.env"),
        ("memfs://[bad/.env", "/.env"),
        ("a.py", "/a.py"),
        ("", "/"),
    ],
)
def test_any_uri_names_a_path(uri: str, name: str) -> None:
    assert name_of(uri) == Path(name)
