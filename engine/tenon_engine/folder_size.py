"""How much a folder holds while somebody else works in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def size_bytes(folder: Path) -> int:
    """Of all files below `folder`; files and folders that go meanwhile are left out."""
    total = 0
    for parent, _, names in os.walk(folder):  # leaves out a folder that has gone
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total
