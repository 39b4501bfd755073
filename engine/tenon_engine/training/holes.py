"""Where a text is opened, for training and for evaluation: holes as people meet them, by characters and by syntax.

Owns the shapes, how often each is drawn, and how much of a text stands behind a hole. Knows no tokens and no files.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tenon_engine.training import syntax_holes

SHARES: Mapping[str, float] = MappingProxyType(
    {
        "rest-of-line": 0.21,
        "whole-lines": 0.16,
        "inside-line": 0.12,
        "mid-line-to-later-line": 0.11,
        "argument": 0.09,
        "expression": 0.08,
        "statement": 0.07,
        "body": 0.05,
        "list-item": 0.04,
        "docstring": 0.03,
        "string": 0.03,
        "table-cell": 0.01,
    }
)
"""The shapes and how often each is tried; one that a text has no place for is drawn again."""

END_SHARE = 0.08  # of holes with next to nothing behind them: at the end of a file, a cell, a snippet
CHARACTERS_AT_MOST = 150  # of a hole: 46 tokens or fewer, nearly always
LINES_AT_MOST = 4
_PAGE_CHARACTERS = 4_000  # of a text that are looked at for one hole: larger trees take longer than they help
_TRIES = 12
_SMALL_CHARACTERS = 3
_SMALL_SHARE = 0.4  # of the holes of so few characters, which teach and tell little, that are kept
_ANY_PLACE_SHARE = 0.15  # of places in a line that may be inside a word
_BEGUN_SHARE = 0.3  # of syntactic holes whose first words stand there already

_ATOM = re.compile(r"\w+|[^\w\s]")
_LINE = re.compile(r"\S(?:[^\n]*\S)?")
_AT_MARGIN = re.compile(r"\n\n(?=\S)")


@dataclasses.dataclass(frozen=True, slots=True)
class HoleSpan:
    """A hole of `text`: before it stands `text[:start]`, in it `text[start:end]`, behind it `text[end:text_end]`.

    `text_end` is None where all of the text is there; else it ends there, as a snippet or a notebook's cell does.
    """

    start: int
    end: int
    shape: str
    text_end: int | None = None


def sample(text: str, language: str, rng: random.Random, *, end_share: float = END_SHARE) -> HoleSpan | None:
    """A hole as a user has it: what the engine takes back from its suffix is `window`'s business.

    None when the text has no place for one.
    """
    if not text.strip():
        return None
    page = _Page.around(text, rng.randrange(len(text)), language)
    for _ in range(_TRIES if page.lines else 0):
        at_end = rng.random() < end_share
        span = _at_end(page, rng) if at_end else _anywhere(page, rng)
        if span and _is_worth_it(text[span.start : span.end], rng):
            return span
    return None


def deterministic(text: str, language: str, seed: int, count: int) -> list[HoleSpan]:
    """At most `count` different holes to evaluate on: the same ones for the same text and seed, on every machine."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    rng = random.Random(f"{seed}:{digest}")  # noqa: S311  # nothing is kept secret here
    spans = dict[tuple[int, int], HoleSpan]()
    for _ in range(2 * count):
        span = sample(text, language, rng)
        if span is not None:
            spans.setdefault((span.start, span.end), span)
        if len(spans) == count:
            break
    return list(spans.values())


def _is_worth_it(hole: str, rng: random.Random) -> bool:
    is_small = len(hole) <= _SMALL_CHARACTERS
    return (
        bool(hole.strip())
        and len(hole) <= CHARACTERS_AT_MOST
        and not (is_small and rng.random() > _SMALL_SHARE)
    )


def _anywhere(page: _Page, rng: random.Random) -> HoleSpan | None:
    (shape,) = rng.choices(list(SHARES), list(SHARES.values()))
    by_characters = _BY_CHARACTERS.get(shape)
    place = by_characters(page, rng) if by_characters else _by_syntax(page, rng, shape)
    return HoleSpan(*place, shape) if place else None


def _at_end(page: _Page, rng: random.Random) -> HoleSpan | None:
    """A hole with the end of its line behind it at most, where a block or paragraph of the page ends."""
    closing = [number for number in range(len(page.lines)) if page.is_closing(number)]
    number = rng.choice(closing)
    line = page.lines[number]
    shape = rng.choice(("rest-of-line", "rest-of-line", "whole-lines", "whole-lines", "inside-line"))
    if shape == "rest-of-line":
        place = page.cut(line, rng), line.stop
    elif shape == "inside-line":
        place = _inside(page, line, rng)
    else:
        place = page.lines[max(0, number - rng.randrange(LINES_AT_MOST))].start, line.stop
    line_end = min(line.stop + rng.randrange(2), len(page.text))
    return HoleSpan(*place, shape, line_end)


Place = tuple[int, int]


