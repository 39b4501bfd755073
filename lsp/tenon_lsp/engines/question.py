"""One hole as a text model elsewhere is asked about it, and the texts that it answered, in no protocol's form.

Knows no HTTP, and not what becomes of the texts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Protocol

from tenon_engine import comment
from tenon_engine.wire import DEFAULT_MAX_TOKENS, Candidate, ExtraFile

ALTERNATIVES_TEMPERATURE = (
    0.7  # where several texts are wanted, greedy decoding would give the same one again
)
UNKNOWN_CONFIDENCE = 1.0  # where the other side does not say how sure it is, no threshold holds its text back

_CHARACTERS_PER_TOKEN = 2  # of dense code; too many tokens do less harm than too few
_TOKENS_MAX = 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What stands on both sides of a hole, and what may come in between. Line ends are LF."""

    prefix: str
    suffix: str
    old: str  # what stands in the hole now
    max_tokens: int
    candidates: int
    temperature: float
    seed: int
    deadline_ms: int
    path: str | None = None
    language: str | None = None
    extra: tuple[ExtraFile, ...] = ()
    instruction: str | None = None

    @property
    def instructed_prefix(self) -> str:
        """The prefix, with the instruction as a comment line before the hole's line."""
        if self.instruction is None:
            return self.prefix
        return comment.with_instruction(self.prefix, self.instruction, self.language)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Raw texts, best first; none, for a `reason`, where the model did not answer as it was told to."""

    candidates: tuple[Candidate, ...]
    reason: str = ""
    tokens: int = 0


class Dialect(Protocol):
    """One protocol: how it is asked, and how its answer is read."""

    @property
    def route(self) -> str:
        """Where it is asked."""
        ...

    def message(self, question: Question) -> dict[str, object]:
        """The body of the request."""
        ...

    def answer(self, form: object) -> Answer:
        """What the body of the answer says; ValueError, in a few words, when it is none."""
        ...

    def without(self, complaint: str) -> Dialect | None:
        """The same protocol without what the other side complains about; None when nothing can be left out."""
        ...


def size(max_tokens: int | None, old: str) -> int:
    """How many tokens a hole may take that may not say it."""
    if max_tokens is not None:
        return max_tokens
    return min(DEFAULT_MAX_TOKENS + len(old) // _CHARACTERS_PER_TOKEN, _TOKENS_MAX)


def sampling(question: Question) -> dict[str, object]:
    """The fields about sampling that OpenAI's protocols share; those with usual values are left out."""
    has_several = question.candidates > 1
    temperature = question.temperature or (ALTERNATIVES_TEMPERATURE if has_several else 0.0)
    fields: dict[str, object] = {"temperature": temperature, "stream": False}
    if has_several:
        fields["n"] = question.candidates
    if question.seed:
        fields["seed"] = question.seed
    return fields


def confidence(log_probabilities: Iterable[object]) -> float:
    """The product of the tokens' probabilities; UNKNOWN_CONFIDENCE where there are none."""
    try:
        numbers = [float(each) for each in log_probabilities if isinstance(each, int | float)]
    except OverflowError:
        raise ValueError("a log probability is no number") from None
    known = [min(0.0, number) for number in numbers if not math.isnan(number)]
    return math.exp(math.fsum(known)) if known else UNKNOWN_CONFIDENCE


def choices(form: object) -> list[dict[str, object]]:
    """The choices of an answer in OpenAI's form."""
    match form:
        case {"choices": [*found]} if found and all(isinstance(each, dict) for each in found):
            return found
    raise ValueError('it has no "choices"')


def tokens_used(form: object) -> int:
    """The tokens written, as an answer in OpenAI's form counts them."""
    match form:
        case {"usage": {"completion_tokens": int(count)}}:
            return count
    return 0
