"""Conversion of the embedded model's GGUF file, once, into what the engine memory-maps at every start.

Owns the converted format: a safetensors file (weights, token tables, hyperparameters) and a tokenizer.json.
Does not know where files live, who fetched them, or whether the GGUF file is the right one.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tenon_engine.base_fetch import appearing_complete
from tenon_engine.progress import Progress

if TYPE_CHECKING:
    import numpy
    from gguf import GGUFReader
    from numpy.typing import NDArray

FORMAT_VERSION = "1"
PRE_TOKENIZER_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NORMAL_TOKEN = 1  # every other GGUF token type is a control, reserved or unused id
_CHUNK_VALUES = 8 << 20  # 32 MB as float32: what bounds the memory of a large tensor
_MAX_HEADER_BYTES = 1 << 20
_DATA_ALIGNMENT = 64  # of the first byte of data, so that a mapped tensor starts on a cache line


class Dtype(enum.Enum):
    """Number format of the converted weights; the value is part of the file's name."""

    BF16 = "bf16"
    F32 = "f32"

    @property
    def bytes_per_value(self) -> int:
        """Size of one weight."""
        return 2 if self is Dtype.BF16 else 4


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the converted file: either GGUF tensors stacked by rows, or a ready table."""

    name: str
    dtype: str  # safetensors name
    shape: tuple[int, ...]
    size_bytes: int
    stacked: tuple[str, ...] = ()
    table: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class _Vocabulary:
    """Tokens in the GPT-2 byte alphabet by id, None for ids that stand for no text, and the merges."""

    tokens: tuple[str | None, ...]
    merges: tuple[tuple[str, str], ...]


def convert(
    gguf: Path, weights: Path, tokenizer: Path, *, dtype: Dtype, source_sha256: str, progress: Progress
) -> None:
    """Write both converted files; each appears under its name only when it is complete."""
    from gguf import GGUFReader

    progress("convert", 0, 0)  # reading the metadata takes seconds
    reader = GGUFReader(gguf)
    vocabulary = _read_vocabulary(reader)
    hyperparameters = _read_hyperparameters(reader)
    reader.fields.clear()  # some 400 MB of small arrays, read by now
    with appearing_complete(tokenizer) as path:
        write_tokenizer(path, vocabulary.tokens, vocabulary.merges)
    metadata = {
        "format_version": FORMAT_VERSION,
        "source_sha256": source_sha256,
        "hyperparameters": json.dumps(hyperparameters),
    }
    entries = [*_weight_entries(reader, hyperparameters["layers"], dtype), *_table_entries(vocabulary)]
    with appearing_complete(weights) as path, path.open("wb") as file:
        file.write(_header(entries, metadata))
        _write_entries(file, reader, entries, dtype, progress)
        file.flush()
        os.fsync(file.fileno())


def _read_vocabulary(reader: GGUFReader) -> _Vocabulary:
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    return _Vocabulary(
        tokens=tuple(
            token if kind == _NORMAL_TOKEN else None for token, kind in zip(tokens, types, strict=True)
        ),
        merges=tuple((left, right) for left, _, right in (merge.partition(" ") for merge in merges)),
    )


def _read_hyperparameters(reader: GGUFReader) -> dict[str, Any]:
    def value(name: str) -> Any:
        return reader.fields[f"qwen2.{name}"].contents()

    hidden, heads = value("embedding_length"), value("attention.head_count")
    return {
        "layers": value("block_count"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": value("attention.head_count_kv"),
        "head_width": hidden // heads,
        "ffn": value("feed_forward_length"),
        "rope_theta": value("rope.freq_base"),
        "rms_eps": float(f"{value('attention.layer_norm_rms_epsilon'):.6g}"),  # stored as float32
        "vocabulary": len(reader.fields["tokenizer.ggml.tokens"].data),
    }


def is_intact(weights: Path, *, source_sha256: str) -> bool:
    """Whether the header is one this version wrote and the file is exactly as long as it says."""
    try:
        with weights.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                return False
            description = json.loads(file.read(length))
            size_bytes = os.fstat(file.fileno()).st_size
        metadata = dict(description.pop("__metadata__"))
        end = max(entry["data_offsets"][1] for entry in description.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    expected = {"format_version": FORMAT_VERSION, "source_sha256": source_sha256}
    return {key: metadata.get(key) for key in expected} == expected and size_bytes == 8 + length + end


def write_tokenizer(path: Path, tokens: Sequence[str | None], merges: Sequence[tuple[str, str]]) -> None:
    """Byte-level BPE without special tokens and without a normalizer: the user's text stays byte-exact."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate(tokens) if token is not None}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path), pretty=False)


