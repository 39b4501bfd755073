"""The pages of docs/editors: what they tell a user to copy can be read, and where they lead there is something."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.editors.pages import FOLDER, blocks

from tenon_lsp.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = sorted(path.name for path in FOLDER.glob("*.md"))
# Where the editors' own configurations hold ours.
OPTIONS = ("initializationOptions", "initialization_options", "config")

_LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@pytest.mark.parametrize("page", PAGES)
def test_what_is_to_be_copied_is_well_formed(page: str) -> None:
    for configuration in _configurations(page):
        assert configuration


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_that_a_page_names_are_there(page: str) -> None:
    for configuration in _configurations(page):
        for options in _options(configuration):
            assert Settings.parse(options)[1] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in _LINK.findall((FOLDER / page).read_text("utf-8")):
        assert (FOLDER / target).exists(), target


def test_every_page_is_in_the_table() -> None:
    targets = set(_LINK.findall((FOLDER / "README.md").read_text("utf-8")))
    assert {page for page in PAGES if page != "README.md"} <= targets


def _configurations(page: str) -> Iterator[Any]:
    for text in [*blocks(page, "json"), *blocks(page, "jsonc")]:
        yield json.loads(text)
    for text in blocks(page, "toml"):
        yield tomllib.loads(text)


def _options(configuration: Any) -> Iterator[Any]:
    if isinstance(configuration, dict):
        for key, value in configuration.items():
            if key in OPTIONS:
                yield value
            else:
                yield from _options(value)
