"""What one client's session consists of; every conductor works on it and owns none of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from tenon_engine.wire import EngineInfo, ExtraFile
from tenon_lsp.context import Budget
from tenon_lsp.documents import Documents, Snapshot, path_of
from tenon_lsp.engines.client import Engine
from tenon_lsp.exclude import Exclusions
from tenon_lsp.place import Place
from tenon_lsp.related import OtherText, related
from tenon_lsp.reuse import Reuse
from tenon_lsp.scheduler import Scheduler
from tenon_lsp.settings import Settings
from tenon_lsp.status import Status

REASON_KEPT_S = 5.0  # how long it is believed that a file may, or may not, be read

_USUAL = EngineInfo(model="", prefix_tokens=480, suffix_tokens=128, extra_tokens=256)  # until it is loaded


@dataclasses.dataclass(slots=True)
class Session:
    """The parts. Settings, and the exclusions that follow from them, change as a whole."""

    documents: Documents
    engine: Engine
    scheduler: Scheduler
    status: Status
    folders: Sequence[Path] = ()
    settings: Settings = dataclasses.field(default_factory=Settings)
    exclusions: Exclusions = dataclasses.field(default_factory=lambda: Exclusions((), ()))
    typed: Reuse = dataclasses.field(default_factory=Reuse)  # answers to automatic requests
    invoked: Reuse = dataclasses.field(default_factory=Reuse)  # answers to requests by hand
    _reasons: dict[Path, tuple[float, str]] = dataclasses.field(default_factory=dict)

    def configure(self, settings: Settings) -> None:
        """Work with these settings from now on."""
        self.settings = settings
        self.exclusions = Exclusions(self.folders, settings.exclude)
        self._reasons.clear()

    def excluded(self, snapshot: Snapshot) -> str:
        """Why a document may not be read, '' when it may."""
        path = snapshot.path
        return self._reason(path) if path else ""

    def budget(self) -> Budget:
        """How much context the engine takes."""
        info = self.engine.info or _USUAL
        return Budget.of(info.prefix_tokens, info.suffix_tokens, info.extra_tokens)

    def related(self, place: Place) -> tuple[ExtraFile, ...]:
        """Pieces of other open documents that may help; nothing of an excluded one."""
        if not self.settings.related_files:
            return ()
        others = [
            OtherText(self._relative(path), source, recency)
            for recency, (uri, source) in enumerate(self.documents.others(place.snapshot.uri))
            if (path := path_of(uri)) and not self._reason(path)
        ]
        budget = self.budget().extra_characters
        return related(place.prefix, place.suffix, others, budget_characters=budget)

    def forget(self, uri: str) -> None:
        """A document was closed: nothing of it stays."""
        self.scheduler.cancel(uri)
        self.documents.close(uri)
        self.typed.forget(uri)
        self.invoked.forget(uri)

    def _reason(self, path: Path) -> str:
        """Why a file may not be read; looked up again every few seconds, for its disk may be slow."""
        now_s = time.monotonic()
        found = self._reasons.get(path)
        if found is None or now_s - found[0] > REASON_KEPT_S:
            found = self._reasons[path] = now_s, self.exclusions.reason(path)
        return found[1]

    def _relative(self, path: Path) -> str:
        for folder in self.folders:
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return path.name
