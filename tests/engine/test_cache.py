from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.cache import ContextCache, common_length
from tenon_engine.models.toy import ToyContext

IDS = st.lists(st.integers(0, 3), max_size=12)


@given(IDS, IDS)
def test_what_is_reused_is_exactly_the_longest_common_prefix(first: list[int], second: list[int]) -> None:
    cache = ContextCache(ToyContext)
    cache.begin("a", first).ids.extend(first[0:])
    kept = cache.begin("a", second).ids
    assert kept == second[: len(kept)]
    assert len(kept) == common_length(first, second)
    assert len(kept) == min(len(first), len(second)) or first[len(kept)] != second[len(kept)]


def test_sessions_do_not_share_and_the_least_recently_used_is_forgotten() -> None:
    cache = ContextCache(ToyContext, sessions_max=2)
    for session in "ab":
        cache.begin(session, [1]).ids.append(1)
    assert cache.begin("a", [1]).ids == [1]
    cache.begin("c", [1])
    assert cache.begin("b", [1]).ids == []
