"""What the benchmark edits: documents made of Tenon's own sources, and keys typed into them. Always the same ones."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import tenon_engine
from tenon_lsp.text import Text

PACKAGES = (Path(tenon_engine.__file__).parent, Path(__file__).parent)
OTHER_DOCUMENTS = 6  # open beside the one that is edited
BLOCK_LINES = 4
LONG_LINE_CHARACTERS = 24

_PAIR = re.compile(r"\(([^()\n]{4,})\)")


@dataclasses.dataclass(frozen=True, slots=True)
class Keystroke:
    """Text that is cleared, the key typed in its place, and what a model says to that."""

    start: int
    end: int
    key: str
    answer: str


def sources() -> list[str]:
    """The modules of Tenon, in the order of their paths."""
    paths = (path for package in PACKAGES for path in sorted(package.rglob("*.py")))
    return [text for path in paths if (text := path.read_text(encoding="utf-8"))]


def python_document(line_count: int) -> str:
    """All modules one after the other, as often as it takes."""
    lines = (line for text in itertools.cycle(sources()) for line in text.splitlines(keepends=True))
    return "".join(itertools.islice(lines, line_count))


def markdown_document(line_count: int) -> str:
    """For each module a heading, its docstring as prose, and the beginning of its code in a fence."""
    lines: list[str] = []
    for number, text in enumerate(sources()):
        prose = ast.get_docstring(ast.parse(text)) or ""
        code = text.splitlines()[:20]
        lines += [f"## Part {number}", "", *prose.splitlines(), "", "```python", *code, "```", ""]
    return "\n".join(lines[:line_count])


def keystrokes(source: str, count: int, *, seed: int) -> Iterator[Keystroke]:
    """Keys at random places, of each kind in turn: the model knows the text, or says something else."""
    chosen, text = random.Random(seed), Text.of(source)  # noqa: S311 - it chooses places
    kinds = (_rest_of_line, _inside_pair, _block, _something_else)
    for kind in itertools.islice(itertools.cycle(kinds), count):
        yield kind(text, chosen)


def long_lines(source: str, count: int, *, seed: int) -> Iterator[Keystroke]:
    """Keys after which the model knows the rest of a line, which is not short."""
    chosen, text = random.Random(seed), Text.of(source)  # noqa: S311 - it chooses places
    for _ in range(count):
        start, end = _span(text, chosen, lambda line: len(line.strip()) > 2 * LONG_LINE_CHARACTERS)
        start = end - LONG_LINE_CHARACTERS
        yield Keystroke(start, end, text.source[start], text.source[start + 1 : end])


def _rest_of_line(text: Text, chosen: random.Random) -> Keystroke:
    start, end = _span(text, chosen, lambda line: len(line.strip()) > 12)
    indent = len(text.source[start:end]) - len(text.source[start:end].lstrip())
    start = chosen.randrange(start + indent + 2, end - 3)
    return Keystroke(start, end, text.source[start], text.source[start + 1 : end])


def _inside_pair(text: Text, chosen: random.Random) -> Keystroke:
    start, end = _span(text, chosen, lambda line: _PAIR.search(line) is not None)
    found = _PAIR.search(text.source, start, end)
    assert found is not None
    return Keystroke(*found.span(1), found[1][0], found[1][1:])


def _block(text: Text, chosen: random.Random) -> Keystroke:
    """The line end behind a line, with the indentation that an editor adds; the model knows the lines below."""
    line = chosen.randrange(text.line_count - BLOCK_LINES - 1)
    start, end = text.line_span(line)[1], text.line_span(line + BLOCK_LINES)[1]
    cleared = text.source[start:end]
    key = cleared[: len(cleared) - len(cleared.lstrip())]
    return Keystroke(start, end, key or "\n", cleared[len(key) :] or "pass")


def _something_else(text: Text, chosen: random.Random) -> Keystroke:
    """The rest of a line, but the model says lines of another place."""
    here = _rest_of_line(text, chosen)
    line = chosen.randrange(text.line_count - BLOCK_LINES)
    other = text.source[text.line_starts[line] : text.line_span(line + BLOCK_LINES)[1]]
    return dataclasses.replace(here, answer=other.strip() or "pass")


def _span(text: Text, chosen: random.Random, is_wanted: Callable[[str], bool]) -> tuple[int, int]:
    """Start and end of a random line that is wanted."""
    while True:
        line = chosen.randrange(text.line_count)
        if is_wanted(text.line(line)):
            return text.line_span(line)
