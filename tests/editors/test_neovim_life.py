"""The plugin for Neovim from its installation on: options, servers that end, what it says, the embedded model."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.editors import installed
from tests.editors.neovim import PLUGIN, Neovim
from tests.editors.neovim_plugin import CORE, IS_ATTACHED, KINDS, OLDER, QUICK, Editor, Kind
from tests.editors.terminal import Terminal
from tests.lsp.script import Script

from tenon_engine import runtime

pytestmark = pytest.mark.editors

Fresh = Callable[..., Editor]


@pytest.fixture
def fresh(tmp_path: Path, environment: dict[str, str], tenon: Callable[..., Path]) -> Iterator[Fresh]:
    """Starts an editor of one's own, as one finds it after the installation, with `tenon` in the path."""
    script = Script(tmp_path / "script.json")
    with contextlib.ExitStack() as stack:

        def start(
            kind: Kind = CORE, *, model: str | None = f"scripted:{script.path}", **options: Any
        ) -> Editor:
            tenon(model)
            return stack.enter_context(Editor(kind, tmp_path, environment, script, **options))

        yield start


# The options


def test_keys_are_the_users_to_choose(fresh: Fresh) -> None:
    editor = fresh(keys={"accept": "<C-y>", "dismiss": False})
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    taken = editor.lua(
        "return vim.iter(vim.api.nvim_buf_get_keymap(0, 'i')):map(function(m) return m.lhs end):totable()"
    )
    assert {"<C-Y>", "<M-Right>"} <= {*taken}
    assert not {"<Tab>", "<C-]>"} & {*taken}
    editor.type("f")
    editor.until(editor.is_visible)
    editor.type("<C-y>")
    assert editor.text() == "x = foo(1)"


def test_several_lines_before_other_text_are_shown_as_they_would_stand(fresh: Fresh) -> None:
    editor = fresh(OLDER, settings=QUICK | {"multiline": "always"})
    editor.script.says("lpha,⏎    beta")
    path = editor.begin("foo(█, z)  # 日本⏎")
    editor.type("a<M-Bslash>")
    editor.shows("foo(alpha,\n    beta, z)  # 日本")
    editor.type("<Tab>")
    assert editor.written(path) == "foo(alpha,\n    beta, z)  # 日本\n"


@pytest.mark.parametrize(("kind", "group"), [(CORE, "ComplHint"), (OLDER, "TenonGhost")], ids=str)
def test_suggestions_are_grey_without_true_colour_too(fresh: Fresh, kind: Kind, group: str) -> None:
    editor = fresh(kind)
    editor.begin("x = █⏎")
    colour = f"return vim.api.nvim_get_hl(0, {{ name = '{group}', link = false }}).ctermfg"
    assert editor.lua(colour) == 8
    editor.lua("vim.cmd.colorscheme('default')")
    assert editor.lua(colour) == 8
    editor.lua(f"vim.cmd.highlight('{group} ctermfg=3')")
    editor.lua("require('tenon.colours').open()")
    assert editor.lua(colour) == 3


def test_holes_are_filled_right_after_the_file_was_read_again(fresh: Fresh) -> None:
    editor = fresh()
    editor.script.says("1 + 2")
    editor.begin("x = ___█⏎")
    editor.type("<Esc>:write<CR>:edit!<CR>:Tenon fill<CR>")
    editor.until(lambda: editor.text() == "x = 1 + 2")


# Positions


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("kind", [CORE, OLDER], ids=str)
def test_positions_are_right_whatever_they_are_counted_in(fresh: Fresh, kind: Kind, encoding: str) -> None:
    editor = fresh(kind)
    editor.lua(
        "local capabilities = vim.lsp.config.tenon.capabilities"
        " capabilities.general.positionEncodings = { ... }"
        " vim.lsp.config('tenon', { capabilities = capabilities })",
        encoding,
    )
    editor.script.says("ail")
    path = editor.begin('s = ["😀é", █, "😀"]⏎')
    assert editor.lua("return vim.lsp.get_clients()[1].offset_encoding") == encoding
    editor.type("t")
    editor.shows('s = ["😀é", tail, "😀"]')
    editor.type("<Tab>")
    assert editor.written(path) == 's = ["😀é", tail, "😀"]\n'
    editor.script.says('"ä"')
    editor.select('⟦"😀é"⟧, tail⏎')
    editor.type(":Tenon rewrite shorter<CR>")
    editor.until(lambda: editor.text() == '"ä", tail')


