"""From a model's name to a loaded model: knows every family, and imports one only when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tenon_engine.errors import UnknownModelError
from tenon_engine.models.base import Model
from tenon_engine.progress import Progress, silent

if TYPE_CHECKING:
    from tenon_engine.config import EngineConfig
    from tenon_engine.engine import Engine

EMBEDDED = "tenon-0.5b"
SCRIPTED_PREFIX = "scripted:"


def load_engine(config: EngineConfig, progress: Progress = silent) -> Engine:
    """An engine with the configured model and limits."""
    from tenon_engine.engine import Engine

    model = load(config.model, config, progress)
    return Engine(model, max_tokens=config.max_tokens, min_confidence=config.min_confidence)


def load(name: str, config: EngineConfig, progress: Progress = silent) -> Model:
    """The model called `name`, ready to propose; its weights are fetched or refused as `config` allows."""
    if name.startswith(SCRIPTED_PREFIX):
        from tenon_engine.models.scripted import ScriptedModel

        return ScriptedModel(Path(name.removeprefix(SCRIPTED_PREFIX)))
    if name == EMBEDDED:
        from tenon_engine.models.embedded import load_embedded

        return load_embedded(config, progress)
    raise _unknown(name)


def check(name: str) -> None:
    """Refuse what `load` would not understand, without loading anything."""
    if name != EMBEDDED and not name.startswith(SCRIPTED_PREFIX):
        raise _unknown(name)


def _unknown(name: str) -> UnknownModelError:
    return UnknownModelError(f"there is no model {name!r}; supported: {', '.join(names())}")


def names() -> tuple[str, ...]:
    """What `load` understands."""
    return (EMBEDDED, f"{SCRIPTED_PREFIX}FILE")