def _rest_of_line(page: _Page, rng: random.Random) -> Place:
    line = rng.choice(page.lines)
    return page.cut(line, rng), line.stop


def _whole_lines(page: _Page, rng: random.Random) -> Place:
    """One line or a few, their indentation theirs or there already."""
    first = rng.randrange(len(page.lines))
    last = min(first + _few(rng), len(page.lines) - 1)
    start = page.lines[first].start
    if rng.random() < 0.5:
        start = page.text.rfind("\n", 0, start) + 1
    return start, page.lines[last].stop


def _inside_line(page: _Page, rng: random.Random) -> Place:
    return _inside(page, rng.choice(page.lines), rng)


def _mid_line_to_later_line(page: _Page, rng: random.Random) -> Place | None:
    first = rng.randrange(len(page.lines))
    last = first + 1 + _few(rng)
    if last >= len(page.lines):
        return None
    starts = [match.start() for match in page.atoms(page.lines[first])]
    ends = [match.end() for match in page.atoms(page.lines[last])]
    return rng.choice(starts[1:] or starts), rng.choice(ends)


def _by_syntax(page: _Page, rng: random.Random, shape: str) -> Place | None:
    """A node's place; of one that is too long its last lines, of some what is left after the first words."""
    places = page.by_syntax.get(shape)
    if not places:
        return None
    start, end = rng.choice(places)
    if end - start > CHARACTERS_AT_MOST:
        starts = [line.start for line in page.lines if end - CHARACTERS_AT_MOST <= line.start < end]
        return (rng.choice(starts), end) if starts and start < starts[0] else None
    if rng.random() < _BEGUN_SHARE:
        start = rng.choice([match.start() for match in page.atoms(range(start, end))])
    return start, end


def _inside(page: _Page, line: range, rng: random.Random) -> Place:
    """From one place in a line to a later one; what follows there is not blank, unless the line has but one word."""
    atoms = page.atoms(line)
    first = rng.randrange(max(1, len(atoms) - 1))
    last = rng.randrange(first, max(1, len(atoms) - 1))
    return atoms[first].start(), atoms[last].end()


def _few(rng: random.Random) -> int:
    """0 most often, then 1, up to LINES_AT_MOST - 1."""
    return min(rng.randrange(LINES_AT_MOST), rng.randrange(LINES_AT_MOST))


_BY_CHARACTERS: Mapping[str, Callable[[_Page, random.Random], Place | None]] = MappingProxyType(
    {
        "rest-of-line": _rest_of_line,
        "whole-lines": _whole_lines,
        "inside-line": _inside_line,
        "mid-line-to-later-line": _mid_line_to_later_line,
    }
)


class _Page:
    """The part of a text in which a hole is looked for; all offsets are those of the text.

    `lines` are its lines that are not blank, without blanks at their ends.
    """

    def __init__(self, text: str, start: int, end: int, language: str) -> None:
        self.text = text
        self._start, self._end = start, end
        self._language = language
        self.lines = [range(*match.span()) for match in _LINE.finditer(text, start, end)]

    @staticmethod
    def around(text: str, place: int, language: str) -> _Page:
        """The whole text, or what is around a place, from where something begins at the left margin."""
        if len(text) <= _PAGE_CHARACTERS:
            return _Page(text, 0, len(text), language)
        earliest = min(max(0, place - _PAGE_CHARACTERS // 2), len(text) - _PAGE_CHARACTERS)
        margin = _AT_MARGIN.search(text, earliest, max(earliest, place)) if earliest else None
        start = margin.end() if margin else earliest
        return _Page(text, start, min(start + _PAGE_CHARACTERS, len(text)), language)

    @functools.cached_property
    def by_syntax(self) -> syntax_holes.Spans:
        """By shape, the places that a syntax tree of the page names."""
        found = syntax_holes.find(self.text[self._start : self._end], self._language)
        return {
            shape: [(start + self._start, end + self._start) for start, end in places]
            for shape, places in found.items()
        }

    def atoms(self, line: range) -> list[re.Match[str]]:
        """The words and signs of a line."""
        return list(_ATOM.finditer(self.text, line.start, line.stop))

    def cut(self, line: range, rng: random.Random) -> int:
        """Where a cursor stands in a line: before a word or sign, now and then anywhere."""
        if rng.random() < _ANY_PLACE_SHARE:
            return rng.choice(line)
        return rng.choice(self.atoms(line)).start()

    def is_closing(self, number: int) -> bool:
        """Whether a block or paragraph ends with a line: the next one is blank, further left or not there."""
        if number + 1 == len(self.lines):
            return True
        line, following = self.lines[number], self.lines[number + 1]
        is_apart = self.text.count("\n", line.stop, following.start) > 1
        return is_apart or self._indentation(following) < self._indentation(line)

    def _indentation(self, line: range) -> int:
        return line.start - self.text.rfind("\n", 0, line.start) - 1
