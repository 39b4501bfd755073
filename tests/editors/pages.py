"""The configurations that `docs/editors` tells a user to copy, read out of its pages: tests use what they say."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "editors"

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """All fenced blocks of a page in a language, in order."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    return [body for found, body in _FENCE.findall(text) if found == language]


def block(page: str, language: str, holding: str = "") -> str:
    """The one block of a page in a language that has `holding` in it."""
    (found,) = [each for each in blocks(page, language) if holding in each]
    return found
