"""Helix in a terminal, with the configuration that docs/editors/helix.md gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.editors import installed
from tests.editors.pages import block
from tests.editors.terminal import Terminal, said, saved
from tests.lsp.document import at_cursor, show

pytestmark = pytest.mark.editors

PAGE = "helix.md"
# For a first answer that waits for the weights to be loaded.
PATIENT = {'args = ["lsp"]': 'args = ["lsp"]\ntimeout = 60', "maxTokens = 32": "deadlineMs = 60000"}


@dataclasses.dataclass(frozen=True, slots=True)
class Helix:
    """A running editor and the file in it."""

    terminal: Terminal
    path: Path

    def saves(self, expected: str) -> None:
        """Write the file: exactly this is in it then."""
        self.terminal.press("Escape")
        self.terminal.shows("NOR")  # before that, what follows would be taken for a key with Alt
        self.terminal.type(":write")
        self.terminal.press("Enter")
        saved(self.path, expected.encode())


@pytest.fixture
def edit(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., Helix]]:
    """Starts Helix in a new file with a text, with the cursor where the text has one."""
    program, tmux = installed.helix(), installed.tmux()
    opened: list[Terminal] = []

    def start(marked: str, changes: Mapping[str, str] | None = None) -> Helix:
        text, offset = at_cursor(marked)
        path, log = tmp_path / "file.py", tmp_path / "helix.log"
        path.write_bytes(text.encode())
        folder = Path(environment["HOME"]) / ".config" / "helix"
        folder.mkdir(parents=True)
        configuration = block(PAGE, "toml").replace('"pylsp", ', "")
        for old, new in (changes or {}).items():
            configuration = configuration.replace(old, new)
        (folder / "languages.toml").write_text(configuration, "utf-8")
        line, before = text[:offset].count("\n") + 1, text[:offset].rpartition("\n")[2]
        command = [str(program), "-v", "--log", str(log), f"{path}:{line}:{len(before) + 1}"]
        terminal = Terminal(tmux, command, environment, tmp_path)
        opened.append(terminal)
        said(log, b'"method":"initialized"')
        return Helix(terminal, path)

    yield start
    for terminal in opened:
        terminal.close()


@pytest.mark.parametrize(
    ("marked", "typed", "raw", "expected"),
    [
        ("█", "def he", "llo(name):", "def hello(name):\n"),
        ("total = 1█\n", " + pri", "ce * 2", "total = 1 + price * 2\n"),
        ("print█\n", "(", '"$HOME ${x}", 1', 'print("$HOME ${x}", 1)\n'),
        ("s = 'é😀'█\n", " + na", "me", "s = 'é😀' + name\n"),
        (
            "def f(a, b):⏎    if a > b█⏎    return b⏎",
            ":",
            "⏎        a += 1⏎        return a",
            "def f(a, b):\n    if a > b:\n        a += 1\n        return a\n    return b\n",
        ),
    ],
    ids=["word", "rest-of-line", "inside-brackets", "beyond-ascii", "lines"],
)
def test_an_entry_of_the_completion_menu_puts_its_text_where_the_model_meant_it(
    edit: Callable[..., Helix],
    script: Callable[..., str],
    tenon: Callable[..., Path],
    shots: Path,
    marked: str,
    typed: str,
    raw: str,
    expected: str,
) -> None:
    tenon(script(show(raw)))
    helix = edit(marked)
    helix.terminal.type("i" + typed)
    helix.terminal.shows(show(raw).strip().splitlines()[0])
    helix.terminal.press("Tab")
    helix.terminal.shows("Tenon")
    helix.terminal.shoot(shots / "helix-menu.svg")
    helix.terminal.press("Enter")
    helix.saves(expected)


def test_a_selection_is_rewritten_and_one_undo_takes_it_back(
    edit: Callable[..., Helix], script: Callable[..., str], tenon: Callable[..., Path], shots: Path
) -> None:
    tenon(script("return b - a"))
    helix = edit("def f(a, b):\n    █return a + b\n")
    helix.terminal.type("vgl")
    helix.terminal.type(" a")
    helix.terminal.shows("Tenon: rewrite selection")
    helix.terminal.shoot(shots / "helix-actions.svg")
    helix.terminal.press("Enter")
    helix.terminal.shows("return b - a")
    helix.saves("def f(a, b):\n    return b - a\n")
    helix.terminal.type("u")
    helix.terminal.shows("return a + b")
    helix.saves("def f(a, b):\n    return a + b\n")


@pytest.mark.weights
def test_the_embedded_model_fills_the_middle_of_a_line(
    edit: Callable[..., Helix], tenon: Callable[..., Path], shots: Path
) -> None:
    tenon()
    before = 'def to_celsius(fahrenheit: float) -> float:\n    """Convert a temperature."""\n    return'
    after = " * 5 / 9\n\n\ndef to_fahrenheit(celsius: float) -> float:\n    return celsius * 9 / 5 + 32\n"
    helix = edit(f"{before}█{after}", PATIENT)
    helix.terminal.type("i ")
    helix.terminal.shows("fahrenheit - 32")
    helix.terminal.press("Tab")
    helix.terminal.shows("Tenon")
    helix.terminal.shoot(shots / "helix-model.svg")
    helix.terminal.press("Enter")
    helix.saves(f"{before} (fahrenheit - 32){after}")
