"""What one client's session consists of; every conductor works on it and owns none of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tenon_engine.wire import EngineInfo, ExtraFile
from tenon_lsp.context import Budget
from tenon_lsp.documents import Change, Documents, Snapshot, name_of, path_of
from tenon_lsp.engines.client import Engine
from tenon_lsp.exclude import Exclusions, disabled_by, not_patterns
from tenon_lsp.place import Place
from tenon_lsp.related import OtherText, related
from tenon_lsp.reuse import Reuse
from tenon_lsp.scheduler import Scheduler
from tenon_lsp.settings import Settings
from tenon_lsp.status import Level, Status

ACTION = "#action"  # behind a document's uri: what the scheduler calls the work of a code action
REASON_KEPT_S = 5.0  # how long it is believed that a file may, or may not, be read
_SHOWN_CHARACTERS = 60
_SHOWN_PATTERNS = 3

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
    _not_patterns: list[str] = dataclasses.field(default_factory=list)

    def configure(self, settings: Settings) -> None:
        """Work with these settings from now on."""
        exclusions = Exclusions(self.folders, settings.exclude)  # before anything changes
        self.settings, self.exclusions = settings, exclusions
        self._reasons.clear()
        self._complain(not_patterns((*settings.exclude, *settings.disabled.globs)))

    def excluded(self, snapshot: Snapshot) -> str:
        """Why a document may not be read, '' when it may."""
        path = path_of(snapshot.file_uri)
        return self._reason(path) if path else self.exclusions.reason_by_name(name_of(snapshot.file_uri))

    def disabled(self, snapshot: Snapshot) -> bool:
        """Whether the user wants no suggestions while typing in this file."""
        path = path_of(snapshot.file_uri) or name_of(snapshot.file_uri)
        return bool(disabled_by(self.settings.disabled.globs, path, self.folders))

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

    def open(self, uri: str, language: str, version: int, source: str) -> None:
        """Follow a document; nothing of one that was open under this name stays."""
        self.forget(uri)
        self.documents.open(uri, language, version, source)

    def change(self, uri: str, version: int, changes: Iterable[Change]) -> bool:
        """Follow a change: a key was typed, work on the text before it is over. False when the document is not open."""
        self.scheduler.cancel(uri)
        self.scheduler.drop(uri + ACTION)
        return self.documents.change(uri, version, changes)

    def forget(self, uri: str) -> None:
        """A document was closed: nothing of it stays."""
        self.scheduler.drop(uri)
        self.scheduler.drop(uri + ACTION)
        self.documents.close(uri)
        self.typed.forget(uri)
        self.invoked.forget(uri)

    def _complain(self, lines: list[str]) -> None:
        """Tell the user of the lines that are no patterns, unless that was said of the settings before."""
        new = [line for line in lines if line not in self._not_patterns]
        self._not_patterns = lines
        if new:
            shown = ", ".join(f'"{line[:_SHOWN_CHARACTERS]}"' for line in new[:_SHOWN_PATTERNS])
            more = f" and {len(new) - _SHOWN_PATTERNS} more" if len(new) > _SHOWN_PATTERNS else ""
            self.status.say(
                f"tenon.exclude, tenon.disabled.globs: no pattern, left out: {shown}{more}.", Level.WARNING
            )

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
