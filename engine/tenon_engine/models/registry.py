"""From a model's name to a loaded model: knows every family, and imports one only when it is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tenon_engine.errors import UnknownModelError
from tenon_engine.models.base import Model
from tenon_engine.models.hub import families
from tenon_engine.models.hub.names import check_name
from tenon_engine.progress import Progress, silent
from tenon_engine.runtime import EMBEDDED as EMBEDDED  # re-exported: callers of `load` name it
from tenon_engine.runtime import SCRIPTED_PREFIX as SCRIPTED_PREFIX
from tenon_engine.runtime import model_folder

if TYPE_CHECKING:
    from tenon_engine.config import EngineConfig
    from tenon_engine.engine import Engine


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
    check(name)
    return families.load(name, config, progress)


def check(name: str) -> None:
    """Refuse what `load` would not understand, without loading anything."""
    if name == EMBEDDED or name.startswith(SCRIPTED_PREFIX):
        return
    if not is_of_the_hub(name):
        raise UnknownModelError(f"there is no model {name!r}; supported: {', '.join(names())}")
    check_name(name)


def is_of_the_hub(name: str) -> bool:
    """Whether it is a path or a hub id, which have a slash, or a folder that is there."""
    return not name.startswith(SCRIPTED_PREFIX) and (
        "/" in name or os.sep in name or model_folder(name) is not None
    )


def names() -> tuple[str, ...]:
    """What `load` understands."""
    return (EMBEDDED, f"{SCRIPTED_PREFIX}FILE", "a folder with a checkpoint", *families.examples())
