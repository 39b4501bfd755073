"""The network that is trained against the one that runs: the same weights, the same views, the same logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tenon_engine import base_weights
from tenon_engine.base_convert import Dtype
from tenon_engine.diffusion import SpecialIds
from tenon_engine.models import embedded
from tenon_engine.models.qwen2 import Qwen2Canvas
from tenon_engine.tokenizer import BpeTokenizer
from tenon_engine.training.attention import attend
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.examples import Batch, ExampleMaker
from tenon_engine.training.network import TrainableCanvas, load_base, packed
from tenon_engine.training.options import ExampleOptions
from tenon_engine.training.run import Ground
from tenon_engine.training.state import unpack
from tenon_engine.view import View

OPTIONS = ExampleOptions(rows=2, context_tokens=192, canvas_slots=96)


def logits_of(canvas: TrainableCanvas, batch: Batch) -> tuple[Tensor, Tensor]:
    """Of every entry of the canvases, and of every id the base has read: [rows, entries, vocabulary]."""
    ids, counts, reads, positions, sees = (
        torch.from_numpy(getattr(batch, name))
        for name in ("ids", "context_counts", "reads", "positions", "sees")
    )
    read = canvas.read(ids, counts)
    hidden = canvas.forward(read, reads, positions, sees)
    head = canvas.base.embedding
    of_canvases, of_texts = (
        (each @ head.T).float().unflatten(0, (len(ids), -1)) for each in (hidden, read.hidden)
    )
    return of_canvases, of_texts


def run_time_logits(network: Qwen2Canvas, batch: Batch, row: int) -> tuple[Tensor, Tensor]:
    """The same of one row: of its canvases, and of the true text behind its context, read by the base alone."""
    count = int(batch.context_counts[row])
    used = int((batch.positions[row] > 0).sum())
    known = int((batch.ids[row] > 0).sum())
    context = network.new_context()
    network.extend(context, batch.ids[row, :count].tolist())
    places = batch.positions[row, :used] - count
    canvases = view(batch.reads[row, :used], places, batch.sees[row, :used, :used])
    text = batch.ids[row, count:known]
    causal = view(text, np.arange(len(text)), np.tri(len(text), dtype=np.bool_), adapted=False)
    return network.forward([(context, canvases)])[0], network.forward([(context, causal)])[0]


def view(reads: np.ndarray, places: np.ndarray, sees: np.ndarray, *, adapted: bool = True) -> View:
    return View(
        reads=tuple(reads.tolist()),
        places=tuple(places.tolist()),
        sees=sees,
        kept=0,
        keepable=0,
        scored=tuple(range(len(reads))),
        constraints=(None,) * len(reads),
        adapted=adapted,
    )


def test_its_logits_are_those_of_the_run_time_network(
    ground: Ground, adapter: Path, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    batch = ExampleMaker(opened, tokenizer, ground.special, OPTIONS).batch(0)
    canvases, read = logits_of(TrainableCanvas(load_base(ground.files.weights), unpack(adapter)), batch)
    network = embedded.load_network(ground.files.weights, adapter)
    for row, count in enumerate(batch.context_counts):
        of_canvases, of_text = run_time_logits(network, batch, row)
        assert (canvases[row, : len(of_canvases)] - of_canvases).abs().max() < 1e-3
        assert (read[row, count : count + len(of_text)] - of_text).abs().max() < 1e-3


def test_the_adapter_matters(ground: Ground, adapter: Path, tokenizer: BpeTokenizer, opened: Corpus) -> None:
    batch = ExampleMaker(opened, tokenizer, ground.special, OPTIONS).batch(1)
    base = load_base(ground.files.weights)
    state = unpack(adapter)
    doubled = {name: 2 * tensor for name, tensor in state.items()}
    first, other = (logits_of(TrainableCanvas(base, each), batch)[0] for each in (state, doubled))
    assert (other - first).abs().max() > 0.1


def test_every_parameter_gets_a_gradient(
    ground: Ground, adapter: Path, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    batch = ExampleMaker(opened, tokenizer, ground.special, OPTIONS).batch(2)
    state = {name: tensor.requires_grad_() for name, tensor in unpack(adapter).items()}
    logits_of(TrainableCanvas(load_base(ground.files.weights), state), batch)[0].square().mean().backward()
    assert all(tensor.grad is not None and tensor.grad.abs().max() > 0 for tensor in state.values())


def test_the_gradients_of_attention_are_right() -> None:
    torch.manual_seed(0)
    rows, kv_heads, groups, slots, tokens, width = 2, 2, 2, 3, 4, 5

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    q = numbers(rows, kv_heads, groups * slots, width)
    keys, values = (numbers(rows, kv_heads, tokens + slots, width) for _ in range(2))
    hidden = torch.zeros(rows, 1, slots, tokens + slots, dtype=torch.float64)
    hidden[0, :, :, 0] = -3e4
    open_keys = torch.rand(rows, slots, slots, dtype=torch.float64).round()
    bias = numbers(kv_heads * groups)

    def attended(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        return attend(q, keys, values, bias, hidden, open_keys)

    assert torch.autograd.gradcheck(attended, (q, keys, values, bias), atol=1e-4)


def test_weights_laid_out_for_this_cpu_change_nothing(
    ground: Ground, adapter: Path, tokenizer: BpeTokenizer, opened: Corpus
) -> None:
    if embedded.best_dtype() is not Dtype.BF16:
        pytest.skip("this CPU does not multiply bf16")
    batch = ExampleMaker(opened, tokenizer, ground.special, OPTIONS).batch(3)
    whole = load_base(ground.files.weights)
    base = whole.to(torch.device("cpu"), torch.bfloat16)
    gradients: list[Tensor] = []
    for each in (base, packed(base)):
        state = {name: tensor.requires_grad_() for name, tensor in unpack(adapter).items()}
        logits_of(TrainableCanvas(each, state), batch)[0].square().mean().backward()
        found = state["mask_embedding"].grad
        assert found is not None
        gradients.append(found)
    assert torch.nn.functional.cosine_similarity(gradients[0], gradients[1], dim=0) > 0.99


@pytest.mark.weights
def test_with_the_real_weights_the_two_agree_within_the_noise_of_bf16(opened: Corpus) -> None:
    files = base_weights.ensure(None, offline=False, dtype=embedded.best_dtype())
    special: SpecialIds = embedded.SPECIAL
    batch = ExampleMaker(opened, embedded.load_tokenizer(files), special, OPTIONS).batch(0)
    canvases, _ = logits_of(TrainableCanvas(load_base(files.weights), unpack(embedded.ADAPTER_PATH)), batch)
    network = embedded.load_network(files.weights, embedded.ADAPTER_PATH)
    for row in range(OPTIONS.rows):
        want = run_time_logits(network, batch, row)[0]
        got = canvases[row, : len(want), : want.shape[1]]
        margin = want.topk(2).values.diff().abs()[:, 0]
        assert (got - want).abs().mean() < 0.1
        assert bool((got.argmax(-1) == want.argmax(-1))[margin > 0.5].all())
