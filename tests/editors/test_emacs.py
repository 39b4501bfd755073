"""Emacs with eglot and with lsp-mode, with the configurations that docs/editors/emacs.md gives."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.editors import installed
from tests.editors.pages import block
from tests.editors.terminal import Terminal, saved
from tests.lsp.document import at_cursor, at_selection, show

pytestmark = pytest.mark.editors

PAGE = "emacs.md"
SECONDS_AT_MOST = 120

# No files beside ours, no questions, and no parts that only an installed lsp-mode would find by itself.
QUIET = """
(setq make-backup-files nil auto-save-default nil create-lockfiles nil inhibit-startup-screen t
      python-indent-guess-indent-offset nil eglot-confirm-server-edits nil eglot-sync-connect 60)
"""
LSP_MODE = """
(setq lsp-auto-guess-root t lsp-enable-snippet nil lsp-enable-suggest-server-download nil)
(dolist (part '(lsp-mode lsp-completion lsp-diagnostics lsp-lens lsp-modeline lsp-headerline lsp-semantic-tokens))
  (require part))
(setq lsp-client-packages nil)
"""

EGLOT_READY, LSP_MODE_READY = r"\[eglot:", r"LSP\[tenon:\d+\]"  # in the mode line of a connected buffer

Batch = Callable[..., bytes]
Edit = Callable[..., tuple[Terminal, Path]]


@pytest.fixture
def batch(tmp_path: Path, environment: dict[str, str]) -> Batch:
    """Carries out forms of Lisp in a file with eglot; what is in it after it was saved."""
    program = installed.emacs()

    def run(text: str, name: str, *forms: str) -> bytes:
        path, script = tmp_path / name, tmp_path / "script.el"
        path.write_bytes(text.encode())
        connected = [f"(find-file {json.dumps(str(path))})", "(call-interactively #'eglot)"]
        end = ["(save-buffer)", "(eglot-shutdown-all)"]
        script.write_text(
            "\n".join([QUIET, block(PAGE, "elisp", "eglot"), *connected, *forms, *end]), "utf-8"
        )
        done = subprocess.run(
            [str(program), "--batch", "--load", str(script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_AT_MOST,
        )
        assert done.returncode == 0, done.stderr
        return path.read_bytes()

    return run


@pytest.fixture
def edit(tmp_path: Path, environment: dict[str, str]) -> Iterator[Edit]:
    """Starts Emacs in a terminal, in a new file with a text, with the cursor where the text has one."""
    program, tmux = installed.emacs(), installed.tmux()
    opened: list[Terminal] = []

    def start(marked: str, configuration: str, ready: str, **variables: str) -> tuple[Terminal, Path]:
        text, offset = at_cursor(marked)
        path, init = tmp_path / "file.py", tmp_path / "init.el"
        path.write_bytes(text.encode())
        init.write_text(QUIET + configuration, "utf-8")
        command = [str(program), "--no-window-system", "--load", str(init), str(path)]
        terminal = Terminal(tmux, command, environment | variables, tmp_path)
        opened.append(terminal)
        terminal.until(lambda screen: re.search(ready, screen), "no server")
        terminal.press("M-g", "c")  # goto-char
        terminal.type(f"{offset + 1}")
        terminal.press("Enter")
        return terminal, path

    yield start
    for terminal in opened:
        terminal.close()


def saves(terminal: Terminal, path: Path, expected: str) -> None:
    """Save the file: exactly this is in it then."""
    terminal.press("C-x", "C-s")
    saved(path, expected.encode())


def lsp_mode(**replaced: str) -> str:
    configuration = block(PAGE, "elisp", "lsp-inline-completion")
    for old, new in replaced.items():
        configuration = configuration.replace(f":{old} 32", new)
    return LSP_MODE + configuration


@pytest.mark.parametrize(
    ("name", "marked", "raw", "expected"),
    [
        ("file.py", "def he█", "llo(name):", "def hello(name):\n"),
        ("file.py", "total = pri█ + 1\n", "ce * 2", "total = price * 2 + 1\n"),
        ("file.py", "x = f(█)\n", "1, 2", "x = f(1, 2)\n"),
        ("file.py", "s = 'é😀' + na█\n", "me", "s = 'é😀' + name\n"),
        (
            "file.py",
            "def f(a, b):⏎    if a > b:█⏎    return b⏎",
            "⏎        a += 1⏎        return a",
            "def f(a, b):\n    if a > b:\n        a += 1\n        return a\n    return b\n",
        ),
        ("file.txt", "This is a well-kno█\n", "wn fact.", "This is a well-known fact.\n"),
    ],
    ids=["word", "middle", "inside-brackets", "beyond-ascii", "lines", "hyphen"],
)
def test_eglot_puts_the_text_of_a_completion_where_the_model_meant_it(
    batch: Batch,
    script: Callable[..., str],
    tenon: Callable[..., Path],
    name: str,
    marked: str,
    raw: str,
    expected: str,
) -> None:
    tenon(script(show(raw)))
    text, offset = at_cursor(marked)
    assert batch(text, name, f"(goto-char {offset + 1})", "(completion-at-point)") == expected.encode()


def test_eglot_rewrites_a_selection(
    batch: Batch, script: Callable[..., str], tenon: Callable[..., Path]
) -> None:
    tenon(script("return b - a"))
    text, start, end = at_selection("def f(a, b):⏎    ⟦return a + b⟧⏎")
    rewrite = f"""
    (eglot-execute (eglot-current-server)
                   (seq-find (lambda (action) (equal (plist-get action :title) "Tenon: rewrite selection"))
                             (eglot-code-actions {start + 1} {end + 1})))
    """
    assert batch(text, "file.py", rewrite) == b"def f(a, b):\n    return b - a\n"


def test_eglot_completes_and_one_undo_takes_it_back(
    edit: Edit, script: Callable[..., str], tenon: Callable[..., Path], shots: Path
) -> None:
    tenon(script(show("⏎        a += 1⏎        return a")))
    before = "def f(a, b):\n    if a > b:"
    terminal, path = edit(f"{before}█\n    return b\n", block(PAGE, "elisp", "eglot"), EGLOT_READY)
    terminal.press("C-M-i")
    terminal.shows("a += 1")
    terminal.shoot(shots / "emacs-eglot.svg")
    saves(terminal, path, f"{before}\n        a += 1\n        return a\n    return b\n")
    terminal.press("C-_")
    terminal.until(lambda screen: "a += 1" not in screen, "it was not undone")
    saves(terminal, path, f"{before}\n    return b\n")


@pytest.mark.parametrize("variables", [{}, {"LSP_USE_PLISTS": "true"}], ids=["hash-tables", "plists"])
def test_lsp_mode_shows_grey_text_and_tab_takes_it(
    edit: Edit, script: Callable[..., str], tenon: Callable[..., Path], shots: Path, variables: dict[str, str]
) -> None:
    tenon(script("ce * len('é😀')"))
    terminal, path = edit("total = █ + 1  # é😀\n", lsp_mode(), LSP_MODE_READY, **variables)
    terminal.type("pri")
    terminal.shows("Accept: ")
    assert "total = price * len('é😀') + 1" in terminal.screen()
    terminal.shoot(shots / "emacs-lsp-mode.svg")
    terminal.press("Tab")
    terminal.until(lambda screen: "Accept: " not in screen, "it was not taken")
    saves(terminal, path, "total = price * len('é😀') + 1  # é😀\n")


def test_lsp_mode_rewrites_a_selection_and_one_undo_takes_it_back(
    edit: Edit, script: Callable[..., str], tenon: Callable[..., Path]
) -> None:
    tenon(script("return b - a"))
    terminal, path = edit("def f(a, b):\n    █return a + b\n", lsp_mode(), LSP_MODE_READY)
    terminal.press("C-Space", "C-e", "M-x")
    terminal.type("lsp-execute-code-action")
    terminal.press("Enter")
    terminal.shows("Select code action")
    terminal.type("Tenon: rewrite selection")
    terminal.press("Enter")
    terminal.shows("return b - a")
    saves(terminal, path, "def f(a, b):\n    return b - a\n")
    terminal.press("C-g")  # with the region active, undo would be of the region alone
    terminal.shows("Quit")  # and it swallows what is typed before that
    terminal.press("C-_")
    terminal.shows("return a + b")
    saves(terminal, path, "def f(a, b):\n    return a + b\n")


@pytest.mark.weights
def test_lsp_mode_shows_what_the_embedded_model_writes(
    edit: Edit, tenon: Callable[..., Path], shots: Path
) -> None:
    tenon()
    before = 'def to_celsius(fahrenheit: float) -> float:\n    """Convert a temperature."""\n    return'
    after = " * 5 / 9\n\n\ndef to_fahrenheit(celsius: float) -> float:\n    return celsius * 9 / 5 + 32\n"
    patience = "(setq lsp-response-timeout 60)"  # for a first answer that waits for the weights to be loaded
    configuration = lsp_mode(maxTokens=":deadlineMs 60000") + patience
    terminal, path = edit(f"{before}█{after}", configuration, LSP_MODE_READY)
    terminal.type(" ")
    terminal.shows("return (fahrenheit - 32) * 5 / 9")
    terminal.shoot(shots / "emacs-model.svg")
    terminal.press("Tab")
    terminal.until(lambda screen: "Accept: " not in screen, "it was not taken")
    saves(terminal, path, f"{before} (fahrenheit - 32){after}")
