"""Canvases of masked models: one whose size is known beforehand, and one that the model grows and shrinks.

Own when a canvas counts as ended. Do not know models, sampling or text.
"""

from __future__ import annotations

from tenon_engine.canvas import Canvas
from tenon_engine.wire import SlotState

EXPANSIONS_PER_SLOT = (
    2  # of the largest canvas: a model that opens and closes the same slot forever is stopped
)
NO_ID = -1


class BoundedCanvas(Canvas):
    """A canvas in front of a suffix: it has ended when every slot is decided, though nobody wrote END."""

    def commit(self, place: int, token: int, confidence: float) -> None:
        """Decide an undecided slot, then apply end-fill."""
        super().commit(place, token, confidence)
        self.ended = self.ended or self.finished


class GrowingCanvas(Canvas):
    """A canvas that `expand` makes longer by a slot and `delete` shorter by one (DreamOn, arXiv 2602.01326).

    Invariants: a decided slot keeps its id, and its place among the decided ones, for good; there are never more than
    `size_max` slots; expand and delete are never among the ids.
    """

    def __init__(self, size: int, *, size_max: int, expand_id: int, delete_id: int) -> None:
        super().__init__(size, end_id=NO_ID)
        self._size_max = max(size, size_max)
        self.expand_id = expand_id
        self._delete_id = delete_id
        self._expansions_left = EXPANSIONS_PER_SLOT * self._size_max

    @property
    def can_expand(self) -> bool:
        """Whether one more slot may be opened."""
        return len(self) < self._size_max and self._expansions_left > 0

    def commit(self, place: int, token: int, confidence: float) -> None:
        """Decide an open slot, or make two of it, or none. Expanding a canvas that is full changes nothing."""
        assert self.states[place] is not SlotState.DECIDED, "a decided slot never changes"
        if token == self.expand_id:
            self._expand(place)
        elif token == self._delete_id:
            self.decided_count += 1
            del self.ids[place], self.states[place], self.confidences[place]
        else:
            super().commit(place, token, confidence)
        self.ended = self.finished

    def _expand(self, place: int) -> None:
        if not self.can_expand:
            return
        self._expansions_left -= 1
        self.decided_count += 1
        self.ids.insert(place, None)
        self.states.insert(place, SlotState.OPEN)
        self.confidences.insert(place, 0.0)
