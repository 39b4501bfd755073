"""Trains the tiny checkpoints of tests/data: tiny-llada on masks, tiny-gemma on uniform noise.

They write documents in which only what stands behind a hole tells what belongs into it. Half of every batch has noise
anywhere, as the families themselves are trained; the other has it in the hole alone, which makes it
a matter of minutes. Run by hand, from the root of the repository:

    python -m tests.engine.models.train_tiny llada
    python -m tests.engine.models.train_tiny gemma
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import string
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from tests.engine.models import tiny
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

DATA = Path(__file__).parents[2] / "data"
VALUE_LENGTH = 4
HELD_OUT_SHARE = 10  # one value in so many is never trained on
NAME_LETTERS = "abcghjkm"  # no two of them are one token

BATCH, STEPS = 32, 900
LEARNING_RATE, WARM_UP_STEPS, LAST_RATE = 2e-3, 50, 0.02
LOG_STEPS = 100
EVALUATION_STEPS = 4
CANVAS_SHIFT_MAX = 3  # tokens before the hole that a canvas may begin with: those that are healed


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A document with a hole: `value` belongs into it, as `suffix` tells."""

    prefix: str
    value: str
    suffix: str


class Lesson(Protocol):
    """A way to train a model on cases, and to fill their holes."""

    def loss(self, chance: random.Random) -> Tensor:
        """Of a new batch."""
        ...

    def fills(self, case: Case) -> bool:
        """Whether the model fills the hole right."""
        ...


def new_case(chance: random.Random, *, lines: int, held_out: bool) -> Case:
    """`let ab=` VALU `; # ab=VALU`, behind some lines of the kind."""
    before = "".join(_line(chance, held_out=False) for _ in range(lines))
    line = _line(chance, held_out=held_out)
    start = line.index("=") + 1
    return Case(before + line[:start], line[start : start + VALUE_LENGTH], line[start + VALUE_LENGTH :])


def held_out_cases(count: int, seed: int) -> list[Case]:
    """Cases whose values were never trained on."""
    chance = random.Random(seed)
    return [new_case(chance, lines=chance.randrange(2), held_out=True) for _ in range(count)]


def _line(chance: random.Random, *, held_out: bool) -> str:
    name = "".join(chance.choices(NAME_LETTERS, k=2))
    value = _value(chance)
    while _is_held_out(value) != held_out:
        value = _value(chance)
    return f"let {name}={value}; # {name}={value}\n"


def _value(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_uppercase, k=VALUE_LENGTH))


def _is_held_out(value: str) -> bool:
    return sum(map(ord, value)) % HELD_OUT_SHARE == 0


def train_llada(folder: Path, steps: int) -> None:
    """The masked model: a Llama that looks both ways, saved under LLaDA's names."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tiny.write_llada(folder)
    config = json.loads((folder / "config.json").read_text()) | {
        "d_model": 96,
        "n_heads": 6,
        "n_kv_heads": 6,
        "n_layers": 4,
        "mlp_hidden_size": 192,
        "rope_theta": 10_000.0,
    }
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config["embedding_size"],
            hidden_size=config["d_model"],
            intermediate_size=config["mlp_hidden_size"],
            num_hidden_layers=config["n_layers"],
            num_attention_heads=config["n_heads"],
            num_key_value_heads=config["n_kv_heads"],
            rms_norm_eps=config["rms_norm_eps"],
            rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]},
            tie_word_embeddings=False,
        )
    )
    _train(model, Masked(model, Vocabulary(folder), config), steps)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    tensors = {_llada_name(name): tensor.half() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


class Vocabulary:
    """The ids of a checkpoint's tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._core = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without control tokens."""
        return list(self._core.encode(text, add_special_tokens=False).ids)

    def control(self, text: str) -> int:
        """The id of a control token."""
        token_id = self._core.token_to_id(text)
        assert token_id is not None, f"the tokenizer has {text}"
        return token_id


class Masked:
    """How a masked model is trained, and filled from in one step."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, config: dict[str, Any]) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._mask = int(config["mask_token_id"])
        self._bos = vocabulary.control(tiny.LLADA_CONTROL["bos"])
        self._eos = int(config["eos_token_id"])

    def loss(self, chance: random.Random) -> Tensor:
        """Of one batch, over what is masked in it."""
        start, stop = chance.randrange(2), chance.randrange(2)
        parts = [self._parts(case, start=start, stop=stop) for case in _new_batch(chance)]
        ids = torch.tensor([left + hole + right for left, hole, right in parts])
        left, hole, _ = parts[0]
        masked = _noise_places(ids.shape[1], range(len(left), len(left) + len(hole)))
        logits = self._logits(ids.masked_fill(masked, self._mask))
        return cross_entropy(logits[masked], ids[masked])

    def fills(self, case: Case) -> bool:
        """All slots at once."""
        left, hole, right = self._parts(case, start=1, stop=1)
        logits = self._logits(torch.tensor([left + [self._mask] * len(hole) + right]))
        return bool(logits[0, len(left) : len(left) + len(hole)].argmax(-1).tolist() == hole)

    def _parts(self, case: Case, *, start: int, stop: int) -> tuple[list[int], list[int], list[int]]:
        left, hole, right = map(self._vocabulary.encode, (case.prefix, case.value, case.suffix))
        return [self._bos] * start + left, hole, right + [self._eos] * stop

    def _logits(self, ids: Tensor) -> Tensor:
        everything = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
        logits: Tensor = self._model(input_ids=ids, attention_mask=everything).logits
        return logits


def _llada_name(name: str) -> str:
    """LLaDA's name for a tensor of a Llama."""
    for llama, llada in _LLADA_NAMES.items():
        name = name.replace(llama, llada)
    return name


