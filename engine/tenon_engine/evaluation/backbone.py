"""What a model is made of, read from its checkpoint's config alone: matrices, experts, what a token leaves in a cache.

Counts the weights of matrices; norms, biases and scales are less than a thousandth of them. Knows no device, no
number format, and not how a model is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tenon_engine.errors import BadRequestError

GLOBAL_HEAD_WIDTH = 512  # of DiffusionGemma's full layers where the config does not say
EMBEDDED_CONFIG: Mapping[str, Any] = {  # of `tenon-0.5b`, whose checkpoint has none
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_644,
    "tie_word_embeddings": True,
    "adapter_ranks": 64,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Equal layers of a backbone; all but `count` is of one of them."""

    count: int
    weights: int  # of the matrices that every token goes through
    query_width: int
    cached_values: int  # keys and values that one token leaves behind
    reach: int | None = None  # tokens of the context that are seen at most; None: all


@dataclasses.dataclass(frozen=True, slots=True)
class Experts:
    """The experts of every layer, of which a token goes through `active`."""

    count: int
    active: int
    weights: int  # of one of them, in one layer

    def share_touched(self, tokens: int) -> float:
        """The expected share that any of so many tokens goes through, if each takes any expert as likely."""
        return 1.0 - (1.0 - self.active / self.count) ** tokens


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Backbone:
    """The matrices of a model."""

    layers: tuple[Layers, ...]
    vocabulary: int
    hidden: int
    is_tied: bool  # one matrix is embedding and head
    experts: Experts | None = None
    conditioning_weights: int = 0  # of self-conditioning; 0 where a step does not see what the last one said

    @property
    def layer_count(self) -> int:
        """All of them."""
        return sum(layers.count for layers in self.layers)

    @property
    def dense_weights(self) -> int:
        """Of the layers, what every token goes through."""
        return sum(layers.count * layers.weights for layers in self.layers)

    @property
    def expert_weights(self) -> int:
        """Of all experts of all layers."""
        return self.layer_count * self.experts.count * self.experts.weights if self.experts else 0

    @property
    def active_expert_weights(self) -> int:
        """What one token goes through of them."""
        return self.layer_count * self.experts.active * self.experts.weights if self.experts else 0

    @property
    def head_weights(self) -> int:
        """Of the matrix that makes logits, which is as large as the embedding."""
        return self.vocabulary * self.hidden

    @property
    def weights(self) -> int:
        """All there are."""
        embeddings = self.head_weights * (1 if self.is_tied else 2)
        return self.dense_weights + self.expert_weights + self.conditioning_weights + embeddings

    @property
    def active_weights(self) -> int:
        """What one token goes through, the head included and the embedding, of which it reads a row, not."""
        return self.dense_weights + self.active_expert_weights + self.conditioning_weights + self.head_weights


def backbone_of(config: Mapping[str, Any]) -> Backbone:
    """Of a checkpoint's `config.json`. Raises BadRequestError for one that cannot be counted."""
    try:
        match config.get("model_type"):
            case "diffusion_gemma":
                return _diffusion_gemma(config["text_config"])
            case "llada":
                return _llada(config)
            case _:
                return _qwen(config)
    except (KeyError, TypeError) as error:
        raise BadRequestError(
            f"the checkpoint's config.json does not say what it is made of ({error})"
        ) from error


def _diffusion_gemma(text: Mapping[str, Any]) -> Backbone:
    """Gemma 4's mixture of experts, and a gated network for self-conditioning; encoder and decoder share it all."""
    hidden, expert_count = text["hidden_size"], text["num_experts"]
    common = _gated(hidden, text["intermediate_size"]) + hidden * expert_count  # the router
    heads, own = text["num_attention_heads"], text["num_key_value_heads"]
    sliding_count = sum(kind == "sliding_attention" for kind in text["layer_types"])
    width, sliding = text["head_dim"], heads * text["head_dim"]
    full_width, full_own = _full_attention(text)
    full = heads * full_width
    return Backbone(
        layers=(
            Layers(
                count=sliding_count,
                weights=common + hidden * 2 * (sliding + own * width),
                query_width=sliding,
                cached_values=2 * own * width,
                reach=text["sliding_window"] - 1,
            ),
            Layers(
                count=text["num_hidden_layers"] - sliding_count,
                weights=common + hidden * (2 * full + full_own * full_width),  # values are made of the keys
                query_width=full,
                cached_values=2 * full_own * full_width,
            ),
        ),
        vocabulary=text["vocab_size"],
        hidden=hidden,
        is_tied=True,
        experts=Experts(expert_count, text["top_k_experts"], _gated(hidden, text["moe_intermediate_size"])),
        conditioning_weights=_gated(hidden, text["intermediate_size"]),
    )


def _full_attention(text: Mapping[str, Any]) -> tuple[int, int]:
    """Head width, and heads with keys of their own, of the layers that see everything."""
    named: Mapping[str, Any] = next(iter((text.get("per_layer_config") or {}).values()), {})
    width = named.get("head_dim") or text.get("global_head_dim") or GLOBAL_HEAD_WIDTH
    own = named.get("num_key_value_heads") or text.get("num_global_key_value_heads")
    return width, own or text["num_key_value_heads"]


def _llada(config: Mapping[str, Any]) -> Backbone:
    """Its own names for the parts of a Llama."""
    return _dense(
        hidden=config["d_model"],
        inner=config.get("mlp_hidden_size") or config["mlp_ratio"] * config["d_model"],
        layer_count=config["n_layers"],
        heads=config["n_heads"],
        own=config.get("n_kv_heads") or config["n_heads"],
        vocabulary=config.get("embedding_size") or config["vocab_size"],
        is_tied=config["weight_tying"],
    )


def _qwen(config: Mapping[str, Any]) -> Backbone:
    """Dream, Dream-Coder, DreamOn, DiffuCoder, Open-dCoder, and the embedded model with its adapter."""
    return _dense(
        hidden=config["hidden_size"],
        inner=config["intermediate_size"],
        layer_count=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        own=config.get("num_key_value_heads") or config["num_attention_heads"],
        width=config.get("head_dim"),
        vocabulary=config["vocab_size"],
        is_tied=bool(config.get("tie_word_embeddings", False)),
        adapter_ranks=config.get("adapter_ranks", 0),
    )


def _dense(
    *,
    hidden: int,
    inner: int,
    layer_count: int,
    heads: int,
    own: int,
    vocabulary: int,
    is_tied: bool,
    width: int | None = None,
    adapter_ranks: int = 0,
) -> Backbone:
    width = width or hidden // heads
    queries, keys = heads * width, own * width
    attention = 2 * hidden * (queries + keys)
    sides = [*[hidden + queries] * 2, *[hidden + keys] * 2, *[hidden + inner] * 3]  # of the adapted matrices
    layers = Layers(
        count=layer_count,
        weights=attention + _gated(hidden, inner) + adapter_ranks * sum(sides),
        query_width=queries,
        cached_values=2 * keys,
    )
    return Backbone(layers=(layers,), vocabulary=vocabulary, hidden=hidden, is_tied=is_tied)


def _gated(hidden: int, inner: int) -> int:
    """The weights of a gated feed-forward network: gate, up and down."""
    return 3 * hidden * inner
