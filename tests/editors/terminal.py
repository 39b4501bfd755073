"""A terminal with an editor in it, by tmux: keys go in, the screen comes out. Knows nothing of any editor."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

PATIENCE_S = 60.0
COLUMNS, LINES = 100, 24

_POLL_S = 0.05
_numbers = itertools.count(1)


class Terminal:
    """One program in a terminal of its own."""

    def __init__(
        self, tmux: Path, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._tmux = [str(tmux), "-L", f"tenon-{os.getpid()}-{next(_numbers)}", "-f", os.devnull]
        self._environment = {**environment}
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._do("new-session", "-d", *size, "-c", str(folder), "env", *_assigned(environment), *command)
        self._do("set-option", "-s", "escape-time", "0")

    def close(self) -> None:
        """End the program, if it has not ended."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=PATIENCE_S)

    def type(self, text: str) -> None:
        """Type text, as it is."""
        self._do("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press keys, by their names in tmux: `C-x`, `Escape`, `Tab`."""
        self._do("send-keys", *keys)

    def screen(self) -> str:
        """What the terminal shows."""
        return self._do("capture-pane", "-p")

    def shows(self, text: str) -> str:
        """The screen, as soon as `text` is on it."""
        return self.until(lambda screen: text in screen, f"never on the screen: {text!r}")

    def until(self, holds: Callable[[str], object], otherwise: str) -> str:
        """The screen, as soon as it is such that `holds`."""
        end = time.monotonic() + PATIENCE_S
        while not holds(screen := self.screen()):
            assert time.monotonic() < end, f"{otherwise}\n{screen}"
            time.sleep(_POLL_S)
        return screen

    def shoot(self, path: Path) -> None:
        """Draw the screen, colours and all, into an SVG file."""
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        console.print(Text.from_ansi(self._do("capture-pane", "-p", "-e")))
        console.save_svg(str(path), title=path.stem)

    def _do(self, *command: str) -> str:
        done = subprocess.run(
            [*self._tmux, *command],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        )
        return done.stdout


def saved(path: Path, expected: bytes) -> None:
    """Return as soon as a file holds exactly this: an editor saves when it likes, and not in one go."""
    assert _becomes(path, lambda content: content == expected) == expected


def said(log: Path, words: bytes) -> None:
    """Return as soon as a log has these words in it."""
    assert words in _becomes(log, lambda content: words in content)


def _becomes(path: Path, holds: Callable[[bytes], object]) -> bytes:
    """What a file holds as soon as it is such that `holds`, or in the end."""
    end = time.monotonic() + PATIENCE_S
    while not holds(content := _content(path)) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return content


def _content(path: Path) -> bytes:
    """What is in a file, nothing while there is none: an editor that saves may put another one in its place."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _assigned(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]