# On and off


@pytest.mark.parametrize("kind", [CORE, OLDER], ids=str)
@pytest.mark.parametrize("where", ["", " buffer"], ids=["everywhere", "buffer"])
def test_switched_off_nothing_is_asked_until_it_is_asked_for_by_hand(
    fresh: Fresh, kind: Kind, where: str
) -> None:
    editor = fresh(kind)
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type(f"<Esc>:Tenon toggle{where}<CR>A")
    editor.until(lambda: editor.mode() == "i")
    assert editor.lua("return require('tenon').status()") == "tenon off"
    editor.type("f")
    editor.settles()
    assert editor.screen() == "x = f"
    assert editor.script.calls() == []
    editor.type("<M-Bslash>")
    editor.shows("x = foo(1)")
    editor.type("<C-]><Esc>")
    editor.type(f":Tenon toggle{where}<CR>A")
    editor.shows("x = foo(1)")
    assert editor.lua("return require('tenon').status()") == "tenon"


def test_a_buffer_may_have_suggestions_where_the_others_have_none(fresh: Fresh) -> None:
    editor = fresh(enabled=False)
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("<Esc>:Tenon enable buffer<CR>Af")
    editor.shows("x = foo(1)")
    editor.type("<Esc>")
    editor.begin("y = █⏎")
    editor.type("f")
    editor.settles()
    assert editor.screen() == "y = f"


# What goes wrong


def test_an_engine_that_is_killed_comes_back(fresh: Fresh) -> None:
    editor = fresh()
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    (engine,) = runtime.running()
    os.kill(engine.pid, signal.SIGKILL)
    editor.script.says("in(2)")
    editor.type("<BS>f")
    editor.settles()
    editor.type("<M-Bslash>")
    editor.shows("x = fin(2)")
    assert [each.pid for each in runtime.running()] != [engine.pid]


@pytest.fixture
def server_pid(tmp_path: Path) -> Callable[[], int]:
    """The process of the last server that `tenon` has started."""
    return lambda: int((tmp_path / "server.pid").read_text())


