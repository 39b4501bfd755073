"""Our module against transformers' own, on a tiny random checkpoint in f32; and against itself, whole and in parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from tenon_engine.models.linear import Linear, Lora
from tenon_engine.models.qwen2 import CanvasAdapter, KeyValues, Layer, Qwen2Canvas, Shape
from tenon_engine.view import OPEN, START, View

SHAPE = Shape(
    layers=3,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_width=16,
    ffn=96,
    rope_theta=1e6,
    rms_eps=1e-6,
    vocabulary=120,
)
RANKS = 6


@pytest.fixture(scope="module")
def reference() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=SHAPE.vocabulary,
        hidden_size=SHAPE.hidden,
        intermediate_size=SHAPE.ffn,
        num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads,
        num_key_value_heads=SHAPE.kv_heads,
        rope_parameters={"rope_theta": SHAPE.rope_theta, "rope_type": "default"},
        rms_norm_eps=SHAPE.rms_eps,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


@pytest.fixture(scope="module")
def network(reference: Qwen2ForCausalLM) -> Qwen2Canvas:
    layers = []
    for block in reference.model.layers:
        attention, mlp = block.self_attn, block.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        layers.append(
            Layer(
                attn_norm=block.input_layernorm.weight.detach(),
                qkv=Linear(
                    torch.cat([p.weight for p in projections]).detach(),
                    torch.cat([p.bias for p in projections]).detach(),
                ),
                o=Linear(attention.o_proj.weight.detach()),
                ffn_norm=block.post_attention_layernorm.weight.detach(),
                gate=Linear(mlp.gate_proj.weight.detach()),
                up=Linear(mlp.up_proj.weight.detach()),
                down=Linear(mlp.down_proj.weight.detach()),
                lora=_random_lora(),
            )
        )
    return Qwen2Canvas(
        SHAPE,
        layers,
        output_norm=reference.model.norm.weight.detach(),
        embedding=reference.lm_head.weight.detach(),
        start_id=3,
        head=Linear(reference.lm_head.weight.detach()),
        adapter=CanvasAdapter(
            mask_embedding=torch.randn(SHAPE.hidden),
            mask_key_bias=torch.randn(SHAPE.layers, SHAPE.heads),
            open_gate=torch.tensor([1.0] * 4 + [0.0] * 2),
            decided_gate=torch.tensor([0.0] * 4 + [1.0] * 2),
        ),
    )


def _random_lora() -> dict[str, Lora]:
    widths = {
        "qkv": (SHAPE.hidden, (64, 32, 32)),
        "o": (64, (SHAPE.hidden,)),
        "gate": (SHAPE.hidden, (SHAPE.ffn,)),
        "up": (SHAPE.hidden, (SHAPE.ffn,)),
        "down": (SHAPE.ffn, (SHAPE.hidden,)),
    }

    def part(wide: int, out: int) -> tuple[Tensor, Tensor, Tensor]:
        return torch.randn(RANKS, wide) * 0.1, torch.randn(out, RANKS) * 0.1, torch.rand(RANKS)

    return {
        name: Lora([part(wide, out) for out in outs], torch.float32) for name, (wide, outs) in widths.items()
    }


def ids_of(seed: int, count: int) -> list[int]:
    return torch.randint(
        4, SHAPE.vocabulary, (count,), generator=torch.Generator().manual_seed(seed)
    ).tolist()


def causal_view(ids: list[int]) -> View:
    n = len(ids)
    return make_view(ids, np.tri(n, dtype=np.bool_), adapted=False)


def make_view(reads: list[int], sees: np.ndarray, *, kept: int = 0, adapted: bool = True) -> View:
    n = len(reads)
    return View(
        reads=tuple(reads),
        places=tuple(range(kept, kept + n)),
        sees=sees,
        kept=kept,
        keepable=0,
        scored=tuple(range(n)),
        constraints=(None,) * n,
        adapted=adapted,
    )


def context_of(network: Qwen2Canvas, ids: list[int], *cuts: int) -> KeyValues:
    context = network.new_context()
    for start, end in zip((0, *cuts), (*cuts, len(ids)), strict=True):
        network.extend(context, ids[start:end])
    return context


def test_without_adapter_and_causally_the_logits_are_transformers_own(
    network: Qwen2Canvas, reference: Qwen2ForCausalLM
) -> None:
    ids = ids_of(1, 40)
    with torch.inference_mode():
        want = reference(torch.tensor([ids])).logits[0]
    whole = network.forward([(network.new_context(), causal_view(ids))])[0]
    behind_context = network.forward([(context_of(network, ids[:25]), causal_view(ids[25:]))])[0]
    assert (whole - want).abs().max() < 1e-4
    assert (behind_context - want[25:]).abs().max() < 1e-4


def test_a_context_encoded_in_parts_or_after_cropping_is_the_one_encoded_whole(network: Qwen2Canvas) -> None:
    ids, canvas = ids_of(2, 300), make_view([START, OPEN, 7, OPEN], np.ones((4, 4), dtype=np.bool_))
    whole = network.forward([(context_of(network, ids), canvas)])[0]
    parts = network.forward([(context_of(network, ids, 1, 130, 299), canvas)])[0]
    cropped = context_of(network, [*ids[:200], *ids_of(3, 50)])
    cropped.crop(200)
    network.extend(cropped, ids[200:])
    again = network.forward([(cropped, canvas)])[0]
    assert (parts - whole).abs().max() < 1e-3
    assert (again - whole).abs().max() < 1e-3


def test_deferred_ids_are_encoded_by_the_next_forward_as_they_would_be_apart(network: Qwen2Canvas) -> None:
    ids, others = ids_of(12, 40), ids_of(13, 9)
    views = [make_view([START, OPEN, 7], np.ones((3, 3), dtype=np.bool_)), causal_view(ids_of(14, 4))]
    apart = network.forward([(context_of(network, ids), views[0]), (context_of(network, others), views[1])])
    deferred, encoded = context_of(network, ids[:30]), context_of(network, others)
    network.defer(deferred, ids[30:])
    together = network.forward([(deferred, views[0]), (encoded, views[1])])
    again = network.forward([(deferred, views[0])])
    assert all((one - other).abs().max() < 1e-4 for one, other in zip(apart, together, strict=True))
    assert (again[0] - apart[0]).abs().max() < 1e-4
    deferred.crop(35)
    assert deferred.encoded_count == 35


def test_a_batch_of_rows_with_other_contexts_and_views_gives_what_each_row_gives_alone(
    network: Qwen2Canvas,
) -> None:
    rows = [
        (context_of(network, ids_of(4, 9)), make_view([START, OPEN, OPEN], np.ones((3, 3), dtype=np.bool_))),
        (context_of(network, ids_of(5, 70)), make_view([START, 8], np.tri(2, dtype=np.bool_))),
        (context_of(network, ids_of(6, 3)), causal_view(ids_of(7, 5))),
    ]
    together = network.forward(rows)
    for row, logits in zip(rows, together, strict=True):
        assert (network.forward([row])[0] - logits).abs().max() < 1e-4


@pytest.mark.parametrize("count", [20, 124])  # behind 124 ids the store has to grow under the kept entries
def test_kept_entries_stand_for_those_computed_again(network: Qwen2Canvas, count: int) -> None:
    ids, reads = ids_of(8, count), [START, *ids_of(9, 5)]
    whole = network.forward([(context_of(network, ids), make_view(reads, np.tri(6, dtype=np.bool_)))])[0]
    context = context_of(network, ids)
    first = network.forward([(context, make_view(reads[:4], np.tri(4, dtype=np.bool_)))])[0]
    rest = network.forward([(context, make_view(reads[4:], np.tri(2, dtype=np.bool_), kept=4))])[0]
    assert (torch.cat([first, rest]) - whole).abs().max() < 1e-4


def test_an_open_slot_changes_what_others_see_and_its_key_bias_counts_for_others_alone(
    network: Qwen2Canvas,
) -> None:
    context = context_of(network, ids_of(10, 8))
    alone = network.forward([(context, make_view([OPEN], np.ones((1, 1), dtype=np.bool_)))])[0]
    blind = network.forward([(context, make_view([OPEN, OPEN], np.eye(2, dtype=np.bool_)))])[0]
    mutual = network.forward([(context, make_view([OPEN, OPEN], np.ones((2, 2), dtype=np.bool_)))])[0]
    assert (blind[0] - alone[0]).abs().max() < 1e-4
    assert (mutual[0] - alone[0]).abs().max() > 1e-3


def test_a_fork_is_independent(network: Qwen2Canvas) -> None:
    ids = ids_of(11, 12)
    context = context_of(network, ids)
    copy = context.fork()
    network.extend(copy, [5, 6])
    view = make_view([START, OPEN], np.ones((2, 2), dtype=np.bool_))
    want = network.forward([(context_of(network, ids), view)])[0]
    assert (network.forward([(context, view)])[0] - want).abs().max() < 1e-4
    assert context.ids == ids
