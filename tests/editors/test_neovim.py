"""The plugin for Neovim, in Neovim: where the core shows suggestions (0.12), and where the plugin does (0.12, 0.11).

What is shown is read from the screen, what was accepted from the saved file.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator

import pytest
from tests.editors import installed
from tests.editors.conftest import SOURCE_FOLDERS
from tests.editors.neovim_plugin import IS_ATTACHED, KINDS, Editor, Kind, engines_of_its_own
from tests.lsp.document import show
from tests.lsp.script import Script

from tenon_engine import runtime

pytestmark = pytest.mark.editors


@pytest.fixture(scope="module", params=KINDS, ids=str)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    kind: Kind = request.param
    installed.neovim(kind.version)
    folder = tmp_path_factory.mktemp("nvim")
    script = Script(folder / "script.json")
    command = [sys.executable, "-m", "tenon_engine", "lsp", "--model", f"scripted:{script.path}"]
    with engines_of_its_own() as engines:
        environment = os.environ | {
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": os.pathsep.join(map(str, SOURCE_FOLDERS)),
            runtime.FOLDER_VARIABLE: engines,
            "LANG": "C.UTF-8",
        }
        with Editor(kind, folder, environment, script, cmd=command) as editor:
            yield editor
            assert editor.said() == []
            assert editor.lua("return globals") == []


@pytest.fixture
def editor(shared: Editor) -> Iterator[Editor]:
    """The editor that tests share; nothing of the test before is left in it."""
    shared.script.forget_calls()
    yield shared
    shared.type("<Esc><Esc>")
    shared.request("nvim_command", "silent %bwipeout!")
    shared.lua("for _, list in ipairs({ said, more, commands }) do while table.remove(list) do end end")
    shared.script.says("")


# Suggestions


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A text with a cursor, what is typed there, what the model says, what is shown, what is in the file afterwards."""

    name: str
    marked: str
    typed: str
    raw: str
    shown: str
    written: str
    file: str = "file.py"


