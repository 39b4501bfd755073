from __future__ import annotations

from tenon_engine.drafts import ngram_drafts


def test_the_latest_continuation_of_the_same_ngram_is_copied() -> None:
    assert ngram_drafts([1, 2, 3, 1, 2, 4, 5, 1, 2], length=2, count=3) == [4, 5, 1]


def test_nothing_is_drafted_without_a_match_or_with_length_zero() -> None:
    assert ngram_drafts([1, 2, 3], length=2, count=3) == []
    assert ngram_drafts([1, 1, 1], length=0, count=3) == []
    assert ngram_drafts([], length=2, count=3) == []
