"""The tokenizer of a checkpoint, made exact: byte-level BPE (Qwen, LLaDA) and SentencePiece-style BPE (Gemma).

What rewrites text, or reads control tokens out of it, is taken out of the checkpoint's own tokenizer, so that the bytes
of the ids are the bytes of the text, whatever the text is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from tenon_engine.base_convert import PRE_TOKENIZER_PATTERN, byte_of_character
from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.json_file import read_json
from tenon_engine.tokenizer import HEALED_TOKENS_MAX, BpeTokenizer, TokenTable, core_of

SPACE = "▁"  # U+2581, what SentencePiece writes for a space
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
IDS_PER_PIECE_MAX = 4  # with more gaps than that, an id is wrong
WORD_CHARACTERS_MAX = 64  # of a prefix that are looked at for its last word; more tokens are never healed

# The last word as a byte-level vocabulary cuts it: a name and one character before it, signs, or blanks.
_LAST_WORD = re.compile(r"(?:[^\w\r\n]?\w+| ?[^\w\s]+|[^\S\r\n]+)\Z")

# Added tokens that stand for no text, though some vocabularies do not say so.
_RESERVED = re.compile(r"<unused\d+>|<\|.*|.*\|>")

# Every byte that UTF-8 can have.
_PROBE = "".join(
    map(chr, (*range(0x801), *range(0x1000, 0x10000, 0x1000), *range(0x10000, 0x110000, 0x10000)))
)


class PieceTokenizer(BpeTokenizer):
    """A SentencePiece-style BPE vocabulary: pieces with `▁` for a space, single bytes for what no piece spells."""

    def __init__(self, core: tokenizers.Tokenizer, table: TokenTable) -> None:
        super().__init__(core, table)
        space_ids = [core.token_to_id(BYTE_PIECES[byte]) for byte in SPACE.encode()]
        self._space_ids = [token_id for token_id in space_ids if token_id is not None]

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; a `▁` of the text itself is spelt by its bytes, or it would come back as a space."""
        first, *others = text.split(SPACE)
        ids = super().encode(first)
        for part in others:
            ids += [*self._space_ids, *super().encode(part)]
        return ids

    def encode_for_hole(self, prefix: str) -> tuple[list[int], list[int]]:
        """Split at the start of the last word, a few tokens back at most.

        The vocabulary knows no words: one is what a byte-level vocabulary would cut, and a token that it ends in is
        taken back whole. A line end is a boundary of its own.
        """
        ids = self.encode(prefix)
        word = _LAST_WORD.search(prefix[-WORD_CHARACTERS_MAX:])
        left_bytes = len(word[0].encode()) if word else 0
        start = len(ids)
        while left_bytes > 0 and len(ids) - start < HEALED_TOKENS_MAX:
            start -= 1
            left_bytes -= len(self.to_bytes(ids[start : start + 1]))
        return ids[:start], ids[start:]


def load_tokenizer(checkpoint: Checkpoint) -> BpeTokenizer:
    """The vocabulary of a checkpoint; WeightsCorruptError when it is missing, damaged or of another kind."""
    folder = checkpoint.folder
    parts = read_json(folder / "tokenizer.json") or _parts_of_lists(folder)
    try:
        tokenizer = _build(parts)
        text = "".join([_PROBE, SPACE, *BYTE_PIECES, *(token["content"] for token in parts["added_tokens"])])
        exact = tokenizer.to_bytes(tokenizer.encode(text)) == text.encode()
    except (KeyError, TypeError, ValueError, AttributeError):
        exact = False
    if not exact:
        raise WeightsCorruptError(f"the tokenizer in {folder} is damaged, or of a kind that is not supported")
    return tokenizer


def check_ids(tokenizer: BpeTokenizer, rows: int, control: Collection[int]) -> None:
    """Refuse ids of text or of control tokens that are no rows of the embedding: they are of another checkpoint."""
    if tokenizer.id_count > rows:
        raise WeightsCorruptError(
            f"the tokenizer has {tokenizer.id_count} ids, but the weights are for {rows}: "
            "they are of two different models, get the checkpoint again"
        )
    if not all(0 <= token < rows for token in control):
        raise WeightsCorruptError(
            f"the control tokens go from {min(control)} to {max(control)}, but the weights are for {rows} ids: "
            "get the checkpoint again"
        )


def special_id(checkpoint: Checkpoint, name: str) -> int | None:
    """The id of a control token, by its role (`mask_token`, `eos_token`, …) or by its text; None without one.

    WeightsCorruptError where the lists of such tokens are damaged.
    """
    folder = checkpoint.folder
    text: object = name
    for file_name in ("special_tokens_map.json", "tokenizer_config.json"):
        text = read_json(folder / file_name).get(name) or text
    if isinstance(text, Mapping):
        text = text.get("content")
    if not isinstance(text, str):
        return None
    if (listed := _listed_ids(folder).get(text)) is not None:
        return listed
    with _listed(folder / "tokenizer.json") as parts:
        return next(
            (int(token["id"]) for token in parts.get("added_tokens") or () if token["content"] == text), None
        )


