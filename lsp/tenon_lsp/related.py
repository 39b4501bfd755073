"""Which pieces of other texts help to fill a hole: those that share identifiers with the text around it.

A text is cut into chunks of whole lines, where possible at blank lines. A chunk is worth what it shares with the text
near the cursor, an identifier (or a part of one: camel case, snake case) counting the more the fewer chunks have it.
The word being typed counts nothing and worth is rounded, so that the answer stays the same from key to key and the
engine's context cache holds. Knows no documents, files or requests; what may be read is decided elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tenon_engine.wire import ExtraFile

CHUNK_CHARACTERS = 1000  # a chunk at most; a longer line stands in no chunk
SMALL_CHUNK_CHARACTERS = 250  # a smaller one takes in what follows, even if that is not indented
TEXT_CHARACTERS = 500_000  # of a text, looked at
BEFORE_CHARACTERS = (
    3000  # of the prefix, at least, ask for words; their start moves in blocks, not with every key
)
BEFORE_BLOCK_CHARACTERS = 1000
AFTER_CHARACTERS = 1000  # of the suffix
ASKED_WORDS = 256  # those nearest to the cursor
COMMON_ONE_OF = 8  # a word that more than one of so many chunks have says nothing
COMMON_AT_LEAST = 8  # but one that so many have may still say something
WORTH_LEVELS = 32  # worth is rounded to these parts of a full match
LEAST_LEVEL = 2  # a chunk worth less is left out

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_IDENTIFIER = re.compile(r"\b[^\W\d]\w*")
_WORD_EDGE = re.compile(r"_+|\d+|(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD_CHARACTERS = 3  # a shorter word says nothing


@dataclasses.dataclass(frozen=True, slots=True)
class OtherText:
    """A text beside the one that is edited; the one with the larger `recency` was worked on later."""

    path: str
    text: str
    recency: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Chunk:
    """Where a chunk stands in its text, and how many different words it has."""

    start: int
    end: int
    word_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Index:
    """The chunks of a text, and for each word the chunks (by number) that have it."""

    chunks: tuple[_Chunk, ...]
    having: Mapping[str, Sequence[int]]


def related(
    prefix: str, suffix: str, others: Sequence[OtherText], *, budget_characters: int
) -> tuple[ExtraFile, ...]:
    """Chunks of `others` worth reading, the best one last; paths and texts together within the budget.

    Takes the whole text on both sides of the cursor: a tail that slides along would change the answer with every key.
    """
    taken: list[ExtraFile] = []
    texts: set[str] = set()  # the same text may be open twice
    left = budget_characters
    for other, chunk in _ranked(_asked(prefix, suffix), tuple(others)):
        text = other.text[chunk.start : chunk.end]
        cost = len(other.path) + len(text)
        if cost <= left and text not in texts:
            taken.append(ExtraFile(other.path, text))
            texts.add(text)
            left -= cost
    return tuple(reversed(taken))


def prepare(text: str) -> None:
    """Do ahead what `related` does once for each text: some milliseconds per thousand lines."""
    _index(text)


@functools.lru_cache(maxsize=4)
def _ranked(asked: tuple[str, ...], others: tuple[OtherText, ...]) -> tuple[tuple[OtherText, _Chunk], ...]:
    """The chunks that are worth something, best first; remembered, since few keys change what is asked."""
    indexes = [_index(other.text) for other in others]
    weights = _weights(asked, indexes)
    found: list[tuple[int, OtherText, _Chunk]] = []
    for other, index in zip(others, indexes, strict=True):
        worth = _worth(weights, index)
        found.extend(
            (level, other, index.chunks[number]) for number, level in worth.items() if level >= LEAST_LEVEL
        )
    found.sort(key=lambda item: (-item[0], -item[1].recency, item[1].path, item[2].start))
    return tuple((other, chunk) for _, other, chunk in found)


def _weights(asked: Sequence[str], indexes: Sequence[_Index]) -> dict[str, float]:
    """What each asked word counts: the fewer chunks have it, the more. Words none or too many have are left out."""
    chunk_count = sum(len(index.chunks) for index in indexes)
    limit = max(COMMON_AT_LEAST, chunk_count // COMMON_ONE_OF)
    counts = {word: sum(len(index.having.get(word, ())) for index in indexes) for word in asked}
    return {word: math.log1p(chunk_count / count) for word, count in counts.items() if 0 < count <= limit}


def _worth(weights: Mapping[str, float], index: _Index) -> dict[int, int]:
    """For each chunk with an asked word, the weight of the words it shares in that of all words of both sides."""
    shared: defaultdict[int, float] = defaultdict(float)
    for word, weight in weights.items():
        for number in index.having.get(word, ()):
            shared[number] += weight
    asked = sum(weights.values())
    average = asked / max(1, len(weights))  # what a word of the chunk counts, asked or not
    return {
        number: round(WORTH_LEVELS * weight / (asked + average * index.chunks[number].word_count - weight))
        for number, weight in shared.items()
    }


def _asked(prefix: str, suffix: str) -> tuple[str, ...]:
    """The words near the cursor without the one at it, nearest first within each side."""
    end, start = len(prefix), 0
    while end and _in_word(prefix[end - 1]):
        end -= 1
    while start < len(suffix) and _in_word(suffix[start]):
        start += 1
    blocks = max(0, end - BEFORE_CHARACTERS) // BEFORE_BLOCK_CHARACTERS
    before = _IDENTIFIER.findall(prefix, blocks * BEFORE_BLOCK_CHARACTERS, end)[::-1]
    after = _IDENTIFIER.findall(suffix, start, start + AFTER_CHARACTERS)
    words = (word for identifier in dict.fromkeys([*before, *after]) for word in _words(identifier))
    return tuple(dict.fromkeys(words))[:ASKED_WORDS]


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@functools.lru_cache(maxsize=64)
def _index(text: str) -> _Index:
    """Chunks and words of a text; remembered, since other texts change rarely while one is edited."""
    chunks: list[_Chunk] = []
    having: defaultdict[str, list[int]] = defaultdict(list)
    for number, (start, end) in enumerate(_chunk_spans(text[:TEXT_CHARACTERS])):
        identifiers = set(_IDENTIFIER.findall(text, start, end))
        words = {word for identifier in identifiers for word in _words(identifier)}
        chunks.append(_Chunk(start, end, len(words)))
        for word in words:
            having[word].append(number)
    return _Index(tuple(chunks), dict(having))


@functools.lru_cache(maxsize=65536)
def _words(identifier: str) -> tuple[str, ...]:
    """The identifier and its parts, in lower case, each once."""
    words = (identifier, *_WORD_EDGE.split(identifier))
    return tuple(dict.fromkeys(word.lower() for word in words if len(word) >= _WORD_CHARACTERS))


def _chunk_spans(text: str) -> Iterator[tuple[int, int]]:
    """Paragraphs put together as far as a chunk goes; one that is not indented rather begins a new chunk."""
    start = end = 0
    for paragraph_start, paragraph_end in _paragraph_spans(text):
        is_full = paragraph_end - start > CHUNK_CHARACTERS
        is_apart = end - start >= SMALL_CHUNK_CHARACTERS and not text[paragraph_start].isspace()
        if end > start and (is_full or is_apart):
            yield start, end
            start = paragraph_start
        elif end == start:
            start = paragraph_start
        end = paragraph_end
    if end > start:
        yield start, end


def _paragraph_spans(text: str) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank, cut where they are longer than a chunk."""
    start = end = 0
    for line in _LINE.finditer(text):  # the last match is the empty one at the end of the text
        is_usable = bool(line[0].strip()) and len(line[0]) <= CHUNK_CHARACTERS
        if end > start and (not is_usable or line.end() - start > CHUNK_CHARACTERS):
            yield start, end
            end = start
        if is_usable:
            start, end = (start if end > start else line.start()), line.end()
