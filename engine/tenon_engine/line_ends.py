"""Line ends: models read and write LF alone, documents keep the kind they have.

CRLF, LF and a lone CR are kinds; other characters that some call line ends are ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ANY = re.compile(r"\r\n?")


def to_lf(text: str) -> str:
    """`text` with every line end as LF."""
    return _ANY.sub("\n", text)


def offsets(text: str) -> list[int]:
    """Where each character of `to_lf(text)` stands in `text`, and at last where `text` ends."""
    return [*(found.start() for found in re.finditer(r"\r\n|.", text, re.DOTALL)), len(text)]


def dominant(texts: Iterable[str]) -> str:
    """The most frequent line end of a document, LF when it has none."""
    counts = {"\n": 0, "\r\n": 0, "\r": 0}
    for text in texts:
        pairs = text.count("\r\n")
        counts["\r\n"] += pairs
        counts["\n"] += text.count("\n") - pairs
        counts["\r"] += text.count("\r") - pairs
    return max(counts, key=lambda kind: counts[kind])


def splits_or_joins(before: str, text: str, after: str) -> bool:
    """Whether `text` between `before` and `after` would tear a CRLF apart, or join a CR and an LF to one."""
    left, right = before[-1:], after[:1]
    if left + right == "\r\n":
        return True
    return left + text[:1] == "\r\n" or text[-1:] + right == "\r\n"
