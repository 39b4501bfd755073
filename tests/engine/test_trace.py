"""The trace page: self-contained, safe whatever the code says, and true to the steps."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tenon_engine.errors import StorageError
from tenon_engine.trace import write_trace
from tenon_engine.wire import Candidate, Cost, FillRequest, FillResult, FillStep, HoleFill, Slot, SlotState

HOSTILE = (
    "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> & \u2028 {{trace}} \x1b[2J \ud800"
)


class Page(html.parser.HTMLParser):
    """What a browser would find: elements, attributes and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.scripts:
            self.scripts[-1] += data


def slot(text: str, state: SlotState = SlotState.DECIDED, confidence: float = 0.5) -> Slot:
    return Slot(text, state, confidence)


def written(path: Path, request: FillRequest, slots: list[list[Slot]], hole: HoleFill) -> tuple[str, Any]:
    steps = [FillStep(0, number, tuple(row), 10.0 * number) for number, row in enumerate(slots, 1)]
    write_trace(
        path, request, steps, FillResult((hole,), "a-model", cost=Cost(forwards=len(slots), tokens=2))
    )
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    return text, json.loads(page.scripts[0])


def fill(text: str, reason: str = "") -> HoleFill:
    return HoleFill((Candidate(text, 0.75),), reason)


def test_the_page_loads_nothing_from_anywhere(tmp_path: Path) -> None:
    text, _ = written(tmp_path / "t.html", FillRequest.single("a", "b"), [[slot("x")]], fill("x"))
    page = Page()
    page.feed(text)
    assert "link" not in page.tags
    assert "iframe" not in page.tags
    assert not [name for name, _ in page.attributes if name in ("src", "href", "srcset")]
    assert not re.search(r"https?://|@import|url\(|fetch\(", text)


def test_code_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    plain, _ = written(tmp_path / "plain.html", FillRequest.single("a", "b"), [[slot("x")]], fill("x"))
    request = FillRequest.single(HOSTILE, HOSTILE, path=HOSTILE, language=HOSTILE, instruction=HOSTILE)
    text, data = written(tmp_path / "t.html", request, [[slot(HOSTILE)]], fill(HOSTILE, HOSTILE))
    ordinary, hostile = Page(), Page()
    ordinary.feed(plain)
    hostile.feed(text)
    assert hostile.tags == ordinary.tags
    assert data["path"] == HOSTILE
    assert data["holes"][0]["candidates"][0]["text"] == HOSTILE
    assert data["steps"][0]["slots"][0]["text"].startswith("</script><script>")


def test_every_step_is_there_with_its_slots_and_its_time(tmp_path: Path) -> None:
    first = [
        slot("x", SlotState.DECIDED, 0.9),
        slot("y", SlotState.PROVISIONAL, 0.4),
        slot("", SlotState.OPEN, 0.0),
    ]
    _, data = written(
        tmp_path / "t.html", FillRequest.single("a = ", "\n"), [first, [slot("x"), slot("y")]], fill("xy")
    )
    assert [step["ms"] for step in data["steps"]] == [10.0, 20.0]
    assert data["steps"][0]["slots"] == [
        {"text": "x", "state": "decided", "confidence": 0.9},
        {"text": "y", "state": "provisional", "confidence": 0.4},
        {"text": "", "state": "open", "confidence": 0.0},
    ]
    assert (data["model"], data["cost"]["forwards"], data["texts"]) == ("a-model", 2, ["a = ", "\n"])


def test_only_the_lines_around_the_hole_are_shown(tmp_path: Path) -> None:
    prefix = "".join(f"line {number}\r\n" for number in range(1, 1001))
    _, data = written(tmp_path / "t.html", FillRequest.single(prefix, prefix), [[slot("x")]], fill("x"))
    assert data["firstLine"] == 992
    assert data["texts"][0].startswith("line 992\nline 993\n")
    assert len(data["texts"][1].split("\n")) == 10


def test_text_that_the_canvas_repeats_is_not_shown_twice(tmp_path: Path) -> None:
    slots = [slot("win"), slot("ty ="), slot(" 1e")]
    _, data = written(tmp_path / "t.html", FillRequest.single("x\nwinty", "end"), [slots], fill(" = 1"))
    assert data["healed"] == [["winty", "e"]]
    assert data["texts"] == ["x\n", "nd"]


def test_repeated_text_is_found_though_the_fill_was_cut(tmp_path: Path) -> None:
    slots = [slot(" squares"), slot(" = 1\n"), slot("x = ")]
    _, data = written(
        tmp_path / "t.html", FillRequest.single("    squa", "\n"), [slots], fill("res = 1", "unfinished")
    )
    assert data["healed"] == [[" squa", ""]]
    assert data["texts"] == ["   ", "\n"]


def test_an_echo_that_was_cut_is_not_taken_for_the_users_own_text(tmp_path: Path) -> None:
    _, data = written(
        tmp_path / "t.html",
        FillRequest.single("f(", ")"),
        [[slot("a"), slot(")")]],
        fill("a", "echo of the suffix"),
    )
    assert data["healed"] == [["", ""]]
    assert data["texts"] == ["f(", ")"]


def test_a_fill_with_nothing_to_suggest_and_no_steps_still_makes_a_page(tmp_path: Path) -> None:
    _, data = written(tmp_path / "t.html", FillRequest.single("", ""), [], HoleFill((), "nothing"))
    assert data["steps"] == []
    assert data["holes"] == [{"candidates": [], "reason": "nothing"}]


def test_a_page_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        written(tmp_path, FillRequest.single("", ""), [], HoleFill(()))