def _weight_entries(reader: GGUFReader, layers: int, dtype: Dtype) -> list[_Entry]:
    shapes = {tensor.name: tuple(int(n) for n in reversed(tensor.shape)) for tensor in reader.tensors}

    def entry(name: str, *stacked: str) -> _Entry:
        rows = sum(shapes[part][0] for part in stacked)
        shape = (rows, *shapes[stacked[0]][1:])
        size_bytes = math.prod(shape) * dtype.bytes_per_value
        return _Entry(name, dtype.name, shape, size_bytes, stacked=stacked)

    entries = []
    for layer in range(layers):
        ours, theirs = f"layers.{layer}", f"blk.{layer}"
        attention = [f"{theirs}.attn_{part}" for part in "qkv"]
        entries += [
            entry(f"{ours}.attn_norm", f"{theirs}.attn_norm.weight"),
            entry(f"{ours}.qkv.weight", *(f"{part}.weight" for part in attention)),
            entry(f"{ours}.qkv.bias", *(f"{part}.bias" for part in attention)),
            entry(f"{ours}.o.weight", f"{theirs}.attn_output.weight"),
            entry(f"{ours}.ffn_norm", f"{theirs}.ffn_norm.weight"),
            entry(f"{ours}.gate_up.weight", f"{theirs}.ffn_gate.weight", f"{theirs}.ffn_up.weight"),
            entry(f"{ours}.down.weight", f"{theirs}.ffn_down.weight"),
        ]
    head = "output.weight" if "output.weight" in shapes else "token_embd.weight"
    return [*entries, entry("output_norm", "output_norm.weight"), entry("output.weight", head)]


def _table_entries(vocabulary: _Vocabulary) -> list[_Entry]:
    """What the tokenizer looks bytes up in: offsets, ids sorted by their bytes, and the bytes themselves."""
    import numpy

    byte_of = byte_of_character()
    texts = [bytes(byte_of[character] for character in token or "") for token in vocabulary.tokens]
    offsets = numpy.zeros(len(texts) + 1, dtype="<i4")
    numpy.cumsum([len(text) for text in texts], out=offsets[1:])
    order = sorted((i for i, text in enumerate(texts) if text), key=lambda i: (texts[i], i))
    all_bytes = b"".join(texts)
    return [
        _Entry("token_offsets", "I32", (len(offsets),), offsets.nbytes, table=offsets.tobytes()),
        _Entry(
            "token_order", "I32", (len(order),), 4 * len(order), table=numpy.array(order, "<i4").tobytes()
        ),
        _Entry("token_bytes", "U8", (len(all_bytes),), len(all_bytes), table=all_bytes),
    ]


def byte_of_character() -> dict[str, int]:
    """The GPT-2 alphabet: printable Latin-1 is itself, the other bytes are U+0100 onwards, in order."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _header(entries: Sequence[_Entry], metadata: dict[str, str]) -> bytes:
    description: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for entry in entries:
        begin, end = end, end + entry.size_bytes
        description[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [begin, end]}
    text = json.dumps(description, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _DATA_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write_entries(
    file: BinaryIO, reader: GGUFReader, entries: Sequence[_Entry], dtype: Dtype, progress: Progress
) -> None:
    done_bytes, total_bytes = 0, sum(entry.size_bytes for entry in entries)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for entry in entries:
        file.write(entry.table)
        done_bytes += len(entry.table)
        for name in entry.stacked:
            for values in _chunks(tensors[name]):
                done_bytes += file.write(_encode(values, dtype))
                progress("convert", done_bytes, total_bytes)
    progress("convert", total_bytes, total_bytes)


def _chunks(tensor: Any) -> Iterator[NDArray[numpy.float32]]:
    """The dequantised rows of a GGUF tensor, a bounded number at a time."""
    from gguf import dequantize

    columns = int(tensor.shape[0]) if len(tensor.shape) > 1 else 1
    rows = max(1, _CHUNK_VALUES // columns)
    for first in range(0, len(tensor.data), rows):
        yield dequantize(tensor.data[first : first + rows], tensor.tensor_type)


def _encode(values: NDArray[numpy.float32], dtype: Dtype) -> bytes:
    """Little-endian bytes; bf16 rounds to nearest, ties to even, as torch does."""
    import numpy

    if dtype is Dtype.F32:
        return values.astype("<f4", copy=False).tobytes()
    bits = numpy.array(values, dtype="<f4").view("<u4")
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).astype("<u2").tobytes()
