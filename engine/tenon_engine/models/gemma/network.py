"""DiffusionGemma's forward pass over canvases of the trained length: `[hole][suffix][END …]` behind an encoded prefix.

Only rows that are wanted go through the head. What the model said of a slot before comes back to it as a soft embedding
(self-conditioning); slots that are fixed come back as certainties. Owns the device and whose turn it is; knows no text
and no sampling.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tenon_engine.denoise import require_finite
from tenon_engine.models.gemma.prefix_cache import PrefixCache, PrefixView
from tenon_engine.models.gemma.uniform import Pace
from tenon_engine.models.static_step import static_step
from tenon_engine.view import View

if TYPE_CHECKING:
    from transformers import DiffusionGemmaForBlockDiffusion

SUFFIX_JUDGED = 32  # slots of the suffix that say how well a hole fits: those near it
STATIC_TOKENS_MIN = 512  # of a padded prefix


@dataclasses.dataclass(slots=True, eq=False)
class Frame:
    """What stands around one candidate's canvas, and what the forward before left for the next one.

    The logits are those a plan decided on, temperature and constraints applied.
    """

    prefix: PrefixCache
    suffix_ids: Sequence[int]
    pace: Pace | None = None  # None: no temperature
    logits: Tensor | None = None  # f32 [scored, vocabulary]
    suffix_log_probability: float = 0.0  # mean, of a frame's first forward or of a canvas without open slots


Pass = tuple[Frame, View]


class GemmaNetwork:
    """One model for any number of threads, one forward or chunk of context at a time.

    `end_id` fills the canvas, `unspoken` are ids that no hole may take; `backend` is torch.compile's, for steps with
    static shapes, None to run them as they come.
    """

    def __init__(
        self,
        model: DiffusionGemmaForBlockDiffusion,
        *,
        end_id: int,
        unspoken: Sequence[int],
        backend: str | None = None,
    ) -> None:
        whole: Any = model.config
        config = whole.text_config
        self.module = model  # as transformers has it: what a step costs is measured against its own forward
        self.canvas_length: int = whole.canvas_length
        self.vocabulary: int = config.vocab_size
        self._encoder = model.model.encoder.language_model
        self._decoder = model.model.decoder
        self._head = model.lm_head
        self._softcap = config.final_logit_softcapping
        self._layer_types = tuple(config.layer_types)
        self._windows = tuple(
            config.sliding_window - 1 if kind == "sliding_attention" else None for kind in self._layer_types
        )
        self.device = self._decoder.embed_tokens.weight.device
        self._end_id = end_id
        self._unspoken = torch.tensor(unspoken, dtype=torch.long, device=self.device)
        self._is_static = backend is not None
        self._decode = _decode if backend is None else static_step(_decode, backend=backend)
        self._using = threading.Lock()

    @torch.inference_mode()
    def extend(self, prefix: PrefixCache, ids: Sequence[int]) -> None:
        """Encode `ids` behind what `prefix` holds."""
        with self._using:
            prefix.extend(self._encoder, ids, self.device)

    @torch.inference_mode()
    def forward(self, passes: Sequence[Pass]) -> list[Tensor]:
        """Logits f32 [scored, vocabulary] per row; those on the same prefix are one batch."""
        batches: dict[int, list[int]] = {}
        for index, (frame, _) in enumerate(passes):
            batches.setdefault(id(frame.prefix), []).append(index)
        logits: dict[int, Tensor] = {}
        with self._using:
            for indices in batches.values():
                found = self._forward([passes[index] for index in indices])
                logits.update(zip(indices, found, strict=True))
        return [logits[index] for index in range(len(passes))]

    def _forward(self, batch: Sequence[Pass]) -> list[Tensor]:
        ids = torch.tensor([self._canvas(frame, view) for frame, view in batch], device=self.device)
        hidden = self._hidden(ids, self._signal(ids, batch), batch[0][0].prefix)
        slots = [list(view.scored) for _, view in batch]
        logits = self._logits(hidden, slots)
        self._judge(hidden, batch)
        for (frame, view), scores in zip(batch, logits, strict=True):
            if view.scored:
                require_finite(scores)
                scores /= 1.0 if frame.pace is None else frame.pace.temperature
                scores[:, self._unspoken] = -torch.inf
                frame.logits = scores
        return logits

    def _canvas(self, frame: Frame, view: View) -> list[int]:
        known = [*view.reads, *frame.suffix_ids]
        assert len(known) <= self.canvas_length, "a hole and its suffix have to fit into the canvas"
        return known + [self._end_id] * (self.canvas_length - len(known))

    def _signal(self, ids: Tensor, batch: Sequence[Pass]) -> Tensor:
        """Embeddings of what was said of each slot before, [rows, canvas, width]; zero in a frame's first forward."""
        embedding = self._decoder.embed_tokens
        signal: Tensor = embedding(ids)
        for row, (frame, view) in enumerate(batch):
            if frame.logits is None:
                signal[row] = 0
            elif view.scored:
                weights = frame.logits.softmax(-1).to(signal.dtype)
                soft = weights @ embedding.weight
                signal[row, list(view.scored)] = soft * embedding.embed_scale.to(signal.dtype)
        return signal

    def _hidden(self, ids: Tensor, signal: Tensor, prefix: PrefixCache) -> Tensor:
        """The decoder's last states, [rows, canvas, width]."""
        rows = len(ids)
        if not self._is_static:
            return self._decoded(ids, signal, prefix.view(self._windows))
        padding = _power_of_two(rows) - rows
        ids, signal = (torch.cat([each, *[each[:1]] * padding]) for each in (ids, signal))
        view = prefix.padded_view(self._windows, _static_tokens(len(prefix.ids)))
        return self._decoded(ids, signal, view)[:rows]

    def _decoded(self, ids: Tensor, signal: Tensor, view: PrefixView) -> Tensor:
        view = view.expanded(len(ids))
        places = torch.arange(view.length, view.length + self.canvas_length, device=self.device)[None]
        return self._decode(self._decoder, ids, signal, places, view.keys, view.values, self._masks(view))

    def _masks(self, view: PrefixView) -> dict[str, Tensor | None]:
        """By kind of layer: what to add to the scores, [1, 1, 1, tokens + canvas]; None where nothing is padding."""
        dtype = view.keys[0].dtype
        masks: dict[str, Tensor | None] = {}
        for kind, keys, hidden in zip(self._layer_types, view.keys, view.hidden, strict=True):
            if kind in masks:
                continue
            masks[kind] = None
            if self._is_static:
                tokens = keys.shape[2]
                mask = torch.zeros(tokens + self.canvas_length, dtype=dtype, device=self.device)
                mask[tokens - hidden : tokens] = torch.finfo(dtype).min
                masks[kind] = mask[None, None, None]
        return masks

    def _logits(self, hidden: Tensor, slots: Sequence[Sequence[int]]) -> list[Tensor]:
        """Of each row's `slots`, f32 [slots, vocabulary]."""
        counts = [len(each) for each in slots]
        rows = torch.tensor(
            [row for row, count in enumerate(counts) for _ in range(count)], device=hidden.device
        )
        places = torch.tensor([slot for each in slots for slot in each], device=hidden.device)
        if not len(places):
            return [hidden.new_zeros(0, self.vocabulary, dtype=torch.float32) for _ in slots]
        logits: Tensor = self._head(hidden[rows, places]).float()
        if self._softcap:
            logits = torch.tanh_(logits.div_(self._softcap)).mul_(self._softcap)
        return list(logits.to(self.device).split(counts))

    def _judge(self, hidden: Tensor, batch: Sequence[Pass]) -> None:
        """How likely the suffix is behind holes that are new, or decided."""
        judged = [
            row
            for row, (frame, view) in enumerate(batch)
            if frame.suffix_ids and (frame.logits is None or not view.scored)
        ]
        if not judged:
            return
        wanted = [list(batch[row][0].suffix_ids[:SUFFIX_JUDGED]) for row in judged]
        slots = [
            range(len(batch[row][1].reads), len(batch[row][1].reads) + len(ids))
            for row, ids in zip(judged, wanted, strict=True)
        ]
        for row, ids, logits in zip(judged, wanted, self._logits(hidden[judged], slots), strict=True):
            found = logits.log_softmax(-1).gather(1, torch.tensor(ids, device=logits.device)[:, None]).mean()
            require_finite(found)
            batch[row][0].suffix_log_probability = float(found)


