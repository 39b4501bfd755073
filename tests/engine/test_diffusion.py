"""From text to tokens and back, with the real vocabulary and a network that says random things."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon_engine import base_weights, config
from tenon_engine.diffusion import DiffusionModel, Limits
from tenon_engine.engine import Engine
from tenon_engine.models.embedded import SPECIAL, best_dtype, load_tokenizer
from tenon_engine.models.toy import ToyContext, ToyNetwork
from tenon_engine.samplers import plan_named
from tenon_engine.tokenizer import BpeTokenizer
from tenon_engine.window import window
from tenon_engine.wire import FillRequest, FillResult

pytestmark = pytest.mark.weights

TEXT = st.text(
    st.one_of(
        st.sampled_from("abcdefghij_ ()[]{}:.,\"'0123\t\n\r"),
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("🚀é́ñ中文\u200d"),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def tokenizer() -> BpeTokenizer:
    configured, _ = config.load(os.environ, {})
    files = base_weights.ensure(configured.home, offline=configured.offline, dtype=best_dtype())
    return load_tokenizer(files)


@pytest.fixture(scope="module")
def babbler(tokenizer: BpeTokenizer) -> DiffusionModel[ToyContext]:
    """The embedded model's vocabulary with random logits: every token is as likely as any other."""
    return DiffusionModel(
        name="babbler",
        network=ToyNetwork(SPECIAL.end + 1),
        tokenizer=tokenizer,
        special=SPECIAL,
        plan=plan_named("confirm:1"),
        limits=Limits(prefix_tokens=40, suffix_tokens=20, path_header=True),
    )


@given(TEXT)
def test_text_survives_the_vocabulary_to_the_byte(tokenizer: BpeTokenizer, text: str) -> None:
    assert tokenizer.to_bytes(tokenizer.encode(text)) == text.encode()
    before, healed = tokenizer.encode_for_hole(text)
    assert tokenizer.to_bytes([*before, *healed]) == text.encode()


@pytest.mark.parametrize("rest", ["win", " ret", "    ", "é", "🚀", " (", "\t\t", "0"])
def test_tokens_that_agree_with_a_rest_are_exactly_those(tokenizer: BpeTokenizer, rest: str) -> None:
    data = rest.encode()
    agreeing = set(tokenizer.agreeing(data).tolist())
    for token_id in range(SPECIAL.end):
        token = tokenizer.to_bytes([token_id])
        assert (token_id in agreeing) == bool(token and (token.startswith(data) or data.startswith(token)))


@settings(max_examples=150)
@given(prefix=TEXT, suffix=TEXT, candidates=st.integers(1, 2), seed=st.integers(0, 3))
def test_whatever_the_model_says_the_text_outside_the_hole_stays(
    babbler: DiffusionModel[ToyContext], prefix: str, suffix: str, candidates: int, seed: int
) -> None:
    request = FillRequest.single(
        prefix,
        suffix,
        max_tokens=5,
        candidates=candidates,
        temperature=float(seed == 3),
        seed=seed,
        path="a.py",
    )
    (hole,) = Engine(babbler).fill(request).holes
    for candidate in hole.candidates:
        document = prefix + candidate.text + suffix
        assert document.encode().startswith(prefix.encode())
        assert document.encode().endswith(suffix.encode())
        assert candidate.text.strip()
        assert "\ufffd" not in candidate.text
        assert "\r" not in candidate.text or "\r" in prefix + suffix


@given(prefix=TEXT, suffix=TEXT)
def test_a_window_is_contiguous_with_the_hole_and_within_its_budget(
    tokenizer: BpeTokenizer, prefix: str, suffix: str
) -> None:
    cut = window(tokenizer, prefix * 5, suffix * 5, prefix_tokens=40, suffix_tokens=20)
    before = tokenizer.to_bytes(cut.prefix_ids) + cut.left
    after = cut.right + tokenizer.to_bytes(cut.suffix_ids)
    assert len(cut.prefix_ids) <= 40
    assert len(cut.suffix_ids) <= 20
    assert (prefix * 5).encode().endswith(before)
    assert not (suffix * 5).strip() or (suffix * 5).encode().startswith(after)


def test_the_window_starts_where_it_did_while_a_few_lines_are_typed(tokenizer: BpeTokenizer) -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(2000))
    limits = {"prefix_tokens": 200, "suffix_tokens": 50}
    starts = {
        tuple(window(tokenizer, text + "x = 1\n" * typed, "", **limits).prefix_ids[:20]) for typed in range(8)
    }
    assert len(starts) <= 2


def test_far_ends_are_cut_at_line_boundaries(tokenizer: BpeTokenizer) -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(2000))
    cut = window(tokenizer, text, text, prefix_tokens=200, suffix_tokens=50)
    assert tokenizer.to_bytes(cut.prefix_ids).startswith(b"value_")
    assert tokenizer.to_bytes(cut.suffix_ids).endswith(b")\n")


def test_one_line_of_a_megabyte_is_cut_without_encoding_all_of_it(tokenizer: BpeTokenizer) -> None:
    cut = window(tokenizer, "x" * 1_000_000, "y" * 1_000_000, prefix_tokens=100, suffix_tokens=50)
    assert len(cut.prefix_ids) <= 100
    assert len(cut.suffix_ids) <= 50


def test_two_requests_of_one_session_at_once_do_not_disturb_each_other(
    babbler: DiffusionModel[ToyContext],
) -> None:
    engine = Engine(babbler, max_tokens=6)
    one, other = (FillRequest.single(text, ")\n", session="same") for text in ("f(a, ", "print(a.b"))
    alone = [engine.fill(request).holes for request in (one, other)]
    streams = [engine.stream(request) for request in (one, other)]
    results = []
    for events in itertools.zip_longest(*streams):
        results += [(n, event.holes) for n, event in enumerate(events) if isinstance(event, FillResult)]
    assert [holes for _, holes in sorted(results, key=lambda result: result[0])] == alone
