"""How likely the model finds a text that is there already: every token in a canvas where it is noise.

Uniform noise has no mark: a token that is in its slot is believed. So half of the slots, every other one, are noise
while the rest of the text stays, and then the other half; both are one forward. Tokens are scored with both their
sides in view, half of the neighbours missing; nothing is said of where the text ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tenon_engine.denoise import constrain
from tenon_engine.models.base import TokenScore
from tenon_engine.models.gemma.network import Frame, GemmaNetwork
from tenon_engine.models.gemma.prefix_cache import PrefixCache
from tenon_engine.models.gemma.uniform import Noise, whole_view
from tenon_engine.scoring import token_scores
from tenon_engine.tokenizer import Tokenizer
from tenon_engine.view import Constraint

HALVES = 2


@torch.inference_mode()
def score_tokens(
    network: GemmaNetwork,
    tokenizer: Tokenizer,
    text: str,
    *,
    left: str,
    prefix: PrefixCache,
    suffix_ids: Sequence[int],
    seed: int,
) -> list[TokenScore]:
    """A score per token of `text`, whose first token may span `left`, the end of the prefix.

    Both have to fit into a canvas; of the suffix, what fits behind them is seen.
    """
    ids = tokenizer.encode(left + text)
    edge, constraint = _left_edge(tokenizer, left, ids)
    suffix_ids = suffix_ids[: network.canvas_length - len(ids)]
    noise = Noise(len(ids), vocabulary=network.vocabulary, seed=seed)
    passes = []
    for half in range(HALVES):
        scored = [place for place in range(edge, len(ids)) if place % HALVES == half]
        reads = [noise.ids[place] if place in scored else token for place, token in enumerate(ids)]
        constraints = [constraint if place == edge else None for place in scored]
        passes.append((Frame(prefix, suffix_ids), whole_view(reads, scored, constraints)))
    found = [1.0] * len(ids)
    for (_, view), logits in zip(passes, network.forward(passes), strict=True):
        constrain(logits, view.constraints)
        wanted = torch.tensor([ids[place] for place in view.scored], dtype=torch.long, device=logits.device)
        chances = logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0].exp().tolist()
        for place, chance in zip(view.scored, chances, strict=True):
            found[place] = chance
    return token_scores(tokenizer, text, left=left, right="", ids=ids, found=found)


def _left_edge(tokenizer: Tokenizer, left: str, ids: Sequence[int]) -> tuple[int, Constraint | None]:
    """The first slot that spells some of the text, and what it may take if it spells some of the left edge, too."""
    rest = left.encode()
    for place, token in enumerate(ids):
        data = tokenizer.to_bytes([token])
        if len(data) > len(rest):
            return place, Constraint(only=tokenizer.agreeing(rest)) if rest else None
        rest = rest[len(data) :]
    return len(ids), None
