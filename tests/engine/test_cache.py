from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.cache import ContextCache, common_length
from tenon_engine.models.toy import ToyContext

IDS = st.lists(st.integers(0, 3), max_size=12)


@given(IDS, IDS)
def test_what_is_reused_is_exactly_the_longest_common_prefix(first: list[int], second: list[int]) -> None:
    cache = ContextCache(ToyContext)
    context = cache.begin("a", first)
    context.ids.extend(first)
    cache.keep("a", context)
    kept = cache.begin("a", second).ids
    assert kept == second[: len(kept)]
    assert len(kept) == common_length(first, second)
    assert len(kept) == min(len(first), len(second)) or first[len(kept)] != second[len(kept)]


def test_sessions_do_not_share_and_the_least_recently_used_is_forgotten() -> None:
    cache = ContextCache(ToyContext, sessions_max=2)

    def use(session: str) -> list[int]:
        context = cache.begin(session, [1])
        found = list(context.ids)
        context.ids[:] = [1]
        cache.keep(session, context)
        return found

    assert [use(session) for session in "abab"] == [[], [], [1], [1]]
    use("c")
    assert use("b") == [1]
    assert use("a") == []


def test_a_context_in_use_is_not_handed_out_again() -> None:
    cache = ContextCache(ToyContext)
    first, second = cache.begin("a", [1]), cache.begin("a", [1])
    assert first is not second


def test_without_a_session_a_fill_takes_the_context_that_is_most_like_its_own_and_leaves_others_alone() -> (
    None
):
    cache = ContextCache(ToyContext)

    def use(session: str, ids: list[int]) -> list[int]:
        context = cache.begin(session, ids)
        found = list(context.ids)
        context.ids[:] = ids
        cache.keep(session, context)
        return found

    use("session", [7, 7, 7])
    assert use("", [1, 2, 3]) == use("", [1, 5, 6]) == []
    assert use("", [1, 2, 3, 4]) == [1, 2, 3]
    assert use("", [1, 5, 6, 7]) == [1, 5, 6]
    assert use("", [7, 7, 7]) == []
    assert use("session", [7, 7, 7]) == [7, 7, 7]
