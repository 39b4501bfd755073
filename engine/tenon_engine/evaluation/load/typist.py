"""What a client types: a document of its own, in words that no other client has, key after key.

An answer that names somebody else's word was somebody else's answer. Knows neither engines nor HTTP.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import itertools
import random
import re
from collections.abc import Iterator

from tenon_engine.wire import FillRequest

KEYS_PER_HOLE = 6  # typed one by one, a fill after each; then the rest of the line is there
WORDS_MAX = 512

_HOLE = re.compile("⟦(.*?)⟧")
_SYLLABLES = [consonant + vowel for consonant in "bfgkvz" for vowel in "aou"]  # no English in these


class Typist:
    """One client's documents; each is a session."""

    def __init__(self, number: int, *, of: str) -> None:
        self.word = words()[number]
        self._name = of
        self._documents = itertools.count(1)
        self._typing: Iterator[FillRequest] = iter(())

    def next_key(self, *, candidates: int = 1) -> FillRequest:
        """What to ask after one more key."""
        request = next(self._typing, None)
        if request is None:
            self.begin_document()
            request = next(self._typing)
        return dataclasses.replace(request, candidates=candidates)

    def begin_document(self, *, skipped_holes: int = 0) -> None:
        """Go on in a new document, at one of its holes."""
        session = f"{self._name}/{self.word}/{next(self._documents)}"
        self._typing = _typed(self.word, session, skipped_holes)


def names_another(text: str, own: str) -> bool:
    """Whether `text` has a word of another client."""
    return any(found != own for found in words_in(text))


def words_in(text: str) -> set[str]:
    """The clients' words in `text`."""
    return set(_any_word().findall(text.lower())) & set(words())


@functools.cache
def words() -> tuple[str, ...]:
    """A word for each client, all of the same length."""
    drawn = random.Random(0).sample(list(itertools.product(_SYLLABLES, repeat=3)), WORDS_MAX)  # noqa: S311
    return tuple(map("".join, drawn))


@functools.cache
def hole_count() -> int:
    """How many holes a document has."""
    return len(_HOLE.findall(_document()))


@functools.cache
def _any_word() -> re.Pattern[str]:
    """Where a word may stand: as part of a name such as `bakuvo_list`, or with an "s" behind it."""
    return re.compile(rf"(?<![a-z])(?:{'|'.join(_SYLLABLES)}){{3}}(?=s?(?![a-z]))")


@functools.cache
def _document() -> str:
    folder = importlib.resources.files("tenon_engine.evaluation")
    return (folder / "bench_document.txt").read_text(encoding="utf-8")


def _typed(word: str, session: str, skipped_holes: int) -> Iterator[FillRequest]:
    text = _document().replace("item", word).replace("Item", word.capitalize())
    for match in itertools.islice(_HOLE.finditer(text), skipped_holes, None):
        prefix, suffix = _HOLE.sub(r"\1", text[: match.start()]), _HOLE.sub(r"\1", text[match.end() :])
        for count in range(min(KEYS_PER_HOLE, len(match[1]))):
            yield FillRequest.single(
                prefix + match[1][:count], suffix, path=f"{word}.py", language="python", session=session
            )
