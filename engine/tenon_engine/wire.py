"""The one contract between the engine and whoever asks it: FillRequest, a stream of FillSteps, one FillResult.

Text in, text out: no tokens, no tensors, no HTTP, no LSP. Importing this module imports nothing else of the engine.
Characters are Python characters (code points); times are milliseconds; confidences are probabilities in 0..1.
The JSON forms are at the end: dataclasses are objects, tuples lists, enums their values; what has a default may be
left out, and what is not known is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

DEFAULT_MAX_TOKENS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Hole:
    """A place to fill; `max_tokens` is the size of its canvas, `None` for what suits (the engine's default).

    `text` is what stands there now: a rewrite (`strength` 1, every slot open) or a refinement (`strength` below 1,
    only that share of its tokens is opened again, the least certain ones; the others are locked).
    """

    max_tokens: int | None = None
    text: str = ""
    strength: float = 1.0


Segment = str | Hole


@dataclasses.dataclass(frozen=True, slots=True)
class ExtraFile:
    """Text of another file that may help; read as context, never written."""

    path: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FillRequest:
    """Fixed text and holes in turn: `[text, hole, text, …, hole, text]`, and the limits of the answer."""

    segments: tuple[Segment, ...]
    path: str | None = None
    language: str | None = None  # LSP language id
    extra: tuple[ExtraFile, ...] = ()
    instruction: str | None = None
    candidates: int = 1
    temperature: float = 0.0  # 0 is greedy
    seed: int = 0
    deadline_ms: int | None = None
    session: str = ""  # one document of one editor: requests of a session share the context cache

    @staticmethod
    def single(prefix: str, suffix: str, *, max_tokens: int | None = None, **rest: Any) -> FillRequest:
        """The common case: one hole between `prefix` and `suffix`."""
        return FillRequest(segments=(prefix, Hole(max_tokens), suffix), **rest)


class SlotState(enum.Enum):
    """State of one canvas slot, as a client may draw it."""

    FIXED = "fixed"  # the user's own text, taken back for token healing
    OPEN = "open"
    PROVISIONAL = "provisional"  # a draft the next forward will check
    DECIDED = "decided"


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """One canvas slot after a step: its text ('' while open), state and the confidence it was decided with."""

    text: str
    state: SlotState
    confidence: float


@dataclasses.dataclass(frozen=True, slots=True)
class FillStep:
    """The canvas of one hole's best candidate after one denoising step (`step` counts from 1)."""

    hole: int
    step: int
    slots: tuple[Slot, ...]
    elapsed_ms: float


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One text for a hole, already fitted, with the product of its tokens' probabilities."""

    text: str
    confidence: float


@dataclasses.dataclass(frozen=True, slots=True)
class HoleFill:
    """The answer for one hole; `candidates` best first, empty when there is nothing worth suggesting.

    `reason` says why text was cut or withheld ('' when the model's text stands as it was).
    """

    candidates: tuple[Candidate, ...]
    reason: str = ""

    @property
    def text(self) -> str:
        """The best candidate's text, '' when there is none."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def confidence(self) -> float:
        """The best candidate's confidence, 0 when there is none."""
        return self.candidates[0].confidence if self.candidates else 0.0


class Stopped(enum.Enum):
    """Why denoising ended."""

    DONE = "done"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What a fill cost. Forwards count canvas passes; `tokens` counts decided tokens of all candidates, END included.

    The first forward of a hole also encodes the last part of its context, and counts as denoising.
    """

    forwards: int = 0
    tokens: int = 0
    context_tokens: int = 0
    reused_tokens: int = 0  # of context_tokens, how many came from the context cache
    context_ms: float = 0.0
    denoise_ms: float = 0.0
    total_ms: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """The sum, field by field: the cost of several holes or rounds."""
        return Cost(
            *(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FillResult:
    """One HoleFill per hole of the request, in order, and what they cost together."""

    holes: tuple[HoleFill, ...]
    model: str
    stopped: Stopped = Stopped.DONE
    rounds: int = 1
    cost: Cost = Cost()


@dataclasses.dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a loaded engine is, and how many tokens of context around a hole are worth sending to it."""

    model: str
    prefix_tokens: int
    suffix_tokens: int
    extra_tokens: int  # of all extra files together
    device: str = ""  # where it runs, '' where a model does not say


def to_json(value: FillRequest | FillStep | FillResult | EngineInfo) -> dict[str, Any]:
    """The JSON form of `value`: what `json.dumps` writes and one of the functions below reads."""
    form: dict[str, Any] = _encode(value)
    return form


def request_from_json(data: object) -> FillRequest:
    """The request that `data` is the form of; ValueError, in one sentence, when it is none."""
    request: FillRequest = _decode(FillRequest, data, "request")
    return request


def event_from_json(data: object) -> FillStep | FillResult:
    """The step or result (the one with `holes`) that `data` is the form of; ValueError when it is neither."""
    kind = FillResult if isinstance(data, dict) and "holes" in data else FillStep
    event: FillStep | FillResult = _decode(kind, data, "event")
    return event


def info_from_json(data: object) -> EngineInfo:
    """The EngineInfo that `data` is the form of; ValueError when it is none."""
    info: EngineInfo = _decode(EngineInfo, data, "info")
    return info


_SPELT = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    list: "a list",
    dict: "an object",
}


def _encode(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _decode(kind: Any, data: object, place: str) -> Any:
    """`data` as a value of `kind`, a type as annotations above spell it; `place` is where it stands, for complaints.

    A complaint names types, never values: they may be the user's text.
    """
    choices = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    for choice in choices:
        if type(data) in _json_types(choice):
            return _decode_choice(choice, data, place)
    wanted = " or ".join(_SPELT[_json_types(choice)[0]] for choice in choices)
    raise ValueError(f"{place} must be {wanted}, not {_SPELT.get(type(data), type(data).__name__)}")


def _json_types(kind: Any) -> tuple[type, ...]:
    """What `json` makes of a value of `kind`; exactly these types, for to Python a bool is an int."""
    if dataclasses.is_dataclass(kind):
        return (dict,)
    if get_origin(kind) is tuple:
        return (list,)
    if issubclass(kind, enum.Enum):
        return (str,)
    return (float, int) if kind is float else (kind,)


def _decode_choice(kind: Any, data: Any, place: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _decode_object(kind, data, place)
    if get_origin(kind) is tuple:
        item_kind, _ = get_args(kind)
        return tuple(_decode(item_kind, item, f"{place}[{index}]") for index, item in enumerate(data))
    if issubclass(kind, enum.Enum):
        if data not in {member.value for member in kind}:
            raise ValueError(f"{place} must be one of {', '.join(member.value for member in kind)}")
        return kind(data)
    if kind is float:
        if not abs(data) <= sys.float_info.max:
            raise ValueError(f"{place} must be a finite number")
        return float(data)
    return data


def _decode_object(kind: Any, data: dict[str, object], place: str) -> Any:
    kinds = _field_kinds(kind)
    for name in data:
        if name not in kinds:
            raise ValueError(f"{place} has no field {name[:40]!r}")
    for field in dataclasses.fields(kind):
        if field.name not in data and field.default is dataclasses.MISSING:
            raise ValueError(f"{place} lacks the field {field.name!r}")
    return kind(**{name: _decode(kinds[name], item, f"{place}.{name}") for name, item in data.items()})


@functools.cache
def _field_kinds(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
