"""A complete but tiny model file of the embedded architecture, real GGUF, for tests around it."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import gguf
import numpy
import pytest
from tokenizers import pre_tokenizers

from tenon_engine.base_fetch import BaseSource, WheelPart

HIDDEN, HEADS, KV_HEADS, FFN, LAYERS = 64, 4, 2, 96, 2
MERGES = ["a b", "ab c", "Ġ a", "Ġa b", "< |", "Ã ©"]
CONTROL = ["<|endoftext|>", "<|fim_middle|>", "ab<|file_sep|>"]
CONTROL_TYPES = [gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED, gguf.TokenType.UNUSED]
PADDING_ROWS = 12_000  # of the unused token_embd, so that a slice takes several chunks: some 3 MB


@dataclasses.dataclass(frozen=True, slots=True)
class TinyBase:
    """The file, its BaseSource in three parts, and what is in its vocabulary."""

    path: Path
    source: BaseSource
    tokens: tuple[str, ...]
    control_ids: tuple[int, ...]

    def slices(self) -> list[bytes]:
        """The bytes of each part."""
        content, begin, found = self.path.read_bytes(), 0, []
        for part in self.source.parts:
            found.append(content[begin : begin + part.size_bytes])
            begin += part.size_bytes
        return found


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> TinyBase:
    return make_tiny_base(tmp_path_factory.mktemp("tiny-base") / "tiny.gguf", separate_head=True)


@pytest.fixture(scope="session")
def tiny_base_with_tied_head(tmp_path_factory: pytest.TempPathFactory) -> TinyBase:
    return make_tiny_base(tmp_path_factory.mktemp("tiny-tied") / "tiny.gguf", separate_head=False)


def make_tiny_base(path: Path, *, separate_head: bool) -> TinyBase:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(merge.replace(" ", "") for merge in MERGES), *CONTROL]
    types = [gguf.TokenType.NORMAL] * (len(tokens) - len(CONTROL)) + CONTROL_TYPES
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    _add_tensors(writer, len(tokens), separate_head)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    control_ids = tuple(range(len(tokens) - len(CONTROL), len(tokens)))
    return TinyBase(path, describe(path), tuple(tokens), control_ids)


def describe(path: Path) -> BaseSource:
    content = path.read_bytes()
    third = len(content) // 3
    parts = tuple(
        WheelPart(
            distribution=f"tiny-weights-part{number}",
            version="1.0",
            entry=f"tiny_weights_part{number}/data/part{number:02}.bin",
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        for number, data in enumerate((content[:third], content[third : 2 * third], content[2 * third :]), 1)
    )
    return BaseSource(path.name, len(content), hashlib.sha256(content).hexdigest(), "tenon-tests/tiny", parts)


def _add_tensors(writer: gguf.GGUFWriter, vocabulary: int, separate_head: bool) -> None:
    random = numpy.random.default_rng(7)
    q8, q5, f16 = (gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q5_0", "F16"))

    def add(name: str, *shape: int, kind: gguf.GGMLQuantizationType | None = None) -> None:
        values = random.standard_normal(shape).astype(numpy.float32)
        if kind is None:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    if separate_head:
        add("output.weight", vocabulary, HIDDEN, kind=q8)
        add("token_embd.weight", PADDING_ROWS, HIDDEN)
    else:
        add("token_embd.weight", vocabulary, HIDDEN, kind=q5)
    keys = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm.weight", HIDDEN)
        add(f"{block}.ffn_down.weight", HIDDEN, FFN, kind=q8)
        add(f"{block}.ffn_gate.weight", FFN, HIDDEN, kind=q5)
        add(f"{block}.ffn_up.weight", FFN, HIDDEN, kind=q8)
        add(f"{block}.ffn_norm.weight", HIDDEN)
        for part, rows in (("k", keys), ("q", HIDDEN), ("v", keys)):
            add(f"{block}.attn_{part}.weight", rows, HIDDEN, kind=q5 if part == "k" else q8)
            add(f"{block}.attn_{part}.bias", rows)
        add(f"{block}.attn_output.weight", HIDDEN, HIDDEN, kind=f16)
    add("output_norm.weight", HIDDEN)
