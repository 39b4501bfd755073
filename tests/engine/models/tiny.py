"""Checkpoints of every family with random weights: files as the hub has them, tiny, the same each time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from tenon_engine.base_convert import PRE_TOKENIZER_PATTERN

LAYERS = 2
SPARE_ROWS = 5  # of the embedding, behind the last id: real checkpoints have some, too

MERGES = (
    "Ġ Ġ",
    "ĠĠ ĠĠ",
    "r e",
    "t u",
    "re tu",
    "retu r",
    "retur n",
    "d e",
    "de f",
    "Ġ =",
    "Ġ r",
    "( )",
    ") :",
    "i n",
)
PIECES = (
    *("▁▁", "▁▁▁▁", "re", "tu", "retu", "retur", "return", "▁return", "de", "def", "▁=", "▁r", "()", "):"),
    *("in", "▁in"),
)  # every one of two pieces before it, or of two characters
LITERAL = ("\n\n", "<table>")  # what Gemma's vocabulary matches as it stands

LLADA_CONTROL = {"bos": "<|startoftext|>", "eos": "<|endoftext|>", "mask": "<|mdm_mask|>"}
DREAM_CONTROL = {"bos": "<|beginoftext|>", "eos": "<|endoftext|>", "mask": "<|mask|>"}
GEMMA_CONTROL = {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>", "mask": "<mask>"}
GEMMA_TURNS = ("<|turn>", "<turn|>")
GEMMA_CHAT = (
    "{{ bos_token }}{% for message in messages %}"
    "<|turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n{{ message['content'] }}<turn|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn>model\n{% endif %}"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Width:
    """How wide a network is; the default is as narrow as can be."""

    hidden: int = 32
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 64
    experts: int = 4  # half of them active

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of q, k, v, output, gate, up and down: rows and columns."""
        keys = self.hidden // self.heads * self.key_value_heads
        return (
            (self.hidden, self.hidden),
            *((keys, self.hidden),) * 2,
            (self.hidden, self.hidden),
            *((self.feed_forward, self.hidden),) * 2,
            (self.hidden, self.feed_forward),
        )


NARROW = Width()


def write_llada(folder: Path, *, layers: int = LAYERS, width: Width = NARROW) -> Path:
    """LLaDA: its own names, no shift, mask and end among the control tokens."""
    ids = _write_byte_level(folder, LLADA_CONTROL, pad="eos")
    rows = max(ids.values()) + 1 + SPARE_ROWS
    config = {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "activation_type": "silu",
        "block_type": "llama",
        "d_model": width.hidden,
        "n_heads": width.heads,
        "n_kv_heads": width.key_value_heads,
        "n_layers": layers,
        "mlp_hidden_size": width.feed_forward,
        "vocab_size": rows,
        "embedding_size": rows,
        "include_bias": False,
        "include_qkv_bias": False,
        "layer_norm_type": "rms",
        "rms_norm_eps": 1e-5,
        "rope": True,
        "rope_theta": 500_000.0,
        "max_sequence_length": 4096,
        "weight_tying": False,
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["eos"],
        "mask_token_id": ids["mask"],
    }
    random = _Random(11)
    outer = "model.transformer"
    tensors = {
        f"{outer}.wte.weight": random(rows, width.hidden),
        f"{outer}.ln_f.weight": random.near_one(width.hidden),
        f"{outer}.ff_out.weight": random(rows, width.hidden),
    }
    for layer in range(layers):
        block = f"{outer}.blocks.{layer}"
        names = ("q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")
        tensors |= {
            f"{block}.{name}.weight": random(*shape) for name, shape in zip(names, width.shapes, strict=True)
        }
        tensors |= {
            f"{block}.{name}.weight": random.near_one(width.hidden) for name in ("attn_norm", "ff_norm")
        }
    return _write(folder, config, tensors)


def write_dream(folder: Path, *, dreamon: bool = False, layers: int = LAYERS, width: Width = NARROW) -> Path:
    """Dream, and DreamOn, which expands by a token of its own and deletes by the end of text."""
    control = DREAM_CONTROL | ({"expand": "<|expand|>"} if dreamon else {})
    ids = _write_byte_level(folder, control, pad="eos", normalizer=normalizers.NFC())
    rows = max(ids.values()) + 1 + SPARE_ROWS
    config = {
        "architectures": ["DreamModel"],
        "model_type": "Dream",
        "hidden_act": "silu",
        "hidden_size": width.hidden,
        "intermediate_size": width.feed_forward,
        "num_hidden_layers": layers,
        "num_attention_heads": width.heads,
        "num_key_value_heads": width.key_value_heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": False,
        "vocab_size": rows,
        "bos_token_id": ids["eos"],
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["eos"],
        "mask_token_id": ids["mask"],
    }
    if dreamon:
        sizes = {
            "expand_token_id": ids["expand"],
            "delete_token_id": ids["eos"],
            "mask_token_id": ids["mask"],
        }
        _write_json(folder / "generation_config.json", {**sizes, "eos_token_id": ids["eos"]})
    random = _Random(13)
    tensors = {
        "model.embed_tokens.weight": random(rows, width.hidden),
        "model.norm.weight": random.near_one(width.hidden),
        "lm_head.weight": random(rows, width.hidden),
    }
    for layer in range(layers):
        block = f"model.layers.{layer}"
        attention = [f"self_attn.{part}_proj" for part in "qkvo"]
        names = [*attention, *(f"mlp.{part}_proj" for part in ("gate", "up", "down"))]
        tensors |= {
            f"{block}.{name}.weight": random(*shape) for name, shape in zip(names, width.shapes, strict=True)
        }
        rows_of = dict(zip(attention, width.shapes, strict=False))
        tensors |= {f"{block}.{name}.bias": random(rows_of[name][0]) for name in attention[:3]}
        norms = ("input_layernorm", "post_attention_layernorm")
        tensors |= {f"{block}.{name}.weight": random.near_one(width.hidden) for name in norms}
    return _write(folder, config, tensors)


