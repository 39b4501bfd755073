"""A document as an editor holds it: text, version, positions in the agreed units, and edits applied strictly.

Written without the product's own arithmetic, so that the two can disagree. Also the notation of written cases:
`█` cursor, `⟦…⟧` selection, `⏎` LF, `␍⏎` CRLF, `⇥` tab, `␣` a space that matters.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from tenon_lsp.hunks import Edit

Json = dict[str, Any]

LINE_END = re.compile(r"\r\n|\r|\n")
_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
_SIGNS = str.maketrans({"⏎": "\n", "␍": "\r", "⇥": "\t", "␣": " "})


class OutsideError(AssertionError):
    """A position that the document does not have."""


class StaleEditError(AssertionError):
    """An edit for another version of the document."""


def show(text: str) -> str:
    """The text that the notation stands for."""
    return text.translate(_SIGNS)


def applied(text: str, edits: Sequence[Edit]) -> str:
    """`text` with edits that are in order and apart from each other."""
    for edit in reversed(edits):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def at_cursor(marked: str) -> tuple[str, int]:
    """The text of a case and the offset of its cursor."""
    before, after = show(marked).split("█")
    return before + after, len(before)


def at_selection(marked: str) -> tuple[str, int, int]:
    """The text of a case and the span of its selection."""
    before, rest = show(marked).split("⟦")
    selected, after = rest.split("⟧")
    return before + selected + after, len(before), len(before) + len(selected)


def units(text: str, encoding: str) -> int:
    """How long `text` is in the units of `encoding`."""
    codec, width = _CODECS[encoding]
    return len(text.encode(codec)) // width


@dataclasses.dataclass(slots=True)
class Document:
    """One open document. Offsets are Python characters."""

    uri: str
    language: str
    text: str
    encoding: str
    version: int = 1

    def lines(self) -> list[tuple[int, int]]:
        """Start and end of every line, line ends left out."""
        ends = [(match.start(), match.end()) for match in LINE_END.finditer(self.text)]
        starts = [0, *(end for _, end in ends)]
        stops = [*(start for start, _ in ends), len(self.text)]
        return list(zip(starts, stops, strict=True))

    def position(self, offset: int) -> Json:
        """The protocol's position of `offset`."""
        number, (start, _) = max(
            (found for found in enumerate(self.lines()) if found[1][0] <= offset), key=lambda found: found[0]
        )
        return {"line": number, "character": units(self.text[start:offset], self.encoding)}

    def span(self, start: int, end: int) -> Json:
        """The protocol's range from `start` to `end`."""
        return {"start": self.position(start), "end": self.position(end)}

    def offset(self, position: Json) -> int:
        """The offset of a position, which must exist exactly."""
        lines = self.lines()
        if not 0 <= position["line"] < len(lines):
            raise OutsideError(f"{position} is past the last line of {len(lines)} lines")
        start, end = lines[position["line"]]
        for offset in range(start, end + 1):
            if units(self.text[start:offset], self.encoding) == position["character"]:
                return offset
        raise OutsideError(f"{position} is no place of the line {self.text[start:end]!r}")

    def offsets(self, span: Json) -> tuple[int, int]:
        """Start and end of a range, in order."""
        start, end = self.offset(span["start"]), self.offset(span["end"])
        if start > end:
            raise OutsideError(f"{span} ends before it starts")
        return start, end

    def with_item(self, item: Json) -> str:
        """The text after an inline item, or a completion item's edit, was accepted."""
        edit = item.get("textEdit", item)
        start, end = self.offsets(edit["range"])
        new = edit["newText"] if "newText" in edit else edit["insertText"]
        return self.text[:start] + str(new) + self.text[end:]

    def with_edits(self, edits: list[Json]) -> str:
        """The text after several edits of this version, which must not overlap."""
        spans = sorted(
            ((*self.offsets(edit["range"]), edit["newText"]) for edit in edits), key=lambda s: s[:2]
        )
        text, reached = "", 0
        for start, end, new in spans:
            if start < reached:
                raise OutsideError(f"two edits overlap at offset {start}")
            text, reached = text + self.text[reached:start] + new, end
        return text + self.text[reached:]

    def with_workspace_edit(self, edit: Json) -> str:
        """The text after a workspace edit of this document alone, in its present version."""
        changes: list[Json] = edit.get("documentChanges") or []
        if not changes:
            ((uri, edits),) = edit["changes"].items()
            changes = [{"textDocument": {"uri": uri, "version": None}, "edits": edits}]
        (change,) = changes
        if change["textDocument"]["uri"] != self.uri:
            raise StaleEditError(f"an edit of {change['textDocument']['uri']}, not of {self.uri}")
        if change["textDocument"].get("version") not in (None, self.version):
            raise StaleEditError(
                f"an edit of version {change['textDocument']['version']}, not {self.version}"
            )
        return self.with_edits(change["edits"])
