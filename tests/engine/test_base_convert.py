"""Conversion, on tiny real GGUF files, against the gguf library, torch and the tokenizers library."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import sysconfig
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer

from tenon_engine import base_convert, base_weights, config
from tenon_engine.base_convert import Dtype

if TYPE_CHECKING:
    from tests.engine.conftest import TinyBase

TORCH = {Dtype.BF16: torch.bfloat16, Dtype.F32: torch.float32}


def silent(stage: str, done_bytes: int, total_bytes: int) -> None:
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str]
    tokenizer: Tokenizer
    weights: Path

    def token_bytes(self, index: int) -> bytes:
        begin, end = self.tensors["token_offsets"][index : index + 2].tolist()
        return bytes(self.tensors["token_bytes"][begin:end].tolist())


def convert(base: TinyBase, folder: Path, dtype: Dtype = Dtype.BF16) -> Converted:
    weights, tokenizer = folder / "weights.safetensors", folder / "tokenizer.json"
    base_convert.convert(
        base.path, weights, tokenizer, dtype=dtype, source_sha256=base.source.sha256, progress=silent
    )
    with safe_open(weights, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    return Converted(tensors, metadata, Tokenizer.from_file(str(tokenizer)), weights)


@pytest.fixture(scope="module")
def converted(tiny_base: TinyBase, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return convert(tiny_base, tmp_path_factory.mktemp("converted"))


def original(base: TinyBase, dtype: Dtype, *names: str) -> torch.Tensor:
    """GGUF tensors stacked by rows, as the gguf library and torch have them."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(base.path).tensors}
    parts = [gguf.dequantize(tensors[name].data, tensors[name].tensor_type) for name in names]
    return torch.cat([torch.from_numpy(part.copy()) for part in parts]).to(TORCH[dtype])


@pytest.mark.parametrize("dtype", Dtype)
def test_every_weight_is_the_dequantised_one_rounded_as_torch_rounds(
    tiny_base: TinyBase, tmp_path: Path, dtype: Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_convert, "_CHUNK_VALUES", 1000)  # so that tensors take several chunks
    tensors = convert(tiny_base, tmp_path, dtype).tensors
    stacked = {"output_norm": ["output_norm.weight"], "output.weight": ["output.weight"]}
    for layer in range(2):
        ours, theirs = f"layers.{layer}", f"blk.{layer}"
        stacked |= {
            f"{ours}.attn_norm": [f"{theirs}.attn_norm.weight"],
            f"{ours}.qkv.weight": [f"{theirs}.attn_{part}.weight" for part in "qkv"],
            f"{ours}.qkv.bias": [f"{theirs}.attn_{part}.bias" for part in "qkv"],
            f"{ours}.o.weight": [f"{theirs}.attn_output.weight"],
            f"{ours}.ffn_norm": [f"{theirs}.ffn_norm.weight"],
            f"{ours}.gate_up.weight": [f"{theirs}.ffn_gate.weight", f"{theirs}.ffn_up.weight"],
            f"{ours}.down.weight": [f"{theirs}.ffn_down.weight"],
        }
    for name, parts in stacked.items():
        assert torch.equal(tensors[name], original(tiny_base, dtype, *parts)), name
    assert tensors.keys() - stacked.keys() == {"token_bytes", "token_offsets", "token_order"}


def test_the_embedding_is_the_head_where_there_is_no_other(
    tiny_base_with_tied_head: TinyBase, tmp_path: Path
) -> None:
    head = convert(tiny_base_with_tied_head, tmp_path).tensors["output.weight"]
    assert torch.equal(head, original(tiny_base_with_tied_head, Dtype.BF16, "token_embd.weight"))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_bf16_rounds_to_nearest_and_ties_to_even(values: list[float]) -> None:
    array = torch.tensor(values, dtype=torch.float32).numpy()
    ours = torch.frombuffer(bytearray(base_convert._encode(array, Dtype.BF16)), dtype=torch.bfloat16)
    assert torch.equal(ours, torch.from_numpy(array).to(torch.bfloat16))


def test_the_file_says_where_it_comes_from_and_what_shape_the_model_has(
    converted: Converted, tiny_base: TinyBase
) -> None:
    assert converted.metadata["source_sha256"] == tiny_base.source.sha256
    assert converted.metadata["format_version"] == base_convert.FORMAT_VERSION
    assert json.loads(converted.metadata["hyperparameters"]) == {
        "layers": 2,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_width": 16,
        "ffn": 96,
        "rope_theta": 1e6,
        "rms_eps": 1e-6,
        "vocabulary": len(tiny_base.tokens),
    }


