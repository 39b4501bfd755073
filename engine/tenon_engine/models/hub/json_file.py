"""JSON files of a checkpoint. Knows nothing of what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenon_engine.errors import WeightsCorruptError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one when there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsCorruptError(f"{path} cannot be read ({error}): get the checkpoint again") from error
    if not isinstance(content, dict):
        raise WeightsCorruptError(f"{path} is damaged (it holds no object): get the checkpoint again")
    return content
