"""The canvas of one candidate: token slots of a hole, each open, provisional or decided.

Owns ids, states and confidences, and the rule of end-fill. Does not know models, sampling or text.
"""

from __future__ import annotations

from tenon_engine.wire import SlotState


class Canvas:
    """`size` slots, all open at first.

    Invariants: a decided slot keeps its id for good; provisional slots form one run that starts at the frontier;
    once everything before the first END is decided, the slots from END on are gone (end-fill).
    """

    def __init__(self, size: int, *, end_id: int) -> None:
        self.ids: list[int | None] = [None] * size
        self.states = [SlotState.OPEN] * size
        self.confidences = [0.0] * size
        self.decided_count = 0  # END included, so that it counts what the model decided
        self.ended = False  # the model wrote END, rather than running into the end of the canvas
        self._end_id = end_id
        self._end_confidence = 1.0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def frontier(self) -> int:
        """The first slot that is not decided; the canvas's length when all are."""
        return next((p for p, s in enumerate(self.states) if s is not SlotState.DECIDED), len(self))

    @property
    def finished(self) -> bool:
        """True when no slot is open or provisional."""
        return self.frontier == len(self)

    @property
    def drafts(self) -> list[int]:
        """Ids of the provisional run."""
        return [
            i
            for i, s in zip(self.ids, self.states, strict=True)
            if s is SlotState.PROVISIONAL and i is not None
        ]

    @property
    def text_ids(self) -> list[int]:
        """Ids of the decided slots before the frontier: the text so far."""
        return [i for i in self.ids[: self.frontier] if i is not None]

    @property
    def confidence(self) -> float:
        """Product of the probabilities the decided slots (END included) were accepted with."""
        product = self._end_confidence
        for state, confidence in zip(self.states, self.confidences, strict=True):
            product *= confidence if state is SlotState.DECIDED else 1.0
        return product

    def suggest(self, ids: list[int]) -> None:
        """Replace the provisional run by `ids`, cut behind END, at the canvas's end and at a slot already decided."""
        start = self.frontier
        for place in range(start, len(self)):
            if self.states[place] is SlotState.PROVISIONAL:
                self.ids[place], self.states[place] = None, SlotState.OPEN
        for place, token in zip(range(start, len(self)), ids, strict=False):
            if self.states[place] is SlotState.DECIDED:
                break
            self.ids[place], self.states[place] = token, SlotState.PROVISIONAL
            if token == self._end_id:
                break

    def commit(self, place: int, token: int, confidence: float) -> None:
        """Decide an undecided slot, then apply end-fill."""
        assert self.states[place] is not SlotState.DECIDED, "a decided slot never changes"
        self.ids[place], self.states[place], self.confidences[place] = token, SlotState.DECIDED, confidence
        self.decided_count += 1
        decided = self.text_ids
        if self._end_id in decided:
            self._cut(decided.index(self._end_id))

    def close(self) -> None:
        """End the canvas at its frontier, as END there would."""
        self.ended = True
        self._drop(self.frontier)

    def _cut(self, end: int) -> None:
        self._end_confidence = self.confidences[end]
        self.ended = True
        self._drop(end)

    def _drop(self, start: int) -> None:
        del self.ids[start:], self.states[start:], self.confidences[start:]
