"""The invariants I1 to I8 of what an editor is offered, checked from outside on any document and any items.

I4 (freshness) and I6 (never blocks) belong to a conversation, not to an answer: the tests of those check them.
"""

from __future__ import annotations

import re

from tests.lsp.document import LINE_END, Document, Json

_CONTROL = re.compile(r"<\|[^|<>\s]*\|>|</?s>|\[MASK\]|<(?:mask|pad|eos|unk)>|\ufffd|\x00", re.IGNORECASE)
_WORD = re.compile(r"\w")
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))


def check(document: Document, offset: int, items: list[Json], selected: Json | None = None) -> list[str]:
    """Check every item offered at `offset`; the texts that accepting each of them gives."""
    texts = [_check_item(document, offset, item, selected) for item in items]
    assert len(set(texts)) == len(texts), "I8: an item is offered twice"
    return texts


def _check_item(document: Document, offset: int, item: Json, selected: Json | None) -> str:
    edit = item.get("textEdit", item)
    new: str = edit["newText"] if "newText" in edit else edit["insertText"]
    span = edit["range"]
    assert span["start"]["line"] == span["end"]["line"], "I3: the range is on one line"
    start, end = document.offsets(span)
    assert start <= offset <= end, "I3: the range contains the cursor"
    text = document.text
    before, after = text[start:offset], text[offset:end]
    if selected is None:
        assert new.startswith(before), "I1: what stands before the cursor is stated again"
    else:
        assert new.startswith(selected["text"]), "I1: the selected entry is stated again"
        before = selected["text"]
    inserted = new[len(before) :]
    assert inserted.endswith(after), "I1: what stands after the cursor is stated again"
    inserted = inserted[: len(inserted) - len(after)]
    assert inserted.strip(), "I8: something visible is inserted"
    assert not _CONTROL.search(inserted), "I5: no control text"
    applied = text[:start] + new + text[end:]
    allowed = set(LINE_END.findall(text)) or {"\n"}
    assert set(LINE_END.findall(applied)) <= allowed, "I7: no new kind of line end"
    _check_echo(text[:start] + before, inserted, text[offset:])
    return applied


def _check_echo(prefix: str, inserted: str, suffix: str) -> None:
    """I2: neither the rest of the line nor whole lines below are said again.

    Closers are left out: `foo(█)` may take `bar(x)`, and `{⏎█⏎}` may take a block of its own.
    """
    lines = LINE_END.split(suffix)
    rest = lines[0].rstrip()
    said = LINE_END.split(inserted)
    if rest.strip():
        piece = inserted.rstrip().removesuffix(rest)
        echoed = inserted.rstrip().endswith(rest) and _WORD.search(rest) is not None
        another_depth = not piece.strip() and rest[0].isspace()
        drawing = len(set(rest)) == 1 and (prefix + piece).endswith(rest[0])
        assert not echoed or another_depth or drawing or _leaves_open(piece), f"I2: {rest!r} is there already"
        return
    before = LINE_END.split(prefix)[-1]
    whole = _spoken([before + said[0], *said[1:]])
    below = _spoken(lines[1:])
    for first in range(1 if before.strip() else 0, len(whole)):
        again = whole[first:]
        assert again != below[: len(again)] or not _WORD.search("".join(again)), (
            f"I2: {again} stands below already"
        )


def _spoken(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()]


def _leaves_open(piece: str) -> bool:
    return any(piece.count(opener) > piece.count(closer) for opener, closer in _PAIRS)
