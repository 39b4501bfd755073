"""The documentation of the settings is the table that the settings themselves make."""

from __future__ import annotations

from pathlib import Path

from tenon_lsp.settings import describe

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_lists_every_setting_as_it_is() -> None:
    assert describe() in PAGE.read_text(encoding="utf-8")
