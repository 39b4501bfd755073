"""The tensors of a masked checkpoint, put into transformers' own Llama or Qwen2 blocks, attending in both directions.

Owns the names and settings that original checkpoints have, and where they go. Knows no tokens and no canvases. A
checkpoint's own code is run only by `load_own_code`, for the models whose names the user trusts.

LLaDA turns keys and queries by their places in f32 whatever its weights are; these blocks do it in the weights' own
type, as they do for every Llama.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tenon_engine.errors import UnknownModelError, WeightsCorruptError
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.placement import Placement
from tenon_engine.models.hub.readable import readable

LLADA_NAMES = {
    r"^model\.transformer\.wte\.": "model.embed_tokens.",
    r"^model\.transformer\.ln_f\.": "model.norm.",
    r"^model\.transformer\.ff_out\.": "lm_head.",
    **{
        rf"^model\.transformer\.blocks\.(\d+)\.{theirs}\.": rf"model.layers.\1.{ours}."
        for theirs, ours in {
            "attn_norm": "input_layernorm",
            "q_proj": "self_attn.q_proj",
            "k_proj": "self_attn.k_proj",
            "v_proj": "self_attn.v_proj",
            "attn_out": "self_attn.o_proj",
            "ff_norm": "post_attention_layernorm",
            "ff_proj": "mlp.gate_proj",
            "up_proj": "mlp.up_proj",
            "ff_out": "mlp.down_proj",
        }.items()
    },
}
LLADA_SETTINGS: Mapping[str, tuple[Any, ...]] = {  # what these blocks do, of what its settings allow
    "block_type": ("llama",),
    "layer_norm_type": ("rms",),
    "activation_type": ("silu",),
    "block_group_size": (1,),
    "rope": (True,),
    "alibi": (False,),
    "include_bias": (False,),
    "bias_for_layer_norm": (False, None),
    "attention_layer_norm": (False,),
    "input_emb_norm": (False,),
    "scale_logits": (False,),
}
QWEN2_SETTINGS: Mapping[str, tuple[Any, ...]] = {"use_sliding_window": (False, None), "hidden_act": ("silu",)}
QWEN2_KEYS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "rms_norm_eps", "max_position_embeddings", "tie_word_embeddings"),
)
QWEN2_OPTIONAL_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")


@dataclasses.dataclass(frozen=True, slots=True)
class Backbone:
    """A checkpoint's network: `decoder` gives hidden states, `head` logits."""

    decoder: nn.Module
    head: nn.Module


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Which blocks a checkpoint goes into, with which settings, and how its tensors are renamed."""

    blocks: str  # "Llama" or "Qwen2": how transformers' classes begin
    settings: Mapping[str, Any]
    names: Mapping[str, str]


def load_backbone(checkpoint: Checkpoint, placement: Placement) -> Backbone:
    """The network of a checkpoint in our allow-list. WeightsCorruptError, or UnknownModelError for odd settings."""
    import transformers

    with readable(checkpoint.name):
        plan = _PLANS[checkpoint.architecture](checkpoint)
        config = getattr(transformers, f"{plan.blocks}Config")(**plan.settings, is_causal=False)
        if "quantization_config" in checkpoint.config:
            config.quantization_config = checkpoint.config["quantization_config"]
        model, report = getattr(transformers, f"{plan.blocks}ForCausalLM").from_pretrained(
            checkpoint.folder,
            config=config,
            key_mapping=dict(plan.names),
            ignore_mismatched_sizes=True,  # they are in the report
            output_loading_info=True,
            attn_implementation=placement.attention,
            **_placed(placement),
        )
    _require_whole(checkpoint, report)
    return Backbone(model.model, model.lm_head)


def load_own_code(checkpoint: Checkpoint, placement: Placement) -> nn.Module:
    """The checkpoint's own class, run from its folder: for models whose names the user has put on the list alone."""
    import transformers

    with readable(checkpoint.name):
        model: nn.Module = transformers.AutoModel.from_pretrained(
            checkpoint.folder, trust_remote_code=True, **_placed(placement)
        )
    return model


def rows_of(checkpoint: Checkpoint) -> int:
    """How many ids the weights are for."""
    return _number(checkpoint, "embedding_size", "vocab_size")


