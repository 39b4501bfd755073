"""`scripted:FILE`: a model that answers from a JSON file, so that everything around a model can be tested.

FILE is one object or a list used in turn (the last repeats); it is read again on each call. Every call is
appended to `FILE.calls.jsonl`, exactly as the engine made it.

Only `propose` counts as a call. Text is scored by the `scores` of the entry used last (the first one before that), a
list of `[piece, probability]`: each piece is looked for behind the one before it and left out where it is not found,
and all words that no piece covers are equally likely.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tenon_engine.errors import InputFileError, ModelFailedError
from tenon_engine.models.base import (
    ContextBudget,
    Draft,
    HoleRequest,
    Proposal,
    Scores,
    StopCheck,
    TokenScore,
)
from tenon_engine.wire import Cost, Slot, SlotState

BUDGET = ContextBudget(prefix_tokens=480, suffix_tokens=128, extra_tokens=256)  # what the default model has
WAIT_SLICE_MS = 5.0  # between two questions to stop() while nothing happens
UNSCORED = 0.5  # probability of a word that the script does not score

_WORD = re.compile(r"\s*\S+|\s+\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """What to do in one call."""

    raw: str
    delay_ms: float = 0.0
    fail: str | None = None
    hang: bool = False
    confidence: float = 1.0
    scores: tuple[tuple[str, float], ...] = ()
    others: tuple[str, ...] = ()  # the further candidates, where several are asked for


class ScriptedModel:
    """A model whose answers are written down beforehand."""

    device = ""
    reads_instructions = False

    def __init__(self, path: Path) -> None:
        self.name = f"scripted:{path}"
        self.budget = BUDGET
        self._path = path
        self._calls = 0
        self._calling = threading.Lock()
        _read(path)  # a script that cannot be read is reported now, not at the first keystroke

    def propose(self, hole: HoleRequest, stop: StopCheck) -> Iterator[Proposal]:
        """Yield the raw text of this call's entry, a word more at each step."""
        entries = _read(self._path)
        with self._calling:
            entry = entries[min(self._calls, len(entries) - 1)]
            self._calls += 1
            self._record(hole)
        if entry.fail is not None:
            raise ModelFailedError(entry.fail)
        started = time.perf_counter()
        if _wait(float("inf") if entry.hang else entry.delay_ms, stop):
            return
        words = _WORD.findall(entry.raw) or [entry.raw]
        for count in range(1, len(words) + 1):
            elapsed_ms = (time.perf_counter() - started) * 1e3
            yield _proposal(entry, words, count, elapsed_ms, others=entry.others[: hole.candidates - 1])
            if stop():
                return

    def score(self, hole: HoleRequest, text: str, stop: StopCheck) -> Scores:
        """The pieces of the script that `text` holds, and its other words."""
        entries = _read(self._path)
        entry = entries[min(max(self._calls - 1, 0), len(entries) - 1)]
        tokens: list[TokenScore] = []
        position = 0
        for piece, probability in entry.scores:
            start = text.find(piece, position)
            if start >= 0:
                tokens += _unscored(text, position, start)
                position = start + len(piece)
                tokens.append(TokenScore(start, position, probability))
        tokens += _unscored(text, position, len(text))
        return Scores(tuple(tokens), Cost(forwards=1), finished=stop() is None)

    def count_tokens(self, text: str) -> int:
        """Its words."""
        return len(_WORD.findall(text))

    def _record(self, hole: HoleRequest) -> None:
        call = {
            "prefix": hole.prefix,
            "suffix": hole.suffix,
            "language": hole.language,
            "path": hole.path,
            "max_tokens": hole.max_tokens,
            "candidates": hole.candidates,
            "extra": [dataclasses.asdict(file) for file in hole.extra],
        }
        with Path(f"{self._path}.calls.jsonl").open("a", encoding="utf-8") as calls:
            calls.write(json.dumps(call) + "\n")


def _proposal(
    entry: Entry, words: list[str], count: int, elapsed_ms: float, *, others: Sequence[str]
) -> Proposal:
    decided = [Slot(word, SlotState.DECIDED, entry.confidence) for word in words[:count]]
    is_finished = count == len(words)
    texts = ["".join(words[:count]), *(others if is_finished else ())]
    return Proposal(
        drafts=tuple(Draft(text, entry.confidence, finished=is_finished) for text in texts),
        slots=(*decided, *[Slot("", SlotState.OPEN, 0.0)] * (len(words) - count)),
        cost=Cost(forwards=count, tokens=count, denoise_ms=elapsed_ms),
    )


def _unscored(text: str, start: int, end: int) -> list[TokenScore]:
    return [TokenScore(*word.span(), UNSCORED) for word in _WORD.finditer(text, start, end)]


def _wait(milliseconds: float, stop: StopCheck) -> bool:
    """Let time pass; True as soon as there is a reason to stop."""
    end = time.monotonic() + milliseconds / 1e3
    while (left := end - time.monotonic()) > 0:
        if stop():
            return True
        time.sleep(min(left, WAIT_SLICE_MS / 1e3))
    return stop() is not None


def _read(path: Path) -> list[Entry]:
    try:
        script = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputFileError(f"the script {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, nesting without end
        raise InputFileError(f"the script {path} is not valid JSON: {error}") from error
    entries = script if isinstance(script, list) else [script]
    if not entries:
        raise InputFileError(f"the script {path} is an empty list, it needs at least one object")
    return [_entry(entry, path) for entry in entries]


def _entry(script: Any, path: Path) -> Entry:
    if not isinstance(script, dict):
        raise InputFileError(f"the script {path} must hold objects, not {json.dumps(script)[:40]}")
    wrong = [key for key, value in script.items() if not isinstance(value, _KINDS.get(key, ()))]
    if wrong:
        raise InputFileError(f"the script {path} has an unknown key or a wrong value at {wrong[0]!r}")
    scores = script.get("scores", [])
    if not all(map(_is_score, scores)):
        raise InputFileError(f"the script {path} has scores that are no pairs of a text and a probability")
    others = script.get("others", [])
    if not all(isinstance(other, str) for other in others):
        raise InputFileError(f"the script {path} has others that are no texts")
    lists = {"scores": tuple((piece, value) for piece, value in scores), "others": tuple(others)}
    entry = Entry(**{"raw": "", **script, **lists})
    if not 0 <= entry.confidence <= 1:
        raise InputFileError(f"the script {path} has a confidence outside 0 to 1: {entry.confidence}")
    return entry


def _is_score(value: Any) -> bool:
    match value:
        case [str(piece), int() | float() as probability]:
            return bool(piece) and 0 <= probability <= 1
    return False


_KINDS: dict[str, tuple[type, ...]] = {
    "raw": (str,),
    "delay_ms": (int, float),
    "fail": (str, type(None)),
    "hang": (bool,),
    "confidence": (int, float),
    "scores": (list,),
    "others": (list,),
}
