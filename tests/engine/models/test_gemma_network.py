"""DiffusionGemma's forward pass against transformers' own, and its encoded prefix against one encoded afresh."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.models import tiny
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache

from tenon_engine.errors import ModelFailedError
from tenon_engine.models.gemma.network import SUFFIX_JUDGED, Frame, GemmaNetwork
from tenon_engine.models.gemma.prefix_cache import PrefixCache
from tenon_engine.models.gemma.uniform import Pace, whole_view
from tenon_engine.models.static_step import EAGER
from tenon_engine.view import View

WINDOW, CANVAS, END = 16, 32, 1
BANNED = (0, 3)
near = functools.partial(torch.testing.assert_close, atol=2e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DiffusionGemmaForBlockDiffusion:
    folder = tiny.write_diffusion_gemma(
        tmp_path_factory.mktemp("gemma"), layers=3, canvas=CANVAS, window=WINDOW
    )
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32)
    make_loud(model)
    return model


@pytest.fixture(scope="module")
def network(model: DiffusionGemmaForBlockDiffusion) -> GemmaNetwork:
    return GemmaNetwork(model, end_id=END, unspoken=BANNED)


def make_loud(model: Any) -> None:
    """Enlarge the weights: as they are, one input hardly differs from another."""
    with torch.no_grad():
        for name, weight in model.model.decoder.named_parameters():
            if weight.dim() > 1 and "embed_tokens" not in name:
                weight *= 8


def ids_of(count: int, seed: int = 0) -> list[int]:
    return [random.Random(seed * 1000 + place).randrange(8, 300) for place in range(count)]


def encoded(network: GemmaNetwork, ids: Sequence[int]) -> PrefixCache:
    prefix = PrefixCache()
    network.extend(prefix, ids)
    return prefix


def hole(size: int, seed: int = 0, *, fixed: int = 0) -> View:
    return whole_view(ids_of(size, seed), range(fixed, size), [None] * (size - fixed))


def logits_behind(network: GemmaNetwork, prefix: PrefixCache) -> Tensor:
    (found,) = network.forward([(Frame(prefix, ids_of(9, 5)), hole(6))])
    return found


def reference(
    model: Any, prefix_ids: Sequence[int], canvas: Sequence[int], signal: Tensor | None = None
) -> Tensor:
    with torch.inference_mode():
        cache = DynamicCache(config=model.config.text_config)
        model.model.encoder(input_ids=torch.tensor([prefix_ids]), cache=cache)
        output = model(decoder_input_ids=torch.tensor([canvas]), cache=cache, self_conditioning_logits=signal)
    logits: Tensor = output.logits[0]
    return logits


@pytest.mark.parametrize("length", [3, WINDOW - 1, WINDOW, 3 * WINDOW])
def test_the_rows_of_a_hole_are_those_of_transformers_own_forward(
    model: DiffusionGemmaForBlockDiffusion, network: GemmaNetwork, length: int
) -> None:
    frame, view = Frame(encoded(network, ids_of(length)), ids_of(9, 5)), hole(6, fixed=1)
    (found,) = network.forward([(frame, view)])
    canvas = [*view.reads, *frame.suffix_ids, *[END] * (CANVAS - 15)]
    wanted = reference(model, ids_of(length), canvas)
    spoken = [token for token in range(network.vocabulary) if token not in BANNED]
    near(found[:, spoken], wanted[1:6, spoken])
    assert bool(found[:, list(BANNED)].isneginf().all())
    chances = wanted.log_softmax(-1)[range(6, 15), list(frame.suffix_ids)]
    assert frame.suffix_log_probability == pytest.approx(float(chances.mean()), abs=1e-5)


def test_what_was_said_before_comes_back_and_fixed_slots_are_certain(
    model: DiffusionGemmaForBlockDiffusion, network: GemmaNetwork
) -> None:
    frame, view = Frame(encoded(network, ids_of(40)), ids_of(9, 5), Pace(4)), hole(6, fixed=2)
    (said,) = network.forward([(frame, view)])
    with torch.inference_mode():
        said[0, 10:] = -torch.inf  # as a constraint does
    again = hole(6, 3, fixed=2)
    (found,) = network.forward([(frame, again)])
    canvas = [*again.reads, *frame.suffix_ids, *[END] * (CANVAS - 15)]
    signal = torch.full((1, CANVAS, network.vocabulary), -torch.inf)
    signal[0, range(CANVAS), canvas] = 0
    signal[0, 2:6] = said
    wanted = reference(model, ids_of(40), canvas, signal)[2:6] / Pace(4).temperature
    spoken = [token for token in range(network.vocabulary) if token not in BANNED]
    near(found[:, spoken], wanted[:, spoken])


def test_rows_of_one_prefix_in_one_batch_say_what_each_says_alone(network: GemmaNetwork) -> None:
    prefix = encoded(network, ids_of(40))
    frames = [Frame(prefix, ids_of(count, count)) for count in (0, 5, SUFFIX_JUDGED - 10)]
    views = [hole(size, size) for size in (3, 8, 1)]
    for _ in range(2):
        alone = [network.forward([each])[0] for each in zip(map(copied, frames), views, strict=True)]
        together = network.forward(list(zip(frames, views, strict=True)))
        for one, other in zip(alone, together, strict=True):
            near(one, other)


def copied(frame: Frame) -> Frame:
    return Frame(frame.prefix, frame.suffix_ids, logits=frame.logits)


def test_rows_of_several_prefixes_come_back_in_their_order(network: GemmaNetwork) -> None:
    prefixes = [encoded(network, ids_of(count)) for count in (5, 30)]
    passes = [(Frame(prefixes[index], ids_of(4)), hole(size)) for index, size in ((0, 3), (1, 4), (0, 5))]
    alone = [network.forward([(copied(frame), view)])[0] for frame, view in passes]
    for one, other in zip(alone, network.forward(passes), strict=True):
        near(one, other)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=6))
def test_a_prefix_that_was_edited_is_as_good_as_one_encoded_afresh(
    network: GemmaNetwork, edits: list[tuple[int, int, int]]
) -> None:
    prefix = encoded(network, ids_of(3 * WINDOW))
    for kept, count, seed in edits:  # typing, backspace, and edits far before the cursor
        prefix.crop(kept)
        network.extend(prefix, ids_of(count, seed))
    fresh = encoded(network, list(prefix.ids))
    torch.testing.assert_close(
        logits_behind(network, prefix), logits_behind(network, fresh), atol=1e-4, rtol=1e-4
    )


def test_growing_by_one_token_at_a_time_equals_encoding_afresh(network: GemmaNetwork) -> None:
    ids, prefix = ids_of(3 * WINDOW), PrefixCache()
    for token in ids:
        network.extend(prefix, [token])
    near(logits_behind(network, prefix), logits_behind(network, encoded(network, ids)))


def test_a_copy_of_a_prefix_goes_its_own_way(network: GemmaNetwork) -> None:
    prefix = encoded(network, ids_of(40))
    before = logits_behind(network, prefix)
    copy = prefix.fork()
    network.extend(copy, ids_of(20, 7))
    copy.crop(10)
    torch.testing.assert_close(logits_behind(network, prefix), before)
    assert (prefix.ids, copy.ids) == (ids_of(40), ids_of(10))


def test_a_prefix_whose_encoding_failed_is_empty_and_usable(network: GemmaNetwork) -> None:
    prefix = encoded(network, ids_of(5))
    with pytest.raises(IndexError):
        network.extend(prefix, [10**6])
    assert prefix.ids == []
    network.extend(prefix, ids_of(8))
    near(logits_behind(network, prefix), logits_behind(network, encoded(network, ids_of(8))))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_compiled_with_padding_it_says_what_it_says_without(
    model: DiffusionGemmaForBlockDiffusion, network: GemmaNetwork, attention: str
) -> None:
    model.set_attn_implementation(attention)
    compiled = GemmaNetwork(
        model,
        end_id=END,
        unspoken=BANNED,
        backend=EAGER,
    )
    prefix = PrefixCache()
    for length in (4, 3 * WINDOW):  # within the window, and beyond it
        network.extend(prefix, ids_of(length)[len(prefix.ids) :])
        plain = [Frame(prefix, ids_of(count, count)) for count in (2, 5, 9)]
        padded = list(map(copied, plain))
        for seed in range(2):
            views = [hole(4, seed + row) for row in range(3)]
            one = network.forward(list(zip(plain, views, strict=True)))
            other = compiled.forward(list(zip(padded, views, strict=True)))
            for each in zip(one, other, strict=True):
                near(*each)
    model.set_attn_implementation("sdpa")


def test_numbers_that_mean_nothing_are_an_error_and_no_text(tmp_path: Path) -> None:
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(tiny.write_diffusion_gemma(tmp_path)).float()
    with torch.no_grad():
        model.model.decoder.layers[0].mlp.down_proj.weight.fill_(torch.nan)
    network = GemmaNetwork(model, end_id=END, unspoken=BANNED)
    with pytest.raises(ModelFailedError, match="not finite"):
        network.forward([(Frame(encoded(network, ids_of(5)), ids_of(4)), hole(3))])