def noting_its_pid(tmp_path: Path, tenon: Path) -> list[str]:
    """A command that starts the server and writes down its process."""
    return ["sh", "-c", f"echo $$ > {tmp_path}/server.pid; exec {tenon} lsp"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_server_that_is_killed_is_named_once_and_comes_back_when_told(
    fresh: Fresh, kind: Kind, tmp_path: Path, tenon: Callable[..., Path], server_pid: Callable[[], int]
) -> None:
    editor = fresh(kind, cmd=noting_its_pid(tmp_path, tenon(f"scripted:{tmp_path / 'script.json'}")))
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    os.kill(server_pid(), signal.SIGKILL)
    editor.until(editor.said)
    editor.edit("y = 1\n")
    editor.lua("vim.wait(500)")
    (message,) = editor.said()
    assert message.startswith("Tenon: the language server ended (signal 9). `:Tenon log` shows what it said")
    assert editor.lua("return require('tenon').status()") == ""
    editor.type("<Esc>:Tenon restart<CR>")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    assert len(editor.said()) == 1


def test_a_server_that_ran_for_long_is_started_again_without_a_word(
    fresh: Fresh, tmp_path: Path, tenon: Callable[..., Path], server_pid: Callable[[], int]
) -> None:
    editor = fresh(cmd=noting_its_pid(tmp_path, tenon(f"scripted:{tmp_path / 'script.json'}")))
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.lua("require('tenon.client').STEADY_MS = 0")
    first = server_pid()
    os.kill(first, signal.SIGKILL)
    editor.until(lambda: server_pid() != first and editor.lua(IS_ATTACHED))
    editor.type("f")
    editor.shows("x = foo(1)")
    assert editor.said() == []


def test_a_program_that_is_not_there_is_named_once(fresh: Fresh) -> None:
    editor = fresh(cmd=["tenon-of-nowhere", "lsp"])
    for number in range(3):
        editor.edit(f"x = {number}\n")
    editor.lua("vim.wait(200)")
    (message,) = editor.said()
    assert message.startswith('Tenon: there is no program "tenon-of-nowhere". Install Tenon, or name it: ')


@pytest.mark.parametrize("kind", [CORE, OLDER], ids=str)
def test_a_server_that_ends_at_its_start_is_named_once(fresh: Fresh, kind: Kind) -> None:
    editor = fresh(kind, cmd=["sh", "-c", "echo it is broken >&2; exit 3"])
    for number in range(3):
        editor.edit(f"x = {number}\n")
        editor.until(editor.said)
    editor.lua("vim.wait(300)")
    (message,) = editor.said()
    assert message.startswith("Tenon: the language server ended (exit code 3).")
    editor.type(":Tenon log<CR>")
    editor.until(lambda: "it is broken" in editor.text())


def test_a_server_that_is_too_old_is_named_once(fresh: Fresh) -> None:
    editor = fresh()
    editor.lua("require('tenon.client').OLDEST = '99.0.0'")
    for number in range(3):
        editor.edit(f"x = {number}\n")
        editor.until(editor.said)
    (message,) = editor.said()
    assert message.endswith(
        "is too old for this plugin, which needs 99.0.0. Upgrade it, then `:Tenon restart`."
    )
    editor.until(lambda: editor.lua("return #vim.lsp.get_clients()") == 0)


def test_wrong_options_are_named_in_one_message_and_their_defaults_hold(fresh: Fresh) -> None:
    editor = fresh(keys={"acept": "<Tab>", "next": 1}, filetypes="python", speed=9)
    (message,) = editor.said()
    assert message == (
        'Tenon: filetypes must be a list of strings, or false. keys.next must be a key such as "<M-]>", or false.'
        ' there is no key "acept". there is no option "speed". See :help tenon-options'
    )
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")


def test_a_wrong_setting_is_named_in_one_message(fresh: Fresh) -> None:
    editor = fresh(settings=QUICK | {"minConfidence": "high"})
    editor.begin("x = █⏎")
    editor.settles()
    (message,) = editor.said()
    assert '"tenon.minConfidence" must be a number from 0 to 1' in message


# What it says of itself


def test_the_status_line_says_what_the_server_does(fresh: Fresh) -> None:
    editor = fresh()
    editor.script.says("oo(1)")
    assert editor.lua("return require('tenon').status()") == ""
    editor.begin("x = █⏎")
    assert editor.lua("return require('tenon').status()") == "tenon"
    told = {"message": "loading", "busy": True, "kind": "Normal", "percent": 40}
    editor.lua("require('tenon.status').set(...)", told)
    assert editor.lua("return require('tenon').status()") == "tenon 40%"
    editor.lua("require('tenon.status').set(...)", {"message": "failed", "busy": False, "kind": "Error"})
    assert editor.lua("return require('tenon').status()") == "tenon: failed"
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.until(lambda: editor.lua("return require('tenon').status()") == "tenon")
    editor.type("<Esc>:Tenon status<CR>")
    (message,) = editor.until(editor.said)
    assert message.startswith(f"Tenon: ready, scripted:{editor.script.path}, last suggestion after ")


def test_the_health_check_tells_what_was_found(fresh: Fresh, tmp_path: Path) -> None:
    editor = fresh()
    editor.script.says("oo(1)")
    editor.begin("x = █⏎")
    editor.type("f")
    editor.shows("x = foo(1)")
    editor.type("<Esc>:checkhealth tenon<CR>")
    editor.until(lambda: "the model" in editor.text())
    text = editor.text()
    assert "OK Neovim 0.12" in text
    assert "suggestions are shown by Neovim itself" in text
    assert f"OK tenon is {tmp_path / 'bin' / 'tenon'}" in text
    assert "OK tenon 0." in text
    assert "OK a server runs for files without a project (buffers: 1, positions in utf-8)" in text
    assert f"OK the model: ready, scripted:{editor.script.path}" in text
    assert "ERROR" not in text and "WARNING" not in text


def test_the_health_check_of_what_is_not_there_says_what_to_do(fresh: Fresh) -> None:
    editor = fresh(OLDER, cmd=["tenon-of-nowhere", "lsp"])
    editor.type(":checkhealth tenon<CR>")
    editor.until(lambda: "the model" in editor.text())
    assert 'ERROR there is no program "tenon-of-nowhere"' in editor.text()
    assert "WARNING no server runs" in editor.text()
    assert "suggestions are shown by this plugin" in editor.text()


def test_the_help_has_all_that_is_referred_to(fresh: Fresh, tmp_path: Path) -> None:
    editor = fresh()
    text = (PLUGIN / "doc" / "tenon.txt").read_text("utf-8")
    (tmp_path / "help" / "doc").mkdir(parents=True)
    (tmp_path / "help" / "doc" / "tenon.txt").write_text(text, "utf-8")
    editor.lua("vim.opt.runtimepath:append(...) vim.cmd.helptags(... .. '/doc')", str(tmp_path / "help"))
    for tag in {*re.findall(r"(?<!\S)\|(\S+)\|", text)}:
        editor.request("nvim_command", f"help {tag}")
    options = editor.lua("return vim.tbl_keys(require('tenon.config').options)")
    assert {*re.findall(r"\*tenon-option-(\w+)\*", text)} == {*options}
    commands = editor.request("nvim_call_function", "getcompletion", ["Tenon ", "cmdline"])
    assert {*re.findall(r"\*:Tenon-(\w+)\*", text)} == {*commands}
    assert [line for line in text.splitlines() if len(line) > 78] == []


def test_enabled_by_its_name_alone_it_works_as_well(
    tmp_path: Path, environment: dict[str, str], tenon: Callable[..., Path]
) -> None:
    script = Script(tmp_path / "script.json")
    script.says("oo(1)")
    tenon(f"scripted:{script.path}")
    path = tmp_path / "file.py"
    path.write_text("x = \n")
    with Neovim(installed.neovim(), tmp_path, environment, "vim.lsp.enable('tenon')", [path]) as editor:
        editor.until(lambda: editor.lua(IS_ATTACHED), "no server")
        editor.type("Af")
        editor.shows("x = foo(1)")
        editor.type("<Tab>")
        assert editor.text() == "x = foo(1)"


# With the embedded model


@pytest.mark.weights
@pytest.mark.parametrize("kind", [CORE, OLDER], ids=str)
def test_the_embedded_models_text_is_shown_and_accepted(fresh: Fresh, kind: Kind) -> None:
    editor = fresh(
        kind, model=None, settings={"deadlineMs": 60_000}
    )  # the first answer waits for the weights
    before = 'def to_celsius(fahrenheit: float) -> float:\n    """Convert a temperature."""\n    return'
    after = " * 5 / 9\n\n\ndef to_fahrenheit(celsius: float) -> float:\n    return celsius * 9 / 5 + 32"
    path = editor.begin(f"{before}█{after}\n")
    editor.type(" ")
    editor.shows(f"{before} (fahrenheit - 32){after}")
    editor.type("<Tab>")
    assert editor.written(path) == f"{before} (fahrenheit - 32){after}\n"


# How it looks


def test_it_looks_as_it_should_in_a_terminal(
    tmp_path: Path, environment: dict[str, str], tenon: Callable[..., Path], shots: Path
) -> None:
    script = Script(tmp_path / "script.json")
    script.says(" = []⏎    for item in items:⏎        result.append(item)⏎    return result")
    tenon(f"scripted:{script.path}")
    init, path = tmp_path / "init.lua", tmp_path / "flatten.py"
    line = "%{%v:lua.require'tenon'.status()%}"
    init.write_text(
        f"vim.opt.rtp:prepend({json.dumps(str(PLUGIN))}) require('tenon').setup()"
        f' vim.o.statusline = " %f  {line}" vim.o.termguicolors = true'
    )
    path.write_text("def flatten(items):\n    \n")
    command = [str(installed.neovim()), "-u", str(init), "-i", "NONE", "-n", str(path)]
    with contextlib.closing(Terminal(installed.tmux(), command, environment, tmp_path)) as terminal:
        terminal.shows("flatten.py  tenon")
        terminal.type("jAresult")
        screen = terminal.shows("    return result")
        terminal.shoot(shots / "neovim.svg")
    lines = [line.rstrip() for line in screen.splitlines()]
    assert lines[:5] == [
        "def flatten(items):",
        "    result = []",
        "    for item in items:",
        "        result.append(item)",
        "    return result",
    ]
