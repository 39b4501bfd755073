"""Finds texts that are nearly the same: MinHash signatures of token shingles, compared where a band agrees.

Everything is fixed: the same texts in the same order give the same answers on every machine. Knows bytes and numbers
alone. Method: Broder, "On the resemblance and containment of documents" (1997); banding as in Leskovec, Rajaraman,
Ullman, "Mining of Massive Datasets", chapter 3.
"""

from __future__ import annotations

import functools

import numpy
import numpy.typing

SHINGLE_TOKENS = 5
BANDS = 16
ROWS = 8  # of a band: pairs as alike as (1 / BANDS) ** (1 / ROWS) = 0.71 are found half of the time, 0.85 nearly always
SIGNATURE_LENGTH = BANDS * ROWS
SIMILAR = 0.8  # share of shingles that two texts have in common, from which the later one is left out
_CHUNK_SHINGLES = 512  # whose hashes under every permutation stay in the processor's cache

Words = numpy.typing.NDArray[numpy.uint64]
Hashes = numpy.typing.NDArray[numpy.uint32]

_SPACE, _WORD, _SIGN = range(3)
_KINDS = numpy.array(
    [
        _SPACE
        if byte in b" \t\n\r\f\v"
        else _WORD
        if byte >= 128 or chr(byte).isalnum() or byte == 95
        else _SIGN
        for byte in range(256)
    ],
    dtype=numpy.uint8,
)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse: the powers of a prefix can be taken off again
_INVERSE = pow(_BASE, -1, 1 << 64)


def signature(content: bytes) -> Hashes:
    """The MinHash signature of a text, [SIGNATURE_LENGTH]; texts of fewer than five tokens are one shingle."""
    hashes = _shingles(_tokens(content))
    factors, masks = _permutations()
    smallest = numpy.full(SIGNATURE_LENGTH, numpy.iinfo(numpy.uint32).max, dtype=numpy.uint32)
    room = numpy.empty((SIGNATURE_LENGTH, _CHUNK_SHINGLES), numpy.uint32)
    for begin in range(0, len(hashes), _CHUNK_SHINGLES):
        chunk = hashes[begin : begin + _CHUNK_SHINGLES]
        permuted = room[:, : len(chunk)]
        numpy.bitwise_xor(chunk, masks[:, None], out=permuted)
        permuted *= factors[:, None]
        numpy.minimum(smallest, permuted.min(axis=1), out=smallest)
    return smallest


class Seen:
    """The signatures of the texts kept so far; a text is asked about first and added if it is kept."""

    def __init__(self) -> None:
        self._signatures: list[Hashes] = []
        self._bands: dict[bytes, list[int]] = {}

    def has_like(self, candidate: Hashes) -> bool:
        """Whether a text that was added is nearly the same."""
        numbers = sorted({number for key in _keys(candidate) for number in self._bands.get(key, ())})
        if not numbers:
            return False
        shares = numpy.mean(numpy.stack([self._signatures[n] for n in numbers]) == candidate, axis=1)
        return bool(shares.max() >= SIMILAR)

    def add(self, kept: Hashes) -> None:
        """Remember a text that is kept."""
        for key in _keys(kept):
            self._bands.setdefault(key, []).append(len(self._signatures))
        self._signatures.append(kept)


def _keys(hashes: Hashes) -> list[bytes]:
    """A band's number and rows, as one key."""
    rows = hashes.reshape(BANDS, ROWS)
    return [bytes([band]) + rows[band].tobytes() for band in range(BANDS)]


def _tokens(content: bytes) -> Words:
    """A hash per token: words (letters, digits, `_`, everything beyond ASCII) and single signs; space is none."""
    characters = numpy.frombuffer(content, numpy.uint8)
    kinds = _KINDS[characters]
    before = numpy.concatenate(([_SPACE], kinds[:-1])) if len(kinds) else kinds
    begins = numpy.flatnonzero((kinds == _SIGN) | ((kinds == _WORD) & (before != _WORD)))
    after = numpy.concatenate((kinds[1:], [_SPACE])) if len(kinds) else kinds
    ends = numpy.flatnonzero((kinds == _SIGN) | ((kinds == _WORD) & (after != _WORD))) + 1
    return _mixed(_sums(characters, begins, ends))


def _sums(
    characters: numpy.typing.NDArray[numpy.uint8],
    begins: numpy.typing.NDArray[numpy.intp],
    ends: numpy.typing.NDArray[numpy.intp],
) -> Words:
    """For each token the sum of its bytes times powers of the base, modulo 2 ** 64, wherever the token stands."""
    powers, inverse_powers = (_powers(base, _room(len(characters))) for base in (_BASE, _INVERSE))
    summands = (characters.astype(numpy.uint64) + 1) * powers[: len(characters)]
    sums = numpy.concatenate((numpy.zeros(1, numpy.uint64), numpy.cumsum(summands)))
    tokens: Words = (sums[ends] - sums[begins]) * inverse_powers[begins]
    return tokens


def _room(length: int) -> int:
    """The next power of two, so that few lengths have powers of their own."""
    return 1 << length.bit_length()


@functools.lru_cache(maxsize=64)
def _powers(base: int, count: int) -> Words:
    factors = numpy.full(count, base, numpy.uint64)
    factors[0] = 1
    return numpy.cumprod(factors)


def _shingles(tokens: Words) -> Hashes:
    """A hash per run of SHINGLE_TOKENS tokens, at least one."""
    padded = numpy.concatenate((tokens, numpy.zeros(max(0, SHINGLE_TOKENS - len(tokens)), numpy.uint64)))
    count = len(padded) - SHINGLE_TOKENS + 1
    sums = numpy.zeros(count, numpy.uint64)
    for place in range(SHINGLE_TOKENS):
        sums = (sums + padded[place : place + count]) * numpy.uint64(_BASE)
    return _upper(_mixed(sums))


def _mixed(words: Words) -> Words:
    """The words with their bits spread: the finaliser of SplitMix64."""
    words = (words ^ (words >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> numpy.uint64(31))
    return mixed


def _upper(words: Words) -> Hashes:
    """The upper halves."""
    halves: Hashes = (words >> numpy.uint64(32)).astype(numpy.uint32)
    return halves


def _permutations() -> tuple[Hashes, Hashes]:
    """Of 32-bit numbers, one a row of the signature: odd factors, and masks that are applied before."""
    numbers = _mixed(numpy.arange(1, SIGNATURE_LENGTH + 1, dtype=numpy.uint64) * numpy.uint64(_BASE))
    return (numbers.astype(numpy.uint32) | numpy.uint32(1)), (numbers >> numpy.uint64(32)).astype(
        numpy.uint32
    )
