"""Between a canvas and its text: what every diffusion model tells of a step, and what text it can read at all."""

from __future__ import annotations

from tenon_engine.canvas import Canvas
from tenon_engine.models.base import Draft
from tenon_engine.plan import Row
from tenon_engine.tokenizer import Tokenizer
from tenon_engine.wire import Slot, SlotState


def draft(row: Row) -> Draft:
    """The text of a candidate so far, its edges removed."""
    canvas = row.canvas
    text, whole = row.edges.fill(canvas.text_ids, ended=canvas.ended)
    return Draft(text, canvas.confidence, whole)


def slots(canvas: Canvas, tokenizer: Tokenizer, *, left: bytes) -> tuple[Slot, ...]:
    """Every slot as it stands; those that spell `left` again, taken back from the prefix, are fixed."""
    shown, spelt = [], 0
    for token, state, confidence in zip(canvas.ids, canvas.states, canvas.confidences, strict=True):
        data = b"" if token is None else tokenizer.to_bytes([token])
        spelt += len(data)
        fixed = state is SlotState.DECIDED and spelt <= len(left)
        shown.append(Slot(data.decode(errors="replace"), SlotState.FIXED if fixed else state, confidence))
    return tuple(shown)


def encodable(text: str) -> str:
    """`text` for the model alone, with lone surrogates (which no encoding can hold) replaced."""
    return text.encode("utf-8", "replace").decode()