def test_a_mapped_tensor_starts_on_a_cache_line(converted: Converted) -> None:
    header_bytes = 8 + int.from_bytes(converted.weights.read_bytes()[:8], "little")
    assert header_bytes % 64 == 0


def test_control_ids_have_no_bytes_and_every_other_id_stands_once_in_the_order(
    converted: Converted, tiny_base: TinyBase
) -> None:
    order = converted.tensors["token_order"].tolist()
    assert all(converted.token_bytes(index) == b"" for index in tiny_base.control_ids)
    assert sorted(order) == [i for i in range(len(tiny_base.tokens)) if i not in tiny_base.control_ids]
    keys = [(converted.token_bytes(index), index) for index in order]
    assert keys == sorted(keys)


def test_there_is_a_token_for_every_byte(converted: Converted) -> None:
    order = converted.tensors["token_order"].tolist()
    assert {bytes([byte]) for byte in range(256)} <= {converted.token_bytes(index) for index in order}


@given(text=st.text())
def test_the_bytes_of_a_texts_tokens_are_the_bytes_of_the_text(converted: Converted, text: str) -> None:
    ids = converted.tokenizer.encode(text).ids
    assert b"".join(converted.token_bytes(index) for index in ids) == text.encode()


def test_text_is_not_normalised(converted: Converted) -> None:
    decomposed = unicodedata.normalize("NFD", "é")
    assert converted.tokenizer.decode(converted.tokenizer.encode(decomposed).ids) == decomposed


def test_text_that_spells_a_control_token_is_plain_text(converted: Converted, tiny_base: TinyBase) -> None:
    for index in tiny_base.control_ids:
        ids = converted.tokenizer.encode(tiny_base.tokens[index]).ids
        assert len(ids) > 1
        assert not set(ids) & set(tiny_base.control_ids)


def test_merges_apply(converted: Converted) -> None:
    assert converted.tokenizer.encode("abc a").tokens == ["abc", "Ġa"]


def test_an_interrupted_conversion_leaves_nothing_under_the_final_name(
    tiny_base: TinyBase, tmp_path: Path
) -> None:
    def interrupt(stage: str, done_bytes: int, total_bytes: int) -> None:
        if done_bytes > 1000:
            raise KeyboardInterrupt

    weights = tmp_path / "weights.safetensors"
    with pytest.raises(KeyboardInterrupt):
        base_convert.convert(
            tiny_base.path,
            weights,
            tmp_path / "tokenizer.json",
            dtype=Dtype.F32,
            source_sha256="",
            progress=interrupt,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_whole_file_is_intact(converted: Converted, tiny_base: TinyBase) -> None:
    assert base_convert.is_intact(converted.weights, source_sha256=tiny_base.source.sha256)
    assert not base_convert.is_intact(converted.weights, source_sha256="another file's")


@pytest.mark.parametrize("damage", ["shorter", "longer", "empty", "text", "absent"])
def test_a_damaged_file_is_not_intact(
    converted: Converted, tiny_base: TinyBase, tmp_path: Path, damage: str
) -> None:
    content = converted.weights.read_bytes()
    versions = {"shorter": content[:-1], "longer": content + b"\0", "empty": b"", "text": b"not weights" * 99}
    path = tmp_path / "weights.safetensors"
    if damage in versions:
        path.write_bytes(versions[damage])
    assert not base_convert.is_intact(path, source_sha256=tiny_base.source.sha256)


@pytest.mark.weights
def test_the_real_tokenizer_agrees_with_transformers_on_real_code() -> None:
    from transformers import AutoTokenizer

    settings, _ = config.load(os.environ, {})
    files = base_weights.ensure(settings.home, offline=settings.offline, dtype=Dtype.BF16)
    source = base_weights.locate_source(settings.home)
    assert source is not None
    yardstick: Any = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    ours = Tokenizer.from_file(str(files.tokenizer))
    paths = sorted(glob.glob(f"{sysconfig.get_path('stdlib')}/[a-f]*.py"))
    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    for text in [*texts, "<|fim_prefix|> naïve 日本語 🎉\r\n\tI'LL  x\n\n  "]:
        composed = unicodedata.normalize("NFC", text)  # which transformers does by itself
        expected = yardstick.encode(composed, add_special_tokens=False, split_special_tokens=True)
        assert ours.encode(composed).ids == expected
