"""How a checkpoint may be named: by its folder, or by a hub id such as owner/name or owner/name@revision."""

from __future__ import annotations

import re

from tenon_engine.errors import InputFileError
from tenon_engine.runtime import model_folder

MAIN = "main"
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")


def check_name(name: str) -> None:
    """Refuse what is neither a folder that is there nor a hub id; whether the hub has it is not asked."""
    if model_folder(name) is None and not _HUB_ID.fullmatch(name):
        raise InputFileError(f"{name} is not a folder, nor a hub id such as owner/name")


def parts_of(name: str) -> tuple[str, str]:
    """Repository and revision of a hub id."""
    repository, _, revision = name.partition("@")
    return repository, revision or MAIN
