"""Scoring: how likely a network finds a text that is there already.

The text's slots look left only, as confirmed drafts do: logits are shifted by one, so a slot that looks right would see
its own answer. Owns the way from a text's tokens to spans of its characters. Knows no windows.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

from tenon_engine.denoise import Network, constrain, require_finite
from tenon_engine.models.base import HoleRequest, Scores, StopCheck, TokenScore
from tenon_engine.proposals import encodable
from tenon_engine.tokenizer import Tokenizer
from tenon_engine.view import START, Constraint, View
from tenon_engine.wire import Cost

CHUNK_TOKENS = 64  # of one forward; between two, stop() is asked

C = TypeVar("C")


@dataclasses.dataclass(frozen=True, slots=True)
class TokenSpan:
    """Characters `start` to `end` of a text, spelt by `count` tokens: more than one where they share a character."""

    start: int
    end: int
    count: int


def token_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> Iterator[TokenSpan]:
    """Where the tokens `ids` of `text` stand in it, in order and without gaps."""
    offsets = itertools.accumulate((len(char.encode()) for char in text), initial=0)
    character_at = {offset: index for index, offset in enumerate(offsets)}
    start = count = offset = 0
    for token in ids:
        offset += len(tokenizer.to_bytes([token]))
        count += 1
        end = character_at.get(offset)
        if end is not None:
            yield TokenSpan(start, end, count)
            start, count = end, 0


def score_text(
    network: Network[C],
    context: C,
    tokenizer: Tokenizer,
    text: str,
    *,
    left: str,
    right: str,
    end_id: int | None,
    stop: StopCheck,
) -> Scores:
    """Score `text` on a canvas of its own between the edges of its hole, and `end_id` behind it, if there is one.

    `left` has to be spelt again, whatever the model thinks of it; `right` stands between the text and its end.
    """
    started = time.perf_counter()
    ids = tokenizer.encode(left + text + right)
    whole = [*ids, *([] if end_id is None else [end_id])]
    found, forwards = _probabilities(network, context, whole, _left_edge(tokenizer, left, ids), stop)
    tokens = token_scores(tokenizer, text, left=left, right=right, ids=ids, found=found)
    if end_id is not None and len(found) == len(whole):
        tokens.append(TokenScore(len(text), len(text), found[-1]))
    cost = Cost(forwards=forwards, denoise_ms=(time.perf_counter() - started) * 1e3)
    return Scores(tuple(tokens), cost, finished=len(found) == len(whole))


def token_scores(
    tokenizer: Tokenizer, text: str, *, left: str, right: str, ids: Sequence[int], found: Sequence[float]
) -> list[TokenScore]:
    """The scores of `text` from what was `found` for the first of `ids`, which spell `left`, `text` and `right`."""
    tokens, place = [], 0
    for span in token_spans(tokenizer, left + text + right, ids):
        start, end = (min(max(at - len(left), 0), len(text)) for at in (span.start, span.end))
        place += span.count
        if start < end and place <= len(found):
            tokens.append(TokenScore(start, end, math.prod(found[place - span.count : place])))
    return tokens


def score_in_sections(
    tokenizer: Tokenizer,
    hole: HoleRequest,
    text: str,
    *,
    section_tokens: int,
    score: Callable[[HoleRequest, str, bool], Scores],
) -> Scores:
    """The scores of `text`, a long one in sections, each a hole between what stands beside it.

    `score` gets a section's hole, its text, and whether it ends the whole.
    """
    text = encodable(text)
    tokens: list[TokenScore] = []
    cost, start = Cost(), 0
    for end in _section_ends(tokenizer, text, section_tokens):
        part = dataclasses.replace(hole, prefix=hole.prefix + text[:start], suffix=text[end:] + hole.suffix)
        scores = score(part, text[start:end], end == len(text))
        tokens += [TokenScore(start + t.start, start + t.end, t.probability) for t in scores.tokens]
        cost += scores.cost
        if not scores.finished:
            return Scores(tuple(tokens), cost, finished=False)
        start = end
    return Scores(tuple(tokens), cost, finished=True)


def _section_ends(tokenizer: Tokenizer, text: str, size: int) -> Iterator[int]:
    """Up to where each section of `text` goes, of `size` tokens or few more; the last one ends the text."""
    count = 0
    for span in token_spans(tokenizer, text, tokenizer.encode(text)):
        count += span.count
        if count >= size and span.end < len(text):
            yield span.end
            count = 0
    yield len(text)


def _left_edge(tokenizer: Tokenizer, left: str, ids: Sequence[int]) -> list[Constraint]:
    """What the slots may take in which `left` is spelt again."""
    data = left.encode()
    constraints, offset = [], 0
    for token in ids:
        if offset >= len(data):
            break
        constraints.append(Constraint(only=tokenizer.agreeing(data[offset:])))
        offset += len(tokenizer.to_bytes([token]))
    return constraints


@torch.inference_mode()
def _probabilities(
    network: Network[C], context: C, ids: Sequence[int], edge: Sequence[Constraint], stop: StopCheck
) -> tuple[list[float], int]:
    """Of each of `ids` after those before it (of the first ones, when stopped between two forwards), and the forwards.

    edge: constraints of the first slots; the others take anything.
    """
    found: list[float] = []
    starts = range(0, len(ids), CHUNK_TOKENS)
    for forwards, start in enumerate(starts):
        if stop():
            return found, forwards
        places = range(start, min(len(ids), start + CHUNK_TOKENS))
        view = View(
            reads=tuple(ids[place - 1] if place else START for place in places),
            places=tuple(places),
            sees=np.tri(len(places), dtype=np.bool_),
            kept=start,
            keepable=len(places),
            scored=tuple(range(len(places))),
            constraints=tuple(edge[place] if place < len(edge) else None for place in places),
        )
        (logits,) = network.forward([(context, view)])
        constrain(logits, view.constraints)
        wanted = logits[torch.arange(len(places)), torch.tensor(ids[start : places.stop])]
        probability = (wanted - logits.logsumexp(-1)).exp()
        require_finite(probability)
        found += probability.tolist()
    return found, len(starts)