_LLADA_NAMES = {
    "model.embed_tokens.": "model.transformer.wte.",
    "model.norm.": "model.transformer.ln_f.",
    "lm_head.": "model.transformer.ff_out.",
    "model.layers.": "model.transformer.blocks.",
    "self_attn.o_proj.": "attn_out.",
    "self_attn.": "",
    "mlp.gate_proj.": "ff_proj.",
    "mlp.up_proj.": "up_proj.",
    "mlp.down_proj.": "ff_out.",
    "input_layernorm.": "attn_norm.",
    "post_attention_layernorm.": "ff_norm.",
}


def train_gemma(folder: Path, steps: int) -> None:
    """DiffusionGemma: canvases behind an encoded prefix, any token noise, the rest of the canvas the end of text."""
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

    tiny.write_diffusion_gemma(folder, layers=3)
    config: Any = DiffusionGemmaConfig.from_pretrained(folder)
    for name, size in {
        "hidden_size": 64,
        "intermediate_size": 128,
        "head_dim": 16,
        "moe_intermediate_size": 32,
    }.items():
        setattr(config.text_config, name, size)
    model = DiffusionGemmaForBlockDiffusion(config)
    rows = config.text_config.vocab_size
    _train(model, Uniform(model, Vocabulary(folder), config.canvas_length, rows), steps)
    model.half().save_pretrained(folder)


class Uniform:
    """How a model of uniform noise is trained, and filled from in a few steps."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, canvas_length: int, rows: int) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._canvas_length = canvas_length
        self._rows = rows
        self._bos = vocabulary.control(tiny.GEMMA_CONTROL["bos"])
        self._eos = vocabulary.control(tiny.GEMMA_CONTROL["eos"])

    def loss(self, chance: random.Random) -> Tensor:
        """Of one batch, over whole canvases; half of it reads what the first of two passes said."""
        shift, start = chance.randrange(CANVAS_SHIFT_MAX + 1), chance.randrange(2)
        parts = [self._parts(case, shift=shift, start=start) for case in _new_batch(chance)]
        prefix = torch.tensor([prefix for prefix, _, _ in parts])
        canvas = torch.tensor([hole + rest for _, hole, rest in parts])
        noisy = _noise_places(self._canvas_length, range(shift, shift + VALUE_LENGTH))
        seen = torch.where(noisy, torch.randint(self._rows, canvas.shape), canvas)
        with torch.no_grad():
            first = self._logits(prefix, seen)
        logits = self._logits(prefix, seen, first, torch.rand(BATCH) < 0.5)
        return cross_entropy(logits.flatten(0, 1), canvas.flatten())

    def fills(self, case: Case) -> bool:
        """From noise, by what each pass found most probable."""
        prefix, hole, rest = self._parts(case, shift=0, start=1)
        found = torch.randint(self._rows, (len(hole),))
        logits: Tensor | None = None
        for _ in range(EVALUATION_STEPS):
            canvas = torch.tensor([found.tolist() + rest])
            logits = self._logits(torch.tensor([prefix]), canvas, logits)
            found = logits[0, : len(hole)].argmax(-1)
        return bool(found.tolist() == hole)

    def _parts(self, case: Case, *, shift: int, start: int) -> tuple[list[int], list[int], list[int]]:
        """Ids before the canvas, of what it begins with, and of the rest of it."""
        left, hole, right = map(self._vocabulary.encode, (case.prefix, case.value, case.suffix))
        cut = len(left) - shift
        rest = right + [self._eos] * (self._canvas_length - shift - len(hole) - len(right))
        return [self._bos] * start + left[:cut], left[cut:] + hole, rest

    def _logits(
        self, prefix: Tensor, canvas: Tensor, said: Tensor | None = None, reads: Tensor | None = None
    ) -> Tensor:
        output = self._model(
            input_ids=prefix,
            decoder_input_ids=canvas,
            self_conditioning_logits=said,
            self_conditioning_mask=reads,
        )
        logits: Tensor = output.logits
        return logits


def _new_batch(chance: random.Random) -> list[Case]:
    """Cases of the same length."""
    lines = chance.randrange(2)
    return [new_case(chance, lines=lines, held_out=False) for _ in range(BATCH)]


def _noise_places(length: int, hole: range) -> Tensor:
    """Where a batch has noise, bool [BATCH, length]: every other row anywhere, the others in the hole alone."""
    anywhere = (torch.arange(BATCH) % 2 == 0)[:, None]
    in_hole = torch.zeros(length, dtype=torch.bool)
    in_hole[hole.start : hole.stop] = True
    share = torch.rand(BATCH, 1) * torch.where(anywhere, 1.0, 2.0)
    return (torch.rand(BATCH, length) < share) & (anywhere | in_hole)


def _train(model: nn.Module, lesson: Lesson, steps: int) -> None:
    """AdamW, whose rate falls to almost nothing."""
    chance = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98))
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min((step + 1) / WARM_UP_STEPS, max(LAST_RATE, 1 - step / steps))
        loss = lesson.loss(chance)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % LOG_STEPS == 0:
            print(f"step {step + 1}: loss {sum(losses) / len(losses):.3f}; {_report(lesson)}", flush=True)
            losses.clear()


@torch.inference_mode()
def _report(lesson: Lesson) -> str:
    cases = held_out_cases(100, seed=1)
    right = [lesson.fills(case) for case in cases]
    alone = [lesson.fills(dataclasses.replace(case, suffix="")) for case in cases]
    return f"fills {sum(right)} % with the suffix, {sum(alone)} % without"


def main() -> None:
    """Train what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["llada", "gemma"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = {"llada": train_llada, "gemma": train_gemma}[args.name]
    train(args.folder or DATA / f"tiny-{args.name}", args.steps)


if __name__ == "__main__":
    main()
