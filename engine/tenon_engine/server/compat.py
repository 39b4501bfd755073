"""What the two foreign APIs have in common: limits as their clients mean them, stop texts, server-sent events.

A fill is fitted as a whole, so a stream of theirs carries all of its text at once, when it is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

from tenon_engine.server.answers import encode
from tenon_engine.server.schemas import SEED_BITS
from tenon_engine.wire import DEFAULT_MAX_TOKENS

EVENTS_TYPE = "text/event-stream"


def canvas_size(tokens_at_most: int | None) -> int | None:
    """The `max_tokens` of a hole whose client wants no more than so many; negative and None are no limit.

    Clients ask for what would be too much rather than for what they need, and too large a canvas only makes a fill
    slower and worse: from the usual size on, the engine chooses.
    """
    if tokens_at_most is None or not 0 <= tokens_at_most < DEFAULT_MAX_TOKENS:
        return None
    return tokens_at_most


def seed(value: int | None) -> int:
    """Any whole number as a seed; theirs may be negative, for "any"."""
    return (value or 0) % (1 << SEED_BITS)


def cut(text: str, stops: Iterable[str]) -> tuple[str, str]:
    """`text` up to the first of the stop texts, and which one that is ('': none)."""
    found = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    at, stop = min(found, default=(len(text), ""))
    return text[:at], stop


def events(*values: object, end: bytes = b"") -> Response:
    """`values` as server-sent events."""
    lines = [b"data: " + encode(value) + b"\n\n" for value in values]
    return Response(b"".join(lines) + end, media_type=EVENTS_TYPE)