class _Layer:
    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values


class _ReadOnlyCache:
    """As much of transformers' cache as a decoder layer reads."""

    is_compileable = False

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        self.layers = [_Layer(*each) for each in zip(keys, values, strict=True)]


def _decode(
    decoder: Any,
    ids: Tensor,
    signal: Tensor,
    places: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    masks: dict[str, Tensor | None],
) -> Tensor:
    """The decoder on canvases `ids` [rows, canvas] behind a prefix, its last states [rows, canvas, width].

    Its own `forward` differs in one thing: it makes the soft embeddings itself, from logits over all slots.
    """
    cache = _ReadOnlyCache(keys, values)
    hidden: Tensor = decoder.self_conditioning(decoder.embed_tokens(ids), signal)
    kinds = decoder.text_config.layer_types
    turns = {kind: decoder.rotary_emb(hidden, places, kind) for kind in sorted(set(kinds))}
    for kind, layer in zip(kinds, decoder.layers, strict=True):
        hidden = layer(
            hidden,
            position_embeddings=turns[kind],
            attention_mask=masks[kind],
            position_ids=places,
            cache=cache,
        )
    return decoder.norm(hidden)  # type: ignore[no-any-return]


def _static_tokens(length: int) -> int:
    return max(STATIC_TOKENS_MIN, _power_of_two(length))


def _power_of_two(count: int) -> int:
    """The smallest one that is not less than `count`."""
    return 1 << (count - 1).bit_length()