def places_of(checkpoint: Checkpoint) -> int:
    """How many places a window may have."""
    return _number(checkpoint, "max_sequence_length", "max_position_embeddings")


def _number(checkpoint: Checkpoint, *keys: str) -> int:
    """The first of these settings that is a number: families spell them differently."""
    for key in keys:
        value = checkpoint.config.get(key)
        if isinstance(value, int) and value > 0:
            return value
    raise WeightsCorruptError(f"config.json of {checkpoint.name} is damaged: it has no {' or '.join(keys)}")


def _placed(placement: Placement) -> dict[str, Any]:
    """What `from_pretrained` is told of a placement; pickled weights are never read."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what is wrong with a checkpoint is said in one sentence, by us
    quantization = placement.quantization
    return {
        "dtype": placement.dtype,
        "use_safetensors": True,
        "local_files_only": True,
        **({} if placement.device == "cpu" else {"device_map": placement.device}),
        **({} if quantization is None else {"quantization_config": dict(quantization)}),
    }


def _require_whole(checkpoint: Checkpoint, report: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose tensors are not those its settings ask for."""
    missing, odd = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    unknown = sorted(report["unexpected_keys"])
    if odd:
        name, found, wanted = odd[0]
        fault = f"{name} is {_spelt(found)}, not {_spelt(wanted)}"
    elif missing:
        fault = f"{missing[0]} is missing" + (f", with {len(missing) - 1} others" if missing[1:] else "")
    elif unknown:
        fault = f"nothing is known of {unknown[0]}"
    elif report["error_msgs"]:
        fault = str(report["error_msgs"][0]).partition("\n")[0]
    else:
        return
    raise WeightsCorruptError(f"the weights of {checkpoint.name} do not fit its config.json: {fault}")


def _spelt(shape: torch.Size) -> str:
    return "x".join(map(str, shape))


def _llada(checkpoint: Checkpoint) -> _Plan:
    """LLaDA is a Llama by other names; with biases on queries, keys and values alone it is a Qwen2."""
    config = checkpoint.config
    _require_settings(checkpoint, LLADA_SETTINGS)
    heads = config["n_heads"]
    feed_forward, key_value_heads = config.get("mlp_hidden_size"), config.get("n_kv_heads")
    if key_value_heads is None:
        key_value_heads = 1 if config.get("multi_query_attention") else heads
    has_bias = config.get("include_qkv_bias", False)
    settings = {
        "vocab_size": config.get("embedding_size") or config["vocab_size"],
        "hidden_size": config["d_model"],
        "intermediate_size": config["mlp_ratio"] * config["d_model"]
        if feed_forward is None
        else feed_forward,
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
        "rope_parameters": {"rope_type": "default", "rope_theta": config.get("rope_theta", 10_000.0)},
        "max_position_embeddings": config["max_sequence_length"],
        "tie_word_embeddings": config.get("weight_tying", True),
    }
    return _Plan("Qwen2" if has_bias else "Llama", settings, LLADA_NAMES)


def _qwen2(checkpoint: Checkpoint) -> _Plan:
    """Dream and Open-dCoder are a Qwen2 to the letter."""
    config = checkpoint.config
    _require_settings(checkpoint, QWEN2_SETTINGS)
    settings = {key: config[key] for key in QWEN2_KEYS}
    settings |= {key: config[key] for key in QWEN2_OPTIONAL_KEYS if config.get(key) is not None}
    return _Plan("Qwen2", settings, {})


def _require_settings(checkpoint: Checkpoint, settings: Mapping[str, tuple[Any, ...]]) -> None:
    for key, values in settings.items():
        value = checkpoint.config.get(key, values[0])
        if value not in values:
            raise UnknownModelError(
                f"{checkpoint.name} has {key} = {value}, which is not supported (put its name into "
                "engine.trusted_models to run the code that comes with it)"
            )


_PLANS: Mapping[str, Callable[[Checkpoint], _Plan]] = {
    "LLaDAModelLM": _llada,
    "DreamModel": _qwen2,
    "Qwen2ForCausalLM": _qwen2,
}
