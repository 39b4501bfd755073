"""What a client's settings mean, and what it is told when they mean nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_lsp.settings import (
    Disabled,
    EngineKind,
    EngineSettings,
    Multiline,
    PopupPolicy,
    Settings,
    SuggestIn,
    describe,
)

EVERYTHING = {
    "enabled": False,
    "debounceMs": 120,
    "deadlineMs": 900,
    "multiline": "never",
    "maxTokens": 48,
    "minConfidence": 0.25,
    "alternatives": 5,
    "whenPopupVisible": "off",
    "suggestIn": {"comments": False, "strings": False, "prose": False},
    "disabled": {"languages": ["markdown"], "globs": ["**/*.cfg"]},
    "exclude": ["!**/.env.example", "*.log"],
    "relatedFiles": False,
    "prefetch": False,
    "holeMarkers": ["???"],
    "engine": {
        "model": "scripted:answers.json",
        "idleMinutes": 10,
        "url": "https://box:8443",
        "kind": "llamacpp",
        "tokenFile": "~/token",
        "caFile": "ca.pem",
    },
}
READ = Settings(
    enabled=False,
    debounce_ms=120,
    deadline_ms=900,
    multiline=Multiline.NEVER,
    max_tokens=48,
    min_confidence=0.25,
    alternatives=5,
    when_popup_visible=PopupPolicy.OFF,
    suggest_in=SuggestIn(comments=False, strings=False, prose=False),
    disabled=Disabled(languages=("markdown",), globs=("**/*.cfg",)),
    exclude=("!**/.env.example", "*.log"),
    related_files=False,
    prefetch=False,
    hole_markers=("???",),
    engine=EngineSettings(
        model="scripted:answers.json",
        idle_minutes=10,
        url="https://box:8443",
        kind=EngineKind.LLAMACPP,
        token_file="~/token",
        ca_file="ca.pem",
    ),
)


def test_every_setting_can_be_set() -> None:
    assert Settings.parse(EVERYTHING) == (READ, [])
    assert not set(values_of(READ)) & set(values_of(Settings()))


def test_keys_may_be_flat_and_the_sections_name_may_stand_before_them() -> None:
    flat = dict(flattened(EVERYTHING))
    assert "suggestIn.comments" in flat
    assert Settings.parse(flat) == (READ, [])
    assert Settings.parse({"tenon": EVERYTHING}) == (READ, [])
    assert Settings.parse({"tenon": flat}) == (READ, [])
    assert Settings.parse({f"tenon.{key}": value for key, value in flat.items()}) == (READ, [])


@pytest.mark.parametrize("nothing", [None, "", {}, [], {"tenon": None}, {"engine": None, "suggestIn": []}])
def test_a_client_that_says_nothing_gets_the_defaults(nothing: object) -> None:
    assert Settings.parse(nothing) == (Settings(), [])


def test_unset_values_are_the_defaults() -> None:
    for unset in (None, ""):
        assert Settings.parse(dict.fromkeys(dict(flattened(EVERYTHING)), unset)) == (Settings(), [])


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (
            {"debounceMs": "fast"},
            '"tenon.debounceMs" must be a whole number from 0 to 5000, not "fast"; its default is used.',
        ),
        (
            {"multiline": "sometimes"},
            '"tenon.multiline" must be one of "auto", "always", "never", not "sometimes"; its default is used.',
        ),
        (
            {"engine": {"idleMinutes": -1}},
            '"tenon.engine.idleMinutes" must be a whole number from 0 to 1440, not -1; its default is used.',
        ),
        (
            {"exclude": "*.log"},
            '"tenon.exclude" must be a list of strings, not "*.log"; its default is used.',
        ),
        (
            {"engine": {"url": "box:8080"}},
            '"tenon.engine.url" must be an address such as http://host:8080, https://host or unix:/path, '
            'not "box:8080"; its default is used.',
        ),
        ({"suggestIn": 5}, '"tenon.suggestIn" must be an object, not 5; its defaults are used.'),
        (
            {"debounce_ms": 5},
            'There is no setting "tenon.debounce_ms" (its value is 5); did you mean "tenon.debounceMs"?',
        ),
        ({"zzz": {"y": [1]}}, 'There is no setting "tenon.zzz.y" (its value is [1]).'),
        (7, '"tenon" must be an object, not 7; its defaults are used.'),
        ({"tenon": False}, '"tenon" must be an object, not false; its defaults are used.'),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(data: object, complaint: str) -> None:
    assert Settings.parse(data) == (Settings(), [complaint])


@pytest.mark.parametrize(
    "wrong",
    [
        {"enabled": 1},
        {"enabled": "true"},
        {"maxTokens": True},
        {"maxTokens": 0},
        {"maxTokens": 1.5},
        {"maxTokens": 10**400},
        {"minConfidence": 1.01},
        {"minConfidence": float("nan")},
        {"deadlineMs": float("inf")},
        {"holeMarkers": [1]},
        {"engine": {"model": ["tenon-0.5b"]}},
        {"engine": {"model": {"name": "tenon-0.5b"}}},
        {"exclude": {"*.log": True}},
        {"engine": {"url": "http://"}},
        {"engine": {"url": "ftp://box"}},
        {"engine": {"url": "unix:"}},
        {"engine": {"url": 8080}},
        {"engine": {"kind": "vllm"}},
    ],
)
def test_a_wrong_value_leaves_the_default(wrong: object) -> None:
    found, complaints = Settings.parse(wrong)
    assert (found, len(complaints)) == (Settings(), 1)


def test_one_wrong_value_spoils_no_other() -> None:
    found, complaints = Settings.parse({**EVERYTHING, "maxTokens": "many", "colour": "grey"})
    assert found == dataclasses.replace(READ, max_tokens=Settings().max_tokens)
    assert len(complaints) == 2


def test_whole_numbers_may_come_as_fractions_and_empty_lists_as_objects() -> None:
    found, complaints = Settings.parse({"maxTokens": 40.0, "holeMarkers": {}, "minConfidence": 0})
    assert (found.max_tokens, found.hole_markers, found.min_confidence, complaints) == (40, (), 0, [])


def test_blank_entries_of_a_list_are_left_out() -> None:
    found, complaints = Settings.parse({"holeMarkers": ["", None, "  ", "???"]})
    assert (found.hole_markers, complaints) == (("???",), [])


@pytest.mark.parametrize(
    "url", ["http://box:8080", "https://box/v1", "unix:/run/engine.sock", " http://box "]
)
def test_an_address_has_a_scheme(url: str) -> None:
    found, complaints = Settings.parse({"engine": {"url": url}})
    assert (found.engine.url, complaints) == (url.strip(), [])


def test_a_long_wrong_value_is_shown_in_part() -> None:
    _, complaints = Settings.parse({"enabled": "x" * 10_000})
    assert len(complaints[0]) < 200


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from((*EVERYTHING, "tenon", "engine.model", "", ".", "comments")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(documents)
def test_whatever_a_client_sends_is_read(data: object) -> None:
    found, complaints = Settings.parse(data)
    assert isinstance(found, Settings)
    assert all(complaint.endswith((".", "?")) and "\n" not in complaint for complaint in complaints)


def test_the_table_names_every_setting_with_its_default() -> None:
    rows = [line.split(" | ") for line in describe().splitlines()[2:]]
    defaults = {
        row[0].removeprefix("| `tenon.").removesuffix("`"): json.loads(row[2].strip("`")) for row in rows
    }
    assert list(defaults) == list(dict(flattened(EVERYTHING)))
    assert Settings.parse(defaults) == (Settings(), [])
    assert len(rows) <= 24
    assert all(len(row) == 4 and row[3].endswith(". |") for row in rows)


def flattened(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested objects under flat keys."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def values_of(group: Any, prefix: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of a tree of settings."""
    for field in dataclasses.fields(group):
        value = getattr(group, field.name)
        if dataclasses.is_dataclass(value):
            yield from values_of(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value
