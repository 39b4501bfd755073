"""Forward passes of a masked model over windows `[begin] prefix [canvas] suffix [end]`, every place seeing every other.

Owns the shift of logits, batches of windows of different lengths, and the *dual cache* of Fast-dLLM (arXiv 2505.22618):
the keys and values of what stands around a canvas are kept between its steps and read anew every `refresh_steps`; the
canvas is read at every step. Where attention runs both ways, what is kept is exact only for the canvas it was read
with: with `refresh_steps` 1 nothing is kept, with more the logits drift (`python -m tenon_engine.models.masked.drift
MODEL FILE` says how far). For the same reason nothing is kept between keystrokes: every key of the window depends on
every token of it, so the first step of a fill would have to read all of it anew in any case.

Safe to use from several threads, each on contexts of its own. Knows ids, not text.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tenon_engine.models.masked.weights import Backbone
from tenon_engine.models.static_step import static_step
from tenon_engine.view import OPEN, View

REFRESH_STEPS = 4
PLACES_STEP = 64  # lengths are rounded up to it, and canvases to the next, where shapes have to be few
CANVAS_STEP = 16

KeyValues: TypeAlias = list[
    tuple[Tensor, Tensor]
]  # of each layer: keys and values [rows, heads, places, size]


@dataclasses.dataclass(slots=True)
class _Kept:
    """Keys and values of what stands around a canvas, as they were when all of the window was read."""

    key_values: KeyValues
    canvas_size: int
    age: int = 1  # steps that used them, the one that read them included


@dataclasses.dataclass(slots=True)
class Surroundings:
    """The ids around one canvas, control tokens included, and what the network keeps of them between two steps."""

    prefix_ids: Sequence[int]  # one at least
    suffix_ids: Sequence[int]
    kept: _Kept | None = None
    keeps: bool = True  # else all of the window is read at every step

    def fork(self) -> Surroundings:
        """The same for another candidate."""
        return dataclasses.replace(self, kept=self.kept and dataclasses.replace(self.kept))

    def once(self) -> Surroundings:
        """The same for forwards of which none goes on where another one was: nothing is kept."""
        return dataclasses.replace(self, kept=None, keeps=False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pass:
    """One row of a forward: its window, and which part of it is read at every step."""

    around: Surroundings
    view: View
    window: list[int]
    start: int  # of the canvas, and with shifted logits of the token before it
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def around_size(self) -> int:
        return len(self.window) - self.size


class MaskedNetwork:
    """A backbone with its conventions. `banned`: bool [rows], ids that are never written.

    `backend`: torch.compile's, for steps with static shapes; None to run them as they come.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        mask_id: int,
        shifted: bool,
        banned: Tensor,
        refresh_steps: int = REFRESH_STEPS,
        backend: str | None = None,
    ) -> None:
        self.backbone = backbone
        self.device: torch.device = next(backbone.decoder.parameters()).device
        self._mask_id = mask_id
        self.shift = int(shifted)  # a canvas is read with so many tokens before it
        self._banned = banned.to(self.device)
        self._refresh_steps = refresh_steps
        self._is_static = backend is not None
        self._read = _read if backend is None else static_step(_read, backend=backend)
        self._lock = threading.Lock()

    def with_refresh(self, refresh_steps: int) -> MaskedNetwork:
        """The same weights, with keys and values kept for another number of steps."""
        other = copy.copy(self)
        other._refresh_steps = refresh_steps
        return other

    @torch.inference_mode()
    def forward(self, passes: Sequence[tuple[Surroundings, View]]) -> list[Tensor]:
        """Logits f32 [scored, rows] per pass, those of `banned` ids -inf; a view reads all of its canvas."""
        rows = [self._pass(around, view) for around, view in passes]
        stale = [row for row in rows if self._is_stale(row)]
        fresh = [row for row in rows if not self._is_stale(row)]
        found: dict[int, Tensor] = {}
        with self._lock:
            for group, read in ((stale, self._read_windows), (fresh, self._read_canvases)):
                # What a CUDA graph gave is gone when the next one runs: logits are taken from it at once.
                for row, hidden in zip(group, read(group), strict=True):
                    found[id(row)] = self._logits(hidden[list(row.view.scored)])
        return [found[id(row)] for row in rows]

    def _pass(self, around: Surroundings, view: View) -> _Pass:
        start = len(around.prefix_ids)
        window = _window(around, view, self._mask_id)
        return _Pass(around, view, window, start - self.shift, start + len(view.reads))

    def _is_stale(self, row: _Pass) -> bool:
        kept = row.around.kept
        return kept is None or kept.canvas_size != len(row.view.reads) or kept.age >= self._refresh_steps

    def _keeps(self, row: _Pass) -> bool:
        return row.around.keeps and self._refresh_steps > 1

    def _read_windows(self, rows: Sequence[_Pass]) -> list[Tensor]:
        """Hidden states [canvas, size] from all of each window; what stands around the canvases is kept from now on."""
        if not rows:
            return []
        length = self._length(max(len(row.window) for row in rows), PLACES_STEP)
        hidden, key_values = self._run(
            _stacked((row.window for row in rows), length),
            torch.arange(length).expand(len(rows), -1),
            _up_to([len(row.window) for row in rows], length),
            keeps=any(map(self._keeps, rows)),
        )
        for index, row in enumerate(rows):
            if self._keeps(row):
                row.around.kept = _Kept(_around(row, index, key_values), canvas_size=len(row.view.reads))
        return [hidden[index, row.start : row.end] for index, row in enumerate(rows)]

    def _read_canvases(self, rows: Sequence[_Pass]) -> list[Tensor]:
        """Hidden states [canvas, size] from the canvases alone, which see what is kept of their surroundings."""
        if not rows:
            return []
        length = self._length(max(row.size for row in rows), CANVAS_STEP)
        around = self._length(max(row.around_size for row in rows), PLACES_STEP)
        starts = torch.tensor([row.start for row in rows])
        seen = [
            _up_to([row.around_size for row in rows], around),
            _up_to([row.size for row in rows], length),
        ]
        hidden, _ = self._run(
            _stacked((row.window[row.start : row.end] for row in rows), length),
            starts[:, None] + torch.arange(length),
            torch.cat(seen, dim=1),
            past=_padded([kept.key_values for kept in map(_aged, rows)], around),
        )
        return [hidden[index, : row.size] for index, row in enumerate(rows)]

    def _length(self, length: int, step: int) -> int:
        return -(-length // step) * step if self._is_static else length

    def _run(
        self, ids: Tensor, places: Tensor, seen: Tensor, *, past: KeyValues | None = None, keeps: bool = False
    ) -> tuple[Tensor, KeyValues]:
        ids, places, seen = (each.to(self.device) for each in (ids, places, seen))
        return self._read(self.backbone.decoder, ids, places, seen, past, keeps)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.backbone.head(hidden).float().to(self.device)
        return logits.masked_fill_(self._banned, -torch.inf)


class OwnCodeNetwork:
    """A model that runs the code of its checkpoint: whole windows, one after the other, nothing kept between steps."""

    def __init__(self, model: nn.Module, *, mask_id: int, shifted: bool, banned: Tensor) -> None:
        self.device: torch.device = next(model.parameters()).device
        self._model = model
        self._mask_id = mask_id
        self._shift = int(shifted)
        self._banned = banned.to(self.device)
        self._lock = threading.Lock()

    @torch.inference_mode()
    def forward(self, passes: Sequence[tuple[Surroundings, View]]) -> list[Tensor]:
        """Logits f32 [scored, rows] per pass, those of `banned` ids -inf; a view reads all of its canvas."""
        with self._lock:
            return [self._logits(around, view) for around, view in passes]

    def _logits(self, around: Surroundings, view: View) -> Tensor:
        window = torch.tensor([_window(around, view, self._mask_id)], device=self.device)
        start = len(around.prefix_ids) - self._shift
        wanted = [start + slot for slot in view.scored]
        logits: Tensor = self._model(input_ids=window).logits[0, wanted].float().to(self.device)
        return logits.masked_fill_(self._banned, -torch.inf)


def _window(around: Surroundings, view: View, mask_id: int) -> list[int]:
    canvas = (mask_id if token == OPEN else token for token in view.reads)
    return [*around.prefix_ids, *canvas, *around.suffix_ids]


def _read(
    decoder: nn.Module, ids: Tensor, places: Tensor, seen: Tensor, past: KeyValues | None, keeps: bool
) -> tuple[Tensor, KeyValues]:
    """Hidden states [rows, places, size] and, of a window that `keeps`, its keys and values.

    ids, places: int64 [rows, places]; seen: bool [rows, past places + places].
    """
    from transformers import DynamicCache

    from tenon_engine.models.masked.surroundings import read_only

    cache: Any = read_only(past) if past is not None else DynamicCache() if keeps else None
    output: Any = decoder(
        input_ids=ids, position_ids=places, attention_mask=seen, cache=cache, use_cache=cache is not None
    )
    return output.last_hidden_state, [(each.keys, each.values) for each in cache.layers] if keeps else []


def _aged(row: _Pass) -> _Kept:
    assert row.around.kept is not None, "a row is read from what is kept of it, or whole"
    row.around.kept.age += 1
    return row.around.kept


def _stacked(rows: Iterable[Sequence[int]], length: int) -> Tensor:
    """int64 [rows, length], the ends of short rows filled with an id that nobody sees."""
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])


def _up_to(counts: Sequence[int], length: int) -> Tensor:
    """bool [rows, length], True up to each count."""
    return torch.arange(length) < torch.tensor(counts)[:, None]


def _around(row: _Pass, index: int, key_values: KeyValues) -> KeyValues:
    """What a row, the index-th of those read, has around its canvas: [heads, places, size] each."""

    def cut(part: Tensor) -> Tensor:
        return torch.cat([part[index, :, : row.start], part[index, :, row.end : len(row.window)]], dim=1)

    return [(cut(keys), cut(values)) for keys, values in key_values]


def _padded(rows: Sequence[KeyValues], length: int) -> KeyValues:
    """The keys and values of several rows as one batch, each filled up to `length` places."""

    def batch(parts: Iterable[Tensor]) -> Tensor:
        filled = [
            part if part.shape[1] == length else pad(part, (0, 0, 0, length - part.shape[1]))
            for part in parts
        ]
        return filled[0][None] if len(filled) == 1 else torch.stack(filled)

    return [
        (batch(each[0] for each in layer), batch(each[1] for each in layer))
        for layer in zip(*rows, strict=True)
    ]
