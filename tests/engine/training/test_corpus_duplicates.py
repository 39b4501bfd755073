"""Texts that are nearly the same are found, and others are not."""

from __future__ import annotations

import random

import numpy
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.training import duplicates
from tenon_engine.training.duplicates import Seen, signature


def program(seed: int, line_count: int = 120) -> list[str]:
    rng = random.Random(seed)
    names = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(40)]
    pick = rng.choice
    return [f"{pick(names)} = {pick(names)}({pick(names)}, {rng.randrange(99)})" for _ in range(line_count)]


def packed(lines: list[str]) -> bytes:
    return "\n".join(lines).encode()


def similarity(one: bytes, other: bytes) -> float:
    return float(numpy.mean(signature(one) == signature(other)))


def seen(*texts: bytes) -> Seen:
    found = Seen()
    for text in texts:
        found.add(signature(text))
    return found


def test_a_text_with_a_few_lines_changed_is_nearly_the_same() -> None:
    lines = program(1)
    changed = [*lines[:50], "entirely = other(line)", *lines[51:], "and = one(more)"]
    assert seen(packed(program(2)), packed(lines)).has_like(signature(packed(changed)))


def test_layout_alone_makes_no_difference() -> None:
    lines = program(3)
    wide = "\r\n\r\n".join("\t" + line.replace(" ", "   ") for line in lines).encode()
    assert similarity(packed(lines), wide) == 1.0


def test_texts_of_the_same_words_in_another_order_are_not_the_same() -> None:
    lines = program(4)
    shuffled = random.Random(0).sample(lines, len(lines))
    words = " ".join(packed(lines).decode().split()[::-1]).encode()
    found = seen(packed(lines))
    assert not found.has_like(signature(words))
    assert similarity(packed(lines), packed(shuffled)) > similarity(packed(lines), words)


def test_the_estimate_is_near_the_share_of_common_shingles() -> None:
    """Lines of five tokens and more, kept or replaced as blocks, so that few shingles span a seam."""
    lines, others = program(5, 400), program(6, 400)
    for share in (0.25, 0.5, 0.75):
        mixed = lines[: int(400 * share)] + others[int(400 * share) :]
        jaccard = share / (2 - share)
        assert abs(similarity(packed(lines), packed(mixed)) - jaccard) < 0.12


def test_texts_too_short_for_a_shingle_are_compared_too() -> None:
    assert similarity(b"", b"  \n ") == 1.0
    assert similarity(b"a b", b"a  b") == 1.0
    assert similarity(b"a b", b"b a") < 0.1


def test_signatures_are_the_same_on_every_machine() -> None:
    values = signature("def f(x):\n    return x + 1  # größer\n".encode())
    assert values.shape == (duplicates.SIGNATURE_LENGTH,)
    assert values[:4].tolist() == [704260161, 767405011, 145785501, 111614702]


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_text_is_like_itself_wherever_its_bytes_stand(text: bytes, before: bytes) -> None:
    assert seen(before, text).has_like(signature(text))