CASES = [
    Case("rest-of-line", "x = █⏎", "f", "oo(1, 2)", "x = foo(1, 2)", "x = foo(1, 2)⏎"),
    Case("emoji-before", 's = "😀é" + █⏎', "t", "ail", 's = "😀é" + tail', 's = "😀é" + tail⏎'),
    Case("wide-text", "x = █⏎", '"', '日本"', 'x = "日本"', 'x = "日本"⏎'),
    Case("before-other-text", "foo(█, z)⏎", "a", " + beta", "foo(a + beta, z)", "foo(a + beta, z)⏎"),
    Case("between-emojis", 'f("😀", █, "😀")⏎', "a", " + b", 'f("😀", a + b, "😀")', 'f("😀", a + b, "😀")⏎'),
    Case(
        "several-lines",
        "def f():⏎    █⏎",
        "a",
        " = 1⏎    b = 2",
        "def f():⏎    a = 1⏎    b = 2",
        "def f():⏎    a = 1⏎    b = 2⏎",
    ),
    Case(
        "tabs",
        "func f() {⏎⇥if ok {⏎⇥⇥█⏎⇥}⏎}⏎",
        "a",
        "()⏎⇥⇥b()",
        "func f() {⏎        if ok {⏎                a()⏎                b()⏎        }⏎}",
        "func f() {⏎⇥if ok {⏎⇥⇥a()⏎⇥⇥b()⏎⇥}⏎}⏎",
        "file.go",
    ),
    Case(
        "crlf",
        "def f():␍⏎    █␍⏎",
        "a",
        " = 1⏎    b = 2",
        "def f():⏎    a = 1⏎    b = 2",
        "def f():␍⏎    a = 1␍⏎    b = 2␍⏎",
    ),
    Case("no-last-line-end", "import os⏎x = █", "f", "oo(1)", "import os⏎x = foo(1)", "import os⏎x = foo(1)"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_shown_is_what_is_in_the_file_after_accepting(editor: Editor, case: Case) -> None:
    editor.script.says(case.raw)
    path = editor.begin(case.marked, case.file)
    editor.lua("vim.bo.fixendofline = false")
    editor.type(case.typed)
    editor.shows(show(case.shown))
    editor.type("<Tab>")
    assert editor.written(path) == show(case.written)


def test_an_acceptance_is_one_step_to_undo(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.type("<Tab> + 1<Esc>")
    editor.until(lambda: editor.text() == "x = foo(1) + 1")
    undone = []
    for _ in range(3):
        editor.type("u")
        undone.append(editor.until(lambda: editor.text() if editor.text() not in undone else "", "no undo"))
    assert undone == ["x = foo(1)", "x = f", "x = "]


def test_a_word_and_a_line_are_accepted_and_the_rest_stays(editor: Editor) -> None:
    editor.script.says("lpha + beta⏎    gamma()")
    path = editor.begin("def f():⏎    █⏎")
    editor.type("a")
    editor.shows("def f():\n    alpha + beta\n    gamma()")
    for key, text in [
        ("<M-Right>", "alpha"),
        ("<M-Right>", "alpha +"),
        ("<M-C-Right>", "alpha + beta"),
        ("<M-C-Right>", "alpha + beta\n    gamma()"),
    ]:
        editor.type(key)
        assert editor.text() == f"def f():\n    {text}"
        editor.shows("def f():\n    alpha + beta\n    gamma()")
    assert len(editor.script.calls()) == 1
    assert editor.written(path) == "def f():\n    alpha + beta\n    gamma()\n"


def test_the_server_is_told_of_what_was_accepted_when_all_of_it_was(editor: Editor) -> None:
    editor.script.says("oo + bar")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo + bar")
    editor.type("<M-Right>")
    editor.until(lambda: editor.text() == "x = foo")
    assert editor.lua("return commands") == []
    editor.type("<Tab>")
    editor.until(lambda: editor.text() == "x = foo + bar")
    assert editor.lua("return commands") == ["tenon.didAccept"]


def test_a_word_of_what_goes_before_other_text_leaves_that_text_alone(editor: Editor) -> None:
    editor.script.says(" + beta")
    path = editor.begin("foo(█, z)⏎")
    editor.type("a")
    editor.shows("foo(a + beta, z)")
    editor.type("<M-Right>")
    editor.shows("foo(a + beta, z)")
    assert editor.written(path) == "foo(a +, z)\n"


def test_what_is_typed_through_is_not_inserted_again(editor: Editor) -> None:
    editor.script.says("nset")
    path = editor.begin("x = █⏎")
    editor.type("su")
    editor.until(editor.is_visible)
    editor.type("ns<Tab>")  # before any new answer
    assert editor.written(path) == "x = sunset\n"


def test_a_bracket_that_was_closed_while_typing_is_not_closed_again(editor: Editor) -> None:
    editor.script.says("oo(1, 2)")
    path = editor.begin("x = █⏎")
    editor.lua("vim.keymap.set('i', '(', '()<Left>', { buffer = true })")
    editor.type("f")
    editor.shows("x = foo(1, 2)")
    editor.type("oo(")
    editor.shows("x = foo(1, 2)")
    editor.type("<Tab>")
    assert editor.written(path) == "x = foo(1, 2)\n"


def test_what_does_not_fit_what_was_typed_is_hidden_at_once(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.script.says("", delay_ms=30_000)
    editor.type("z")
    editor.shows("x = fz")
    assert not editor.is_visible()


def test_an_answer_for_a_text_that_has_changed_is_never_shown(editor: Editor) -> None:
    editor.script.says("oo(1)", delay_ms=300)
    path = editor.begin("x = █⏎")
    editor.type("f")
    editor.until(editor.script.calls)
    editor.script.says("")
    editor.type("z")
    editor.until(lambda: len(editor.script.calls()) == 2)
    editor.settles()
    assert not editor.is_visible()
    assert editor.screen() == "x = fz"
    editor.type(" + 1<Tab>")
    assert editor.written(path).startswith("x = fz + 1")


def test_an_answer_that_the_server_sent_before_it_heard_of_a_change_is_not_shown(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.script.says("")
    # The question is answered from memory; changes are told to the server 150 ms after they are made.
    editor.lua("require('tenon').trigger() vim.api.nvim_buf_set_text(0, 0, 0, 0, 0, { 'y' })")
    editor.settles()
    assert editor.screen() == "yx = f"


def test_a_dismissed_suggestion_stays_away_until_the_text_changes(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.type("<C-]>")
    editor.shows("x = f")
    editor.settles()
    assert editor.screen() == "x = f"
    editor.type("o")
    editor.shows("x = foo(1)")


@pytest.mark.parametrize("leaving", ["<Esc>", "<C-c>"])
def test_outside_insert_mode_nothing_is_shown(editor: Editor, leaving: str) -> None:
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.type(leaving)
    editor.shows("x = f")


def test_asked_for_by_hand_a_suggestion_comes_where_none_comes_by_itself(editor: Editor) -> None:
    editor.script.says("_end")
    editor.begin("x = sta█rt⏎")
    editor.settles()
    assert not editor.is_visible()
    editor.type("<M-Bslash>")
    editor.shows("x = sta_endrt")


def test_one_goes_from_a_suggestion_to_the_next_and_back(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.lua("table.insert(more, 'in(2)')")
    path = editor.begin("x = █⏎")
    editor.type("f")
    editor.until(editor.is_visible)
    editor.type("<M-]>")
    editor.shows("x = fin(2) (2/2)")
    editor.type("<M-]>")
    editor.shows("x = foo(1) (1/2)")
    editor.type("<M-[>")
    editor.shows("x = fin(2) (2/2)")
    editor.type("<Tab>")
    assert editor.written(path) == "x = fin(2)\n"


def test_a_server_that_comes_while_one_types_is_asked_at_once(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.edit("x = \n")
    editor.insert(0, 4)
    editor.type("f")
    editor.shows("x = foo(1)")


# The Tab key stays the user's


def test_tab_belongs_to_the_menu_in_which_an_entry_is_selected(editor: Editor) -> None:
    editor.script.says("_bar()")
    path = editor.begin("football = 1⏎fool = 2⏎fo█⏎")
    editor.lua("vim.keymap.set('i', '<Tab>', '<C-n>')")
    editor.type("o<C-p>")
    editor.until(lambda: editor.text().endswith("\nfool"))
    editor.until(editor.is_visible)
    editor.type("<Tab>")
    editor.until(lambda: not editor.text().endswith("\nfool"))
    editor.type("<C-y>")
    editor.lua("vim.keymap.del('i', '<Tab>')")
    assert "_bar" not in editor.written(path)


MAPPINGS = {
    "nothing": ("", "word\t"),
    "an abbreviation": ("vim.cmd [[iabbrev <buffer> word sentence]]", "sentence\t"),
    "keys": ("vim.keymap.set('i', '<Tab>', '-keys')", "word-keys"),
    "an expression": ("vim.cmd [[inoremap <expr> <Tab> '-ex' .. 'pr']]", "word-expr"),
    "a function for keys": (
        "vim.keymap.set('i', '<Tab>', function() return '-<lt>fn>' end, { expr = true })",
        "word-<fn>",
    ),
    "a function": (
        "vim.keymap.set('i', '<Tab>', function() vim.api.nvim_put({ '-called' }, 'c', false, true) end)",
        "word-called",
    ),
    "a function for no keys": (
        "vim.keymap.set('i', '<Tab>', function() return true end, { expr = true })",
        "word",
    ),
    "another mapping": (
        "vim.cmd [[imap <Tab> <Plug>(x)]] vim.cmd [[inoremap <Plug>(x) -other]]",
        "word-other",
    ),
    "itself and more": ("vim.cmd [[imap <Tab> <Tab>-more]]", "word\t-more"),
    "keys in this buffer": ("vim.keymap.set('i', '<Tab>', '-local', { buffer = true })", "word-local"),
}


@pytest.mark.parametrize(("mapping", "text"), MAPPINGS.values(), ids=MAPPINGS)
def test_with_nothing_to_accept_tab_does_what_it_did_before(editor: Editor, mapping: str, text: str) -> None:
    editor.begin("# █⏎", "file.txt")
    buffer = editor.lua("return vim.api.nvim_get_current_buf()")
    editor.lua(
        f"local keys, buffer = require('tenon.keys'), ... keys.unmap(buffer) {mapping} keys.map(buffer)",
        buffer,
    )
    editor.type("word<Tab><Esc>")
    editor.until(lambda: editor.mode() == "n")
    assert editor.text() == f"# {text}"
    editor.lua("require('tenon.keys').unmap(...)", buffer)
    left = editor.lua(
        "local map = vim.fn.maparg('<Tab>', 'i', false, true) return map.buffer == 1 and map.rhs or ''"
    )
    assert left == ("-local" if "-local" in text else "")
    editor.lua("pcall(vim.keymap.del, 'i', '<Tab>')")


def test_a_mapping_made_after_ours_survives_a_restart(editor: Editor) -> None:
    editor.begin("# █⏎", "file.txt")
    editor.lua("vim.keymap.set('i', '<Tab>', '-mine', { buffer = true })")
    editor.lua("vim.cmd.Tenon('restart')")
    editor.until(lambda: not editor.lua(IS_ATTACHED), "the server does not end")
    editor.until(lambda: editor.lua(IS_ATTACHED), "no server")
    editor.type("word<Tab>")
    editor.until(lambda: editor.text() == "# word-mine")


# Names


def test_a_buffer_has_suggestions_once_it_has_a_name(editor: Editor) -> None:
    editor.script.says("oo(1)")
    editor.edit("\n")  # a server runs
    editor.until(lambda: editor.lua(IS_ATTACHED), "no server")
    editor.type(":enew<CR>:set filetype=python<CR>ix = f<Esc>")
    editor.until(lambda: editor.mode() == "n")
    assert not editor.lua(IS_ATTACHED)
    editor.type(":write new.py<CR>")
    for name in ("first.py", "second.py"):
        editor.until(lambda: editor.lua(IS_ATTACHED), "no server")
        editor.type("Sx = <Esc>Af")
        editor.shows("x = foo(1)")
        editor.type(f"<Esc>:file {name}<CR>")


# Actions on a selection


@pytest.mark.parametrize("line_end", ["⏎", "␍⏎"], ids=["lf", "crlf"])
def test_a_selection_is_rewritten_with_an_instruction_and_undone_in_one_step(
    editor: Editor, line_end: str
) -> None:
    editor.script.says("a = 3⏎    b = 1⏎    c = 4")
    text = "def f():⏎    ⟦a = 1⏎    b = 1⏎    c = 2⟧⏎    return a⏎".replace("⏎", line_end)
    path = editor.select(text)
    editor.type(":Tenon rewrite use other numbers<CR>")
    new = "def f():\n    a = 3\n    b = 1\n    c = 4\n    return a"
    editor.until(lambda: editor.text() == new)
    assert editor.written(path) == show(f"{new}⏎".replace("\n", "⏎").replace("⏎", line_end))
    editor.type("u")
    editor.until(lambda: editor.text() == "def f():\n    a = 1\n    b = 1\n    c = 2\n    return a")


def test_a_rewrite_without_an_instruction_asks_for_one(editor: Editor) -> None:
    editor.script.says("sum(xs)")
    editor.select("y = ⟦xs[0] + xs[1]⟧⏎")
    editor.type(":Tenon rewrite<CR>")
    editor.until(lambda: editor.mode() == "c")
    editor.type("use sum<CR>")
    editor.until(lambda: editor.text() == "y = sum(xs)")


def test_an_instruction_that_comes_late_rewrites_nothing_else(editor: Editor) -> None:
    editor.script.says("sum(xs)")
    editor.lua(
        "local asked = { input = vim.ui.input } package.loaded.asked = asked"
        " vim.ui.input = function(_, answer) asked.answer = answer end"
    )
    editor.select("y = ⟦xs[0] + xs[1]⟧⏎")
    editor.type(":Tenon rewrite<CR>")
    editor.until(lambda: editor.lua("return require('asked').answer ~= nil"))
    editor.type("Onew<Esc>")
    editor.until(lambda: editor.mode() == "n")
    editor.lua("local asked = require('asked') vim.ui.input = asked.input asked.answer('use sum')")
    editor.until(editor.said)
    assert editor.said() == ["Tenon: the text has changed meanwhile; nothing was done."]
    assert (editor.text(), editor.script.calls()) == ("new\ny = xs[0] + xs[1]", [])


def test_a_rewrite_is_dropped_when_the_text_has_changed_meanwhile(editor: Editor) -> None:
    editor.script.says("sum(xs)", delay_ms=500)
    editor.select("y = ⟦xs[0] + xs[1]⟧⏎")
    editor.type(":Tenon rewrite use sum<CR>")
    editor.until(editor.script.calls)
    editor.type("Onew<Esc>")
    editor.until(editor.said)
    assert editor.said() == ["Tenon: the text has changed meanwhile; nothing was done."]
    assert editor.text() == "new\ny = xs[0] + xs[1]"


def test_a_selection_is_refined(editor: Editor) -> None:
    editor.script.says("colour", scores=[["color", 0.01]])
    editor.select("name = ⟦color + size⟧⏎")
    editor.type(":Tenon refine light<CR>")
    editor.until(lambda: editor.text() == "name = colour + size")


def test_all_holes_are_filled(editor: Editor) -> None:
    editor.script.says("1")
    editor.edit("x = ___\ny = TODO_FILL\n")
    editor.until(lambda: editor.lua(IS_ATTACHED), "no server")
    editor.type(":Tenon fill<CR>")
    editor.until(lambda: editor.text() == "x = 1\ny = 1")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("Tenon rewrite shorter", "Tenon: select what is to be rewritten."),
        ("Tenon refine", "Tenon: select what is to be refined."),
        ("Tenon refine hard", 'Tenon: there is no "refine hard". There is: light, medium, strong'),
        ("Tenon fill", "Tenon: there is nothing here to do that with."),
        ("setlocal nomodifiable | Tenon fill", "Tenon: this buffer cannot be changed."),
        ("Tenon status now", 'Tenon: "status" takes nothing more.'),
        ("Tenon trigger", "Tenon: suggestions are asked for in insert mode."),
        (
            "Tenon fly",
            'Tenon: there is no "fly". There is: disable, enable, fill, log, refine, restart, rewrite, status,'
            " toggle, trigger",
        ),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(editor: Editor, command: str, answer: str) -> None:
    editor.begin("x = █⏎")
    editor.type(f"<Esc>:{command}<CR>")
    editor.until(editor.said)
    assert editor.said() == [answer]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Tenon re", "refine restart rewrite"),
        ("Tenon refine ", "light medium strong"),
        ("1,2Tenon refine m", "medium"),
        ("Tenon toggle ", "buffer"),
        ("Tenon restart ", ""),
        ("Tenon fly ", ""),
    ],
)
def test_commands_are_completed(editor: Editor, line: str, words: str) -> None:
    assert editor.request("nvim_call_function", "getcompletion", [line, "cmdline"]) == words.split()
