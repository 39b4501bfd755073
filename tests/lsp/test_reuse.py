"""Reuse: what is recalled continues exactly the answer that was shown, and nothing else ever is."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenon_lsp.reuse import ANSWERS_KEPT, Reuse, Shown

URI = "file:///a.py"
CURSOR = "█"

TEXTS = st.text(alphabet="ab )}\n", max_size=12)
ANSWERS = st.lists(TEXTS, min_size=1, max_size=3, unique=True)


def split(document: str) -> tuple[str, str]:
    prefix, suffix = document.split(CURSOR)
    return prefix, suffix


def remembering(document: str, *texts: str) -> Reuse:
    reuse = Reuse()
    remember(reuse, document, *texts)
    return reuse


def remember(reuse: Reuse, document: str, *texts: str) -> None:
    prefix, suffix = split(document)
    confident = tuple((text, 1 - 0.1 * rank) for rank, text in enumerate(texts))
    reuse.remember(URI, Shown(prefix, suffix, confident))


def recalled(reuse: Reuse, document: str) -> list[str] | None:
    texts = reuse.recall(URI, *split(document))
    return None if texts is None else [text for text, _ in texts]


@pytest.mark.parametrize(
    ("asked", "text", "now", "rest"),
    [
        ("sun█", "set", "suns█", "et"),  # U26
        ("foo(█, z)", "alpha + beta", "foo(alpha█, z)", " + beta"),  # U57: the first word taken
        ("def f():\n    █\n", "a = 1\n    return a", "def f():\n    a = 1\n    █\n", "return a"),
        ("sun█", "set", "sun█", "set"),  # typed, then deleted again
        ("print█\n", "(x, y)", "print(█)\n", "x, y"),  # the editor closed the pair
        ("print█\n", "(x, y)", "print(x█)\n", ", y"),
        ("f(█)", "[{'key'}]", "f([{'█'}])", "key"),
        ("void f() █\n", "{\n    go();\n}", "void f() {\n    █\n}\n", "go();"),
        ("x = █", "🚀汉é", "x = 🚀█", "汉é"),
        ("a\r\n█\r\nb", "x\r\ny", "a\r\nx\r\n█\r\nb", "y"),
    ],
)
def test_typing_along_leaves_the_rest_of_the_answer(asked: str, text: str, now: str, rest: str) -> None:
    assert recalled(remembering(asked, text), now) == [rest]


@pytest.mark.parametrize(
    ("asked", "text", "now"),
    [
        ("sun█", "set", "sunx█"),
        ("sun█", "set", "su█"),
        ("sun█", "set", "sunset█"),  # nothing is left
        ("sun█", "set", "sun█ "),
        ("sun█\n", "set", "sun█"),
        ("sun█", "set", "gun█"),
        ("x = █", "1\n    \n", "x = 1█"),  # only white space is left
        ("print█\n", "(x) + 1", "print(█)\n"),  # no insertion at the cursor gives the answer's document
        ("print█\n", "(x", "print(█)\n"),
        ("f█\n", "()", "f(█)\n"),
    ],
)
def test_an_answer_that_does_not_hold_is_not_recalled(asked: str, text: str, now: str) -> None:
    assert recalled(remembering(asked, text), now) is None


def test_asking_again_at_the_same_place_gives_the_same_texts_in_the_same_order() -> None:
    reuse = remembering("x = █", "one", "two", "three")
    first = reuse.recall(URI, "x = ", "")
    assert first == (("one", 1.0), ("two", 0.9), ("three", 0.8))
    assert reuse.recall(URI, "x = ", "") == first


def test_of_several_texts_those_that_agree_with_what_was_typed_remain() -> None:
    assert recalled(remembering("x = █", "beta", "alpha", "best"), "x = be█") == ["ta", "st"]


def test_the_newest_answer_that_holds_is_recalled() -> None:
    reuse = remembering("x█", " = 1 + 2")
    remember(reuse, "x = █", "1 + 3", "7")
    assert recalled(reuse, "x = 1█") == [" + 3"]
    assert recalled(reuse, "x█") == [" = 1 + 2"]


def test_an_answer_replaces_the_older_one_for_the_same_place() -> None:
    reuse = remembering("x = █", "old")
    remember(reuse, "x = █", "new", "old")
    assert recalled(reuse, "x = o█") == ["ld"]
    remember(reuse, "x = █")
    assert recalled(reuse, "x = █") is None


def test_only_the_last_answers_of_a_document_are_kept() -> None:
    reuse = Reuse()
    for number in range(ANSWERS_KEPT + 1):
        remember(reuse, f"x{number} = █", "y")
    assert recalled(reuse, "x0 = █") is None
    assert recalled(reuse, "x1 = █") == ["y"]


def test_documents_do_not_share_answers_and_a_closed_one_is_forgotten() -> None:
    reuse = remembering("x = █", "1")
    assert reuse.recall("file:///b.py", "x = ", "") is None
    reuse.forget(URI)
    reuse.forget("file:///never_opened.py")
    assert recalled(reuse, "x = █") is None


@given(prefix=TEXTS, suffix=TEXTS, answers=ANSWERS, data=st.data())
def test_whatever_is_typed_along_an_answer_the_typed_and_the_recalled_text_are_the_answer(
    prefix: str, suffix: str, answers: list[str], data: st.DataObject
) -> None:
    reuse = remembering(prefix + CURSOR + suffix, *answers)
    answer = data.draw(st.sampled_from(answers))
    typed = answer[: data.draw(st.integers(0, len(answer)))]
    rest = answer[len(typed) :]
    whole = [typed + text for text in recalled(reuse, prefix + typed + CURSOR + suffix) or ()]
    assert whole == [text for text in answers if text.startswith(typed) and text[len(typed) :].strip()]
    assert (answer in whole) == bool(rest.strip())


@given(prefix=TEXTS, suffix=TEXTS, answers=ANSWERS, data=st.data())
def test_taking_a_recalled_text_gives_the_document_that_taking_the_answer_would_have_given(
    prefix: str, suffix: str, answers: list[str], data: st.DataObject
) -> None:
    reuse = remembering(prefix + CURSOR + suffix, *answers)
    answer = data.draw(st.sampled_from(answers))
    cut, end = sorted(data.draw(st.tuples(*[st.integers(0, len(answer))] * 2)))
    before, after = prefix + answer[:cut], answer[end:] + suffix
    texts = recalled(reuse, before + CURSOR + after) or []
    promised = {prefix + text + suffix for text in answers}
    assert {before + text + after for text in texts} <= promised
    assert (answer[cut:end] in texts) == bool(answer[cut:end].strip())
    assert len(set(texts)) == len(texts)


@given(asked=st.tuples(TEXTS, TEXTS), now=st.tuples(TEXTS, TEXTS), answers=ANSWERS)
def test_nothing_is_recalled_for_a_document_that_the_answer_does_not_lead_through(
    asked: tuple[str, str], now: tuple[str, str], answers: list[str]
) -> None:
    (prefix, suffix), (before, after) = asked, now
    expected = [
        answer[len(before) - len(prefix) : len(answer) - (len(after) - len(suffix))]
        for answer in answers
        if _between(prefix, answer, suffix, before, after)
    ]
    reuse = remembering(prefix + CURSOR + suffix, *answers)
    assert (recalled(reuse, before + CURSOR + after) or []) == [text for text in expected if text.strip()]


def _between(prefix: str, answer: str, suffix: str, before: str, after: str) -> bool:
    """The definition, by trying every pair of cuts."""
    return any(
        before == prefix + answer[:cut] and after == answer[end:] + suffix
        for end in range(len(answer) + 1)
        for cut in range(end + 1)
    )


@given(prefix=TEXTS, suffix=TEXTS, typed=TEXTS, at=st.integers(0), data=st.data())
def test_one_changed_character_anywhere_outside_the_hole_and_nothing_is_recalled(
    prefix: str, suffix: str, typed: str, at: int, data: st.DataObject
) -> None:
    reuse = remembering(prefix + CURSOR + suffix, typed + "rest")
    outside = prefix + suffix
    assume(outside)
    at %= len(outside)
    changed = outside[:at] + data.draw(st.sampled_from("xé汉🚀")) + outside[at + 1 :]
    now = changed[: len(prefix)] + typed + CURSOR + changed[len(prefix) :]
    assert recalled(reuse, now) is None


def accepted(asked: str, taken: str, now: str, offered: str) -> bool:
    return remembering(asked, taken).was_accepted(URI, split(now)[0], offered)


@pytest.mark.parametrize(
    ("asked", "taken", "now", "offered"),
    [
        ("x = 1\n█", "y = 2", "x = 1\ny = 2\n█", "y = 2"),  # U11
        ("x = 1\n█", "y = 2", "x = 1\ny = 2\n\n\n█", "y = 2\n"),
        ("x = 1\n█", "y = 2", "x = 1\ny = 2█", "\ny = 2"),
        ("x = 1\n█", "y = 2", "x = 1\ny = 2█", "y = 2"),
        ("x = 1\r\n█", "y = 2", "x = 1\r\ny = 2\r\n\r\n█", "y = 2"),
        ("x = 1\ny█", " = 2", "x = 1\ny = 2\n█", "y = 2"),  # begun by hand
        ("def f():\n    █", "y = 2", "def f():\n    y = 2\n    █", "y = 2"),
        ("def f():\n    █", "y = 2", "def f():\n    y = 2\n█", "    y = 2"),
        ("█", "if a:\n    b()", "if a:\n    b()\n\n█", "if a:\n    b()"),
        ("█", "y = 2", "import os\n\ny = 2\n█", "y = 2"),  # an import was added above meanwhile
    ],
)
def test_a_text_that_was_just_taken_is_known_as_such(asked: str, taken: str, now: str, offered: str) -> None:
    assert accepted(asked, taken, now, offered)


@pytest.mark.parametrize(
    ("asked", "taken", "now", "offered"),
    [
        ("x = 1\n█", "y = 2", "x = 1\ny = 2\n█", "z = 3"),
        ("x = 1\n█", "y = 2", "x = 1\ny = 2\nz = 3\n█", "y = 2"),
        ("x = 1\n█", "z = 3", "x = 1\ny = 2\n█", "y = 2"),  # a line written by hand may be repeated
        ("x = f(█", "g(1)", "x = f(g(1)█", ")"),
        ("f(g(1█", ")", "f(g(1)█", ")"),
        ("{\n    {\n    █", "}", "{\n    {\n    }\n█", "}"),
        ("if a then\n  if b then\n  █", "end", "if a then\n  if b then\n  end\n█", "end"),
        ("max =█", " 1", "max = 1\n█", "x = 1"),
        ("if a\r  █", "end", "if a\r  end\r█", "end"),  # a lone CR ends a line too
        ("x = 1\n█", "  ", "x = 1\ny = 2\n█", "y = 2"),
        ("x = 1\n█", "y = 2", "x = 1\ny = 2\n█", " \n"),
    ],
)
def test_other_texts_are_not_taken_for_a_repeat(asked: str, taken: str, now: str, offered: str) -> None:
    assert not accepted(asked, taken, now, offered)


@given(prefix=TEXTS, offered=TEXTS)
def test_what_was_never_offered_in_a_document_is_no_repeat(prefix: str, offered: str) -> None:
    assert not Reuse().was_accepted(URI, prefix, offered)
