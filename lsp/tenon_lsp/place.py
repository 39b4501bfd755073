"""Place: a cursor in a snapshot, and what everyone asks about it: its line, its region, the text on both sides."""

from __future__ import annotations

import dataclasses
import re

from tenon_lsp.documents import Snapshot
from tenon_lsp.regions import Region, region_at

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A hole-to-be `[start:end]` of a document; for a plain fill it is empty, at the cursor."""

    snapshot: Snapshot
    region: Region
    start: int
    end: int

    @staticmethod
    def at(snapshot: Snapshot, start: int, end: int | None = None) -> Place:
        """The place `[start:end]`, in the innermost region around its start."""
        end = start if end is None else end
        region = region_at(snapshot, start)
        if end > region.end:
            source = snapshot.text.source
            region = Region(snapshot.language, 0, len(source), source, snapshot.syntax, True)
        return Place(snapshot, region, start, end)

    @property
    def prefix(self) -> str:
        """The region's text before the place."""
        return self.region.text[: self.start - self.region.start]

    @property
    def suffix(self) -> str:
        """The region's text after the place."""
        return self.region.text[self.end - self.region.start :]

    @property
    def before(self) -> str:
        """The line's text before the place."""
        line_start, _ = self.snapshot.text.line_span(self.snapshot.text.line_of(self.start))
        return self.snapshot.text.source[line_start : self.start]

    @property
    def after(self) -> str:
        """The line's text after the place, without the line end."""
        _, line_end = self.snapshot.text.line_span(self.snapshot.text.line_of(self.end))
        return self.snapshot.text.source[self.end : line_end]

    @property
    def line_end(self) -> str:
        """The line end that the document, not just the region, has nearest before the place, else after it."""
        text = self.snapshot.text
        line = max(text.line_of(self.start) - 1, 0)
        nearest = _LINE_END.search(text.source, text.line_span(line)[1])
        return nearest.group() if nearest else "\n"

    @property
    def language(self) -> str:
        """The LSP id of what is written here."""
        return self.region.language