def write_diffusion_gemma(
    folder: Path, *, layers: int = LAYERS, canvas: int = 32, window: int = 16, width: Width = NARROW
) -> Path:
    """DiffusionGemma as transformers saves it; the last layer attends to everything, the others to `window` tokens."""
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

    ids = _write_gemma_tokenizer(folder)
    config = DiffusionGemmaConfig(
        canvas_length=canvas,
        text_config={
            "vocab_size": len(ids) + SPARE_ROWS,
            "hidden_size": width.hidden,
            "intermediate_size": width.feed_forward,
            "num_hidden_layers": layers,
            "num_attention_heads": width.heads,
            "num_key_value_heads": width.key_value_heads,
            "head_dim": width.hidden // width.heads,
            "global_head_dim": 2 * width.hidden // width.heads,
            "num_experts": width.experts,
            "top_k_experts": width.experts // 2,
            "moe_intermediate_size": width.feed_forward // 4,
            "sliding_window": window,
            "layer_types": ["sliding_attention"] * (layers - 1) + ["full_attention"],
        },
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "position_embedding_size": 8,
        },
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(17)
        DiffusionGemmaForBlockDiffusion(config).save_pretrained(folder)
    return folder


class _Random:
    """Seeded weights, spread so that a tiny network tells its inputs apart."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        values: Tensor = torch.randn(shape, generator=self._generator)
        return values.div_(shape[-1] ** 0.5)

    def near_one(self, size: int) -> Tensor:
        return 1 + torch.randn(size, generator=self._generator) / 10


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    _write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")


def _write_byte_level(
    folder: Path, control: dict[str, str], *, pad: str, normalizer: normalizers.Normalizer | None = None
) -> dict[str, int]:
    """A vocabulary of all bytes and a few merges; the ids of the control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(left, right) for left, right in map(str.split, MERGES)]
    tokens = [*alphabet, *(left + right for left, right in pairs)]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=pairs)
    )
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _save(folder, tokenizer, control, pad=control[pad])


def _write_gemma_tokenizer(folder: Path) -> dict[str, int]:
    """A SentencePiece vocabulary as Gemma's: bytes to fall back on, characters, pieces; all ids."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    characters = ["▁", "\n", *(chr(code) for code in range(ord("!"), ord("~") + 1)), "é", "λ"]
    tokens = [*GEMMA_CONTROL.values(), *LITERAL, *bytes_, *characters, *PIECES]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=_merges_of(PIECES),
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in LITERAL])
    _save(folder, tokenizer, GEMMA_CONTROL, pad="<pad>", more=GEMMA_TURNS)
    (folder / "chat_template.jinja").write_text(GEMMA_CHAT, encoding="utf-8")
    return tokenizer.get_vocab()


def _merges_of(pieces: Sequence[str]) -> list[tuple[str, str]]:
    """For every piece two parts of it that are characters or pieces before it."""
    merges = []
    for index, piece in enumerate(pieces):
        parts = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = {*pieces[:index], *"".join(pieces)}
        merges.append(next(pair for pair in parts if known.issuperset(pair)))
    return merges


def _save(
    folder: Path, tokenizer: Tokenizer, control: dict[str, str], *, pad: str, more: Sequence[str] = ()
) -> dict[str, int]:
    """Write tokenizer.json and tokenizer_config.json; the ids of the control tokens by their short names."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.add_special_tokens([*control.values(), *more])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {f"{name}_token": text for name, text in control.items() if name in ("bos", "eos", "mask", "unk")}
    added = {
        str(token_id): {"content": token.content, "special": token.special}
        for token_id, token in tokenizer.get_added_tokens_decoder().items()
    }
    _write_json(folder / "tokenizer_config.json", {**named, "pad_token": pad, "added_tokens_decoder": added})
    ids = {name: tokenizer.token_to_id(text) for name, text in control.items()}
    return {name: token_id for name, token_id in ids.items() if token_id is not None}
