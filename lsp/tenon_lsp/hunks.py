"""The edits that turn one text into another, each as small as its lines allow: a diff shows no more than changed."""

from __future__ import annotations

import dataclasses
import difflib

from tenon_lsp.text import common_length


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """`new` in place of `[start:end]` of a document."""

    start: int
    end: int
    new: str


def hunks(old: str, new: str, offset: int) -> list[Edit]:
    """What makes `new` of `old`, which stands at `offset`: in order, apart from each other, none for equal texts."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        _trimmed(offset + starts[i1], "".join(before[i1:i2]), "".join(after[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def _trimmed(start: int, old: str, new: str) -> Edit:
    """One replacement without what both texts begin and end with; a line end is never cut in two."""
    head = common_length(old, new)
    if "\r\n" in (old[head - 1 : head + 1], new[head - 1 : head + 1]):
        head -= 1
    rest = min(len(old), len(new)) - head
    tail = common_length(old[::-1][:rest], new[::-1][:rest])
    if tail and "\r\n" in (
        old[len(old) - tail - 1 : len(old) - tail + 1],
        new[len(new) - tail - 1 : len(new) - tail + 1],
    ):
        tail -= 1
    return Edit(start + head, start + len(old) - tail, new[head : len(new) - tail])
