"""The tokenizers of checkpoints: exact to the byte, blind to control tokens, healed at word boundaries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.models import tiny

from tenon_engine.errors import WeightsCorruptError
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.vocabulary import check_ids, load_tokenizer, special_id
from tenon_engine.tokenizer import HEALED_TOKENS_MAX, BpeTokenizer

KINDS = ("llada", "dream", "lists", "gemma")


def checkpoint_of(folder: Path) -> Checkpoint:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Checkpoint(str(folder), folder, config["architectures"][0], config)


def spread(folder: Path) -> Path:
    """Leave the vocabulary in the files that the checkpoints of Dream come with."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = tokenizer["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("vocabularies")
    return {
        "llada": tiny.write_llada(base / "llada"),
        "dream": tiny.write_dream(base / "dream"),
        "lists": spread(tiny.write_dream(base / "lists", dreamon=True)),
        "gemma": tiny.write_diffusion_gemma(base / "gemma"),
    }


@pytest.fixture(scope="module")
def vocabularies(folders: dict[str, Path]) -> dict[str, BpeTokenizer]:
    return {kind: load_tokenizer(checkpoint_of(folder)) for kind, folder in folders.items()}


TEXTS = st.text() | st.lists(
    st.sampled_from(
        ["▁", " ", "  ", "\n", "\r\n", "e\u0301", "<0x41>", "<eos>", "<|mask|>", "<table>", "return", "🚀"]
    )
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_any_text_survives_the_vocabulary_to_the_byte(
    vocabularies: dict[str, BpeTokenizer], kind: str, text: str
) -> None:
    tokenizer = vocabularies[kind]
    assert tokenizer.to_bytes(tokenizer.encode(text)) == text.encode()
    kept, healed = tokenizer.encode_for_hole(text)
    assert tokenizer.to_bytes([*kept, *healed]) == text.encode()
    assert len(healed) <= HEALED_TOKENS_MAX


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_longer_than_a_character_are_used(vocabularies: dict[str, BpeTokenizer], kind: str) -> None:
    assert len(vocabularies[kind].encode("return")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_token_has_no_bytes_and_its_spelling_is_plain_text(
    folders: dict[str, Path], vocabularies: dict[str, BpeTokenizer], kind: str
) -> None:
    tokenizer, checkpoint = vocabularies[kind], checkpoint_of(folders[kind])
    names = {"gemma": (*tiny.GEMMA_CONTROL.values(), *tiny.GEMMA_TURNS), "llada": tiny.LLADA_CONTROL.values()}
    for text in names.get(kind, tiny.DREAM_CONTROL.values()):
        token_id = special_id(checkpoint, text)
        assert token_id is not None
        assert tokenizer.to_bytes([token_id]) == b""
        assert token_id not in tokenizer.encode(f"a {text} b")


def test_control_tokens_are_found_by_their_role_and_by_their_text(folders: dict[str, Path]) -> None:
    checkpoint = checkpoint_of(folders["lists"])
    assert (
        special_id(checkpoint, "mask_token")
        == special_id(checkpoint, "<|mask|>")
        == checkpoint.config["mask_token_id"]
    )
    assert (
        special_id(checkpoint, "pad_token")
        == special_id(checkpoint, "eos_token")
        == checkpoint.config["eos_token_id"]
    )
    assert special_id(checkpoint, "<|expand|>") is not None
    assert special_id(checkpoint, "sep_token") is None
    assert special_id(checkpoint_of(folders["gemma"]), "eos_token") == 1


def test_a_role_may_be_given_with_more_than_its_text(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["dream"], tmp_path / "copy"))
    (folder / "tokenizer_config.json").unlink()
    roles = {"mask_token": {"content": "<|mask|>", "lstrip": False}}
    (folder / "special_tokens_map.json").write_text(json.dumps(roles), encoding="utf-8")
    assert special_id(checkpoint_of(folder), "mask_token") == special_id(
        checkpoint_of(folders["dream"]), "<|mask|>"
    )


@pytest.mark.parametrize(
    ("prefix", "healed"),
    [
        ("def f():\n    return", "    return"),
        ("x = retu", " retu"),
        ("f(re", "(re"),
        ("x = f(", "("),
        ("x = ", " "),
        ("def f():\n    ", "    "),
        ("def f():\n", ""),
        ("", ""),
        ("a += ", " "),
        ("x. π", " π"),
    ],
)
def test_a_prefix_is_taken_back_to_the_start_of_its_last_word(
    vocabularies: dict[str, BpeTokenizer], prefix: str, healed: str
) -> None:
    tokenizer = vocabularies["gemma"]
    assert tokenizer.to_bytes(tokenizer.encode_for_hole(prefix)[1]).decode() == healed


def test_both_kinds_take_the_same_word_back(vocabularies: dict[str, BpeTokenizer]) -> None:
    for prefix in ("x = return", "a.de", "(1, re", "x  ", "y =="):
        healed = {
            kind: vocabularies[kind].to_bytes(vocabularies[kind].encode_for_hole(prefix)[1])
            for kind in ("dream", "gemma")
        }
        assert healed["dream"] == healed["gemma"], prefix


def test_tokens_that_agree_with_a_rest_are_those_of_both_spellings(
    vocabularies: dict[str, BpeTokenizer],
) -> None:
    tokenizer = vocabularies["gemma"]
    found = {tokenizer.to_bytes([int(token)]) for token in tokenizer.agreeing(b" re")}
    assert found == {b" ", b" r", b" return"}


def test_ids_beyond_the_embedding_are_refused(vocabularies: dict[str, BpeTokenizer]) -> None:
    tokenizer = vocabularies["gemma"]
    rows = tokenizer.id_count
    check_ids(tokenizer, rows, (0, rows - 1))
    with pytest.raises(WeightsCorruptError, match="two different models"):
        check_ids(tokenizer, rows - 1, ())
    for control in ((-1,), (0, rows)):
        with pytest.raises(WeightsCorruptError, match="the control tokens go from"):
            check_ids(tokenizer, rows, control)


@pytest.mark.parametrize("listed", [[], 5, {"x": {}}, {"1": "a"}, {"x": {"content": "q"}}])
def test_a_damaged_list_of_added_tokens_is_one_sentence(
    folders: dict[str, Path], tmp_path: Path, listed: object
) -> None:
    folder = Path(shutil.copytree(folders["gemma"], tmp_path / "copy"))
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"added_tokens_decoder": None}), encoding="utf-8")
    assert special_id(checkpoint_of(folder), "eos_token") is not None
    path.write_text(json.dumps(config | {"added_tokens_decoder": listed}), encoding="utf-8")
    if listed:
        with pytest.raises(WeightsCorruptError, match=r"tokenizer_config\.json is damaged"):
            special_id(checkpoint_of(folder), "eos_token")


def test_an_id_far_beyond_the_vocabulary_takes_no_memory(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["gemma"], tmp_path / "copy"))
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["added_tokens"].append({"id": 1 << 40, "content": "<far>", "special": True})
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(WeightsCorruptError, match="damaged"):
        load_tokenizer(checkpoint_of(folder))


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"model": {"type": "WordPiece", "vocab": {}}, "added_tokens": []}', "\0"]
)
def test_a_damaged_tokenizer_is_one_sentence(folders: dict[str, Path], tmp_path: Path, content: str) -> None:
    folder = Path(shutil.copytree(folders["dream"], tmp_path / "copy"))
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(WeightsCorruptError, match="damaged"):
        load_tokenizer(checkpoint_of(folder))


def test_a_checkpoint_without_any_tokenizer_is_one_sentence(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["dream"], tmp_path / "copy"))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WeightsCorruptError, match="has no tokenizer"):
        load_tokenizer(checkpoint_of(folder))


def test_a_vocabulary_that_loses_bytes_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["gemma"], tmp_path / "copy"))
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["byte_fallback"] = False
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(WeightsCorruptError, match="not supported"):
        load_tokenizer(checkpoint_of(folder))
