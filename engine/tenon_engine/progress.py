"""How long work reports how far it is. Knows neither the work nor who shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told often: the stage ("wait", "fetch", "verify", "convert", "load"), bytes done, bytes in all (0: unknown)."""


STAGES = {
    "wait": "waiting for another tenon that fetches the same files",
    "fetch": "fetching",
    "verify": "checking",
    "convert": "converting",
    "load": "loading",
}
"""How a user is told of a stage."""


def silent(stage: str, done_bytes: int, total_bytes: int) -> None:
    """The default Progress: tells nobody."""
