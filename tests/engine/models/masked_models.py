"""What the tests of masked models share: tiny checkpoints of every family, loaded, and holes for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tests.engine.models import tiny

from tenon_engine.config import EngineConfig
from tenon_engine.models.base import HoleRequest, Proposal
from tenon_engine.models.hub.checkpoint import Checkpoint
from tenon_engine.models.hub.placement import Placement
from tenon_engine.models.masked.model import MaskedModel, load
from tenon_engine.progress import silent

PREFIX, SUFFIX = "def first(a):\n    retur", "(a)\n\nprint(first(1))\n"


def write_open_dcoder(folder: Path) -> Path:
    """Open-dCoder: a Qwen2 to the letter, head and embedding one, whose tokenizer alone knows the mask."""
    tiny.write_dream(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["mask_token_id"]
    config |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True}
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "llada": tiny.write_llada,
    "dream": tiny.write_dream,
    "dreamon": lambda folder: tiny.write_dream(folder, dreamon=True),
    "open-dcoder": write_open_dcoder,
}


def checkpoint_of(folder: Path) -> Checkpoint:
    """The checkpoint in a folder, as `find` would give it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Checkpoint("tiny", folder, config["architectures"][0], config)


def placement_of(**changes: Any) -> Placement:
    """f32 on the CPU."""
    usual: dict[str, Any] = {"device": "cpu", "dtype": torch.float32, "attention": "sdpa"}
    return Placement(**(usual | {"quantization": None, "compiled": False} | changes))


def loaded(folder: Path, **settings: Any) -> MaskedModel:
    """The model in a folder."""
    return load(checkpoint_of(folder), placement_of(), EngineConfig(**settings), silent)


def hole_of(prefix: str = PREFIX, suffix: str = SUFFIX, **changes: Any) -> HoleRequest:
    """A hole."""
    usual: dict[str, Any] = {
        "path": "a.py",
        "language": "python",
        "extra": (),
        "max_tokens": 8,
        "candidates": 1,
        "temperature": 0.0,
        "seed": 0,
        "session": "",
    }
    return HoleRequest(prefix=prefix, suffix=suffix, **(usual | changes))


def last(model: MaskedModel, hole: HoleRequest) -> Proposal:
    """The answer, its times left out."""
    *_, proposal = model.propose(hole, lambda: None)
    return proposal