def token_table(texts: Sequence[bytes]) -> TokenTable:
    """The table of these bytes, one entry per id; b"" for an id that spells nothing."""
    offsets = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    order = sorted(
        (index for index, text in enumerate(texts) if text), key=lambda index: (texts[index], index)
    )
    return TokenTable(
        np.frombuffer(b"".join(texts), dtype=np.uint8), offsets, np.asarray(order, dtype=np.int32)
    )


def _parts_of_lists(folder: Path) -> dict[str, Any]:
    """What tokenizer.json would hold, for checkpoints that come with vocab.json and merges.txt: those of Dream."""
    vocabulary = read_json(folder / "vocab.json")
    try:
        merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        merges = []
    if not vocabulary or not merges:
        raise WeightsCorruptError(f"{folder} has no tokenizer (tokenizer.json, or vocab.json and merges.txt)")
    split = {
        "type": "Split",
        "pattern": {"Regex": PRE_TOKENIZER_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    listed = _listed_ids(folder)
    return {
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [line for line in merges if len(line.split(" ")) == 2],
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]},
        "added_tokens": [{"id": listed[text], "content": text, "special": True} for text in listed],
    }


def _listed_ids(folder: Path) -> dict[str, int]:
    """The added tokens that are listed outside of tokenizer.json, if any are."""
    with _listed(folder / "tokenizer_config.json") as config:
        decoder = config.get("added_tokens_decoder") or {}
        found = {token["content"]: int(token_id) for token_id, token in decoder.items()}
    with _listed(folder / "added_tokens.json") as added:
        return found | {text: int(token_id) for text, token_id in added.items()}


@contextmanager
def _listed(path: Path) -> Iterator[dict[str, Any]]:
    """What a file lists, to be read inside."""
    try:
        yield read_json(path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightsCorruptError(f"{path} is damaged: get the checkpoint again") from error


def _build(parts: Mapping[str, Any]) -> BpeTokenizer:
    model, added, splitter = parts["model"], parts["added_tokens"], parts["pre_tokenizer"]
    vocabulary: Mapping[str, int] = model["vocab"]
    by_bytes = any(step["type"] == "ByteLevel" for step in _steps(splitter))
    literal = [] if by_bytes else [token for token in added if _is_text(token, vocabulary)]
    control = (
        {token["content"] for token in added} - {token["content"] for token in literal} - set(BYTE_PIECES)
    )
    control.add(model.get("unk_token") or "")
    id_count = 1 + max(*vocabulary.values(), *(token["id"] for token in added))
    if id_count > IDS_PER_PIECE_MAX * (len(vocabulary) + len(added)):
        raise ValueError(f"{id_count} ids for {len(vocabulary)} pieces")
    pieces = [""] * id_count
    for piece, index in vocabulary.items():
        pieces[index] = "" if piece in control else piece
    if by_bytes:
        for step in _steps(splitter):
            step |= {"add_prefix_space": False} if step["type"] == "ByteLevel" else {}
        return BpeTokenizer(
            _core(model, normalizer=None, splitter=splitter, literal=[]),
            token_table(_bytes_of_characters(pieces)),
        )
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return PieceTokenizer(
        _core(model, normalizer=spaces, splitter=None, literal=literal), token_table(_bytes_of_pieces(pieces))
    )


def _steps(splitter: Any) -> list[dict[str, Any]]:
    """The pre-tokenizer as a list of simple ones."""
    if splitter is None:
        return []
    return (
        [step for part in splitter["pretokenizers"] for step in _steps(part)]
        if "pretokenizers" in splitter
        else [splitter]
    )


def _is_text(token: Mapping[str, Any], vocabulary: Mapping[str, int]) -> bool:
    """Whether an added token of a SentencePiece vocabulary stands for the text it is spelt as."""
    text: str = token["content"]
    return (
        not token["special"]
        and text in vocabulary
        and text not in BYTE_PIECES
        and not _RESERVED.fullmatch(text)
    )


def _core(
    model: Mapping[str, Any], *, normalizer: Any, splitter: Any, literal: Sequence[Any]
) -> tokenizers.Tokenizer:
    empty = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    steps = {"normalizer": normalizer, "pre_tokenizer": splitter, "model": {**model, "dropout": None}}
    return core_of(json.dumps({"version": "1.0", **empty, **steps, "added_tokens": literal}))


def _bytes_of_characters(pieces: Sequence[str]) -> list[bytes]:
    """What the pieces of a byte-level vocabulary spell; one that is not in its alphabet spells nothing."""
    byte_of = byte_of_character()
    return [
        bytes(byte_of[char] for char in piece) if byte_of.keys() >= set(piece) else b"" for piece in pieces
    ]


def _bytes_of_pieces(pieces: Sequence[str]) -> list[bytes]:
    bytes_of = {piece: bytes([byte]) for byte, piece in enumerate(BYTE_PIECES)}
    return [bytes_of.get(piece) or piece.replace(SPACE, " ").encode() for piece in pieces]
