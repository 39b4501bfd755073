"""Checkpoints of masked models as their makers publish them: what is loaded, and what is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine.models import tiny
from tests.engine.models.masked_models import (
    WRITERS,
    checkpoint_of,
    hole_of,
    last,
    loaded,
    placement_of,
    write_open_dcoder,
)
from torch import Tensor

from tenon_engine.config import EngineConfig
from tenon_engine.errors import EngineError, UnknownModelError, WeightsCorruptError
from tenon_engine.models.hub.vocabulary import special_id
from tenon_engine.models.masked.family import Length, family_of
from tenon_engine.models.masked.model import load
from tenon_engine.models.masked.weights import LLADA_NAMES, load_backbone
from tenon_engine.progress import silent

OUTER = "model.transformer"
OWN_CODE = """
import pathlib
import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

pathlib.Path({witness!r}).touch()

class OwnConfig(PreTrainedConfig):
    model_type = "llada"

class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = torch.nn.Module()
        self.model.transformer = torch.nn.Module()
        self.model.transformer.wte = torch.nn.Embedding(config.vocab_size, config.d_model)
        self.post_init()

    def forward(self, input_ids):
        embedded = self.model.transformer.wte(input_ids)
        return CausalLMOutput(logits=(embedded + embedded.mean(1, keepdim=True)) @ self.model.transformer.wte.weight.T)
