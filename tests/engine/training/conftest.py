"""A tiny base, a tiny adapter and a small corpus: all that a training run needs, real, in f32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.engine.conftest import TinyBase
from tests.engine.training.corpus_packages import python_text

from tenon_engine import base_weights
from tenon_engine.base_convert import Dtype
from tenon_engine.diffusion import SpecialIds
from tenon_engine.models.embedded import load_tokenizer
from tenon_engine.progress import silent
from tenon_engine.tokenizer import BpeTokenizer
from tenon_engine.training import corpus
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.run import Ground
from tenon_engine.training.sources import Source
from tenon_engine.training.state import MODULES

RANKS = 64


@pytest.fixture(scope="session")
def ground(tiny_base: TinyBase, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    files = base_weights.ensure(
        tmp_path_factory.mktemp("home"),
        offline=True,
        dtype=Dtype.F32,
        source_file=tiny_base.path,
        source=tiny_base.source,
    )
    end, middle, file = tiny_base.control_ids
    return Ground(files, SpecialIds(prefix=middle, middle=middle, suffix=file, file=file, end=end))


@pytest.fixture(scope="session")
def tokenizer(ground: Ground) -> BpeTokenizer:
    return load_tokenizer(ground.files)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of four packages of two files each."""
    top = tmp_path_factory.mktemp("texts")
    found = []
    for number in range(4):
        folder = top / f"package{number}"
        folder.mkdir()
        for part in range(2):
            (folder / f"part{part}.py").write_text(python_text(10 * number + part, 40))
        found.append(Source(folder, folder.name, "1", "MIT"))
    corpus.build(found, top / "corpus", silent)
    return top / "corpus"


@pytest.fixture(scope="session")
def opened(texts: Path) -> Corpus:
    return Corpus.open(texts)


@pytest.fixture(scope="session")
def adapter(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed adapter of random numbers, in the form of the one that is shipped."""
    generator = torch.Generator().manual_seed(3)
    with safe_open(ground.files.weights, "pt") as file:
        shape = json.loads(file.metadata()["hyperparameters"])
    hidden, ffn, keys = shape["hidden"], shape["ffn"], shape["kv_heads"] * shape["head_width"]
    outs = dict(zip(MODULES, (hidden, keys, keys, hidden, ffn, ffn, hidden), strict=True))
    tensors = {
        "mask_embedding": torch.randn(hidden, generator=generator),
        "mask_key_bias": torch.randn(shape["layers"], shape["heads"], generator=generator) - 4,
    }

    def whole_numbers(*size: int) -> torch.Tensor:
        return torch.randint(-127, 128, size, generator=generator).to(torch.int8)

    for layer in range(shape["layers"]):
        for module, out in outs.items():
            key = f"layers.{layer}.{module}.lora_"
            tensors[f"{key}A"] = whole_numbers(RANKS, ffn if module == "mlp.down_proj" else hidden)
            tensors[f"{key}B"] = whole_numbers(out, RANKS)
            tensors[f"{key}scale"] = torch.rand(RANKS, generator=generator) * 1e-6
    path = tmp_path_factory.mktemp("adapter") / "adapter.safetensors"
    save_file(tensors, path)
    return path
