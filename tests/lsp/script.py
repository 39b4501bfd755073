"""The file of a scripted model: what it will say, and what it was asked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.lsp.document import Json, show


class Script:
    """The file of a scripted model: what it will say, and what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._calls_path = Path(f"{path}.calls.jsonl")
        self._seen = 0
        self.says("")

    def says(self, raw: str = "", **entry: Any) -> None:
        """From now on answer every call with `raw`, which may be in the notation of cases."""
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps({"raw": show(raw), **entry}), encoding="utf-8")
        os.replace(draft, self.path)

    def calls(self) -> list[Json]:
        """The calls since `forget_calls`."""
        return self._all()[self._seen :]

    def forget_calls(self) -> None:
        """Count calls from here."""
        self._seen = len(self._all())

    def _all(self) -> list[Json]:
        if not self._calls_path.exists():
            return []
        lines = self._calls_path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