"""


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    kept = {key: value for key, value in config.items() if value != "left out"}
    path.write_text(json.dumps(kept), encoding="utf-8")


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refusal(folder: Path, kind: type[EngineError] = WeightsCorruptError) -> str:
    with pytest.raises(kind) as caught:
        loaded(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "shifted", "length"),
    [
        ("llada", False, Length.SEARCH),
        ("dream", True, Length.SEARCH),
        ("dreamon", True, Length.EXPAND),
        ("open-dcoder", True, Length.SEARCH),
    ],
)
def test_a_checkpoint_says_which_family_it_is_of(
    name: str, shifted: bool, length: Length, tmp_path: Path
) -> None:
    checkpoint = checkpoint_of(WRITERS[name](tmp_path))
    family, control = family_of(checkpoint)
    assert (family.shifted, family.length) == (shifted, length)
    assert control.mask == special_id(checkpoint, "mask_token")
    assert control.begin == special_id(checkpoint, "bos_token") != control.end
    assert control.expand == special_id(checkpoint, "<|expand|>")
    assert control.delete == (control.end if length is Length.EXPAND else None)


def test_a_vocabulary_without_a_token_to_begin_with_begins_where_another_text_ended(tmp_path: Path) -> None:
    folder = write_open_dcoder(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | {"bos_token": None}), encoding="utf-8"
    )
    _, control = family_of(checkpoint_of(folder))
    assert control.begin == control.end
    assert last(loaded(folder), hole_of(""))


@pytest.mark.parametrize("name", WRITERS)
def test_weights_are_loaded_in_the_dtype_that_was_asked_for(name: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(WRITERS[name](tmp_path))
    backbone = load_backbone(checkpoint, placement_of(dtype=torch.bfloat16))
    assert {each.dtype for each in backbone.decoder.parameters()} == {torch.bfloat16}


def test_llada_with_biases_on_queries_keys_and_values_keeps_them(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_config(folder, include_qkv_bias=True)
    biases = {"q_proj": torch.ones(32), "k_proj": torch.ones(16), "v_proj": torch.ones(16)}
    named = {
        f"{OUTER}.blocks.{layer}.{name}.bias": bias.clone()
        for layer in range(tiny.LAYERS)
        for name, bias in biases.items()
    }
    change_tensors(folder, lambda tensors: tensors.update(named))
    decoder = load_backbone(checkpoint_of(folder), placement_of()).decoder
    found = {name: value for name, value in decoder.named_parameters() if name.endswith("bias")}
    assert len(found) == 3 * tiny.LAYERS
    assert all(bool((value == 1).all()) for value in found.values())


def test_llada_whose_head_is_its_embedding_has_one_matrix_for_both(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_config(folder, weight_tying=True)
    change_tensors(folder, lambda tensors: tensors.pop(f"{OUTER}.ff_out.weight"))
    backbone = load_backbone(checkpoint_of(folder), placement_of())
    wte = load_file(folder / "model.safetensors")[f"{OUTER}.wte.weight"]
    assert torch.equal(next(backbone.head.parameters()), wte)


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_tensors(folder, lambda tensors: tensors.pop(f"{OUTER}.blocks.1.attn_out.weight"))
    assert "model.layers.1.self_attn.o_proj.weight is missing" in refusal(folder)


def test_tensors_of_another_shape_are_named_with_both_shapes(tmp_path: Path) -> None:
    folder = tiny.write_dream(tmp_path)
    change_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(31)}))
    assert "model.norm.weight is 31, not 32" in refusal(folder)


def test_tensors_that_nothing_is_known_of_are_refused(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_tensors(folder, lambda tensors: tensors.update({f"{OUTER}.wpe.weight": torch.ones(2, 2)}))
    assert "wpe" in refusal(folder)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_dream(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "cannot be loaded" in refusal(folder)


def test_a_tokenizer_with_more_ids_than_the_weights_have_rows_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_dream(tmp_path)
    rows = 200
    change_config(folder, vocab_size=rows)
    cut = ("model.embed_tokens.weight", "lm_head.weight")
    change_tensors(
        folder, lambda tensors: tensors.update({name: tensors[name][:rows].clone() for name in cut})
    )
    assert "ids" in refusal(folder)


def test_a_mask_beyond_the_rows_of_the_weights_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_config(folder, mask_token_id=126336)
    assert "126336" in refusal(folder)


@pytest.mark.parametrize(
    "changes", [{"d_model": "left out"}, {"d_model": "wide"}, {"n_heads": 0}, {"max_sequence_length": None}]
)
def test_settings_that_make_no_network_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_config(folder, **changes)
    assert refusal(folder)


@pytest.mark.parametrize(
    "changes", [{"block_type": "sequential"}, {"alibi": True}, {"layer_norm_type": "default"}]
)
def test_settings_that_these_blocks_do_not_have_are_named(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_config(folder, **changes)
    assert next(iter(changes)) in refusal(folder, UnknownModelError)


def test_a_model_that_writes_from_left_to_right_is_no_masked_one(tmp_path: Path) -> None:
    folder = write_open_dcoder(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del settings["mask_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert "no mask token" in refusal(folder, UnknownModelError)


def test_an_architecture_that_is_not_on_the_list_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_llada(tmp_path)
    change_config(folder, architectures=["BertForMaskedLM"])
    assert "BertForMaskedLM" in refusal(folder, UnknownModelError)


def test_the_names_of_llada_lead_to_every_tensor_of_a_llama(tmp_path: Path) -> None:
    backbone = load_backbone(checkpoint_of(tiny.write_llada(tmp_path)), placement_of())
    inner = {name.partition(".")[2] for name in LLADA_NAMES.values()}
    assert len(inner) == len(LLADA_NAMES)
    assert len(dict(backbone.decoder.named_parameters())) == 2 + 9 * tiny.LAYERS


def test_the_code_of_a_checkpoint_runs_only_for_a_name_that_the_user_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, witness = tiny.write_llada(tmp_path / "model"), tmp_path / "ran"
    (folder / "own.py").write_text(OWN_CODE.format(witness=str(witness)), encoding="utf-8")
    change_config(folder, auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"})
    assert last(loaded(folder), hole_of())
    assert last(loaded(folder, trusted_models=("another/model",)), hole_of())
    assert not witness.exists()
    change_tensors(folder, _only_the_embedding)
    model = load(checkpoint_of(folder), placement_of(), EngineConfig(trusted_models=("tiny",)), silent)
    assert witness.exists()
    assert last(model, hole_of(candidates=2)).slots
    assert model.score(hole_of(), "x = 1", lambda: None).finished


def _only_the_embedding(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name != f"{OUTER}.wte.weight"]:
        del tensors[name]
