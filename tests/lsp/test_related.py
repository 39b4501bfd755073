"""Which pieces of other texts are read for a hole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.wire import ExtraFile
from tenon_lsp.related import CHUNK_CHARACTERS, OtherText, related

CLIENT = '''class EngineClient:
    """Asks the engine."""

    def fill_hole(self, fill_request):
        return self.connection.send(fill_request)
'''
PAINT = """class Painter:
    def paint(self, canvas_widget, brush):
        brush.move(canvas_widget)
"""


def test_the_text_that_shares_identifiers_is_read() -> None:
    others = [OtherText("paint.py", PAINT, 2), OtherText("client.py", CLIENT, 1)]
    found = related("client = EngineClient()\nclient.fill_hole(", ")\n", others, budget_characters=2000)
    assert found == (ExtraFile("client.py", CLIENT),)


def test_the_best_piece_stands_last() -> None:
    weaker = "def send(connection, fill_request):\n    connection.queue.put(fill_request, block=True)\n"
    others = [OtherText("client.py", CLIENT, 1), OtherText("send.py", weaker, 9)]
    near = "client = EngineClient(connection)\nreturn client.fill_hole(fill_request)\n"
    found = related(near, "", others, budget_characters=2000)
    assert [extra.path for extra in found] == ["send.py", "client.py"]


def test_parts_of_camel_case_and_snake_case_names_are_the_same_words() -> None:
    others = [OtherText("a.ts", "export function parseHttpHeader(line: string) {}\n", 1)]
    assert related("parse_http_header = ", "\n", others, budget_characters=500)
    assert related("new HTTPHeaderParser(", ")\n", others, budget_characters=500)


def test_of_pieces_worth_the_same_the_one_worked_on_later_stands_last() -> None:
    copies = [
        OtherText(path, f"# {path}\n{CLIENT}", recency) for path, recency in (("a", 1), ("b", 3), ("c", 2))
    ]
    found = related("EngineClient().fill_hole(", ")\n", copies, budget_characters=2000)
    assert [extra.path for extra in found] == ["a", "c", "b"]


def test_the_same_text_is_read_once() -> None:
    others = [OtherText("a.py", CLIENT, 1), OtherText("copy.py", CLIENT, 2)]
    found = related("EngineClient().fill_hole(", ")\n", others, budget_characters=2000)
    assert found == (ExtraFile("copy.py", CLIENT),)


def test_what_does_not_fit_makes_room_for_what_does() -> None:
    long = CLIENT + "".join(f"    fill_hole_{number} = EngineClient\n" for number in range(20))
    others = [OtherText("long.py", long, 2), OtherText("short.py", CLIENT, 1)]
    budget = len("short.py") + len(CLIENT)
    assert related("EngineClient().fill_hole(", "", others, budget_characters=budget) == (
        ExtraFile("short.py", CLIENT),
    )
    assert related("EngineClient().fill_hole(", "", others, budget_characters=budget - 1) == ()


def test_nothing_is_read_where_nothing_is_shared() -> None:
    others = [
        OtherText("client.py", CLIENT, 1),
        OtherText("empty.py", "", 2),
        OtherText("blank.py", "\n \r\n", 3),
    ]
    assert related("", "", others, budget_characters=2000) == ()
    assert related("x = 1\n", "", others, budget_characters=2000) == ()
    assert related("EngineClient(", "", [], budget_characters=2000) == ()


def test_a_text_is_cut_between_its_functions() -> None:
    functions = [
        f"def function_{number}(argument):\n" + f"    value_{number} = argument\n\n" * 12
        for number in range(9)
    ]
    other = OtherText("many.py", "\n".join(functions), 1)
    found = related("value_4 = function_4(", "", [other], budget_characters=600)
    assert [extra.text.rstrip() for extra in found] == [functions[4].rstrip()]


def test_lines_no_one_wrote_by_hand_are_not_read() -> None:
    minified = "EngineClient.fill_hole();" * CHUNK_CHARACTERS
    other = OtherText("app.min.js", f"{minified}\n// fill_hole\n{minified}", 1)
    found = related("EngineClient.fill_hole", ".fill_hole", [other], budget_characters=10**6)
    assert found in ((), (ExtraFile("app.min.js", "// fill_hole\n"),))


def test_another_process_finds_the_same() -> None:
    folder = Path(__file__).parents[2] / "lsp" / "tenon_lsp"
    near, *texts = [
        (folder / f"{name}.py").read_text("utf-8") for name in ("related", "exclude", "settings", "positions")
    ]
    others = [OtherText(str(number), text, 0) for number, text in enumerate(texts)]
    found = related(near, "", others, budget_characters=4000)
    assert found
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-"],
            input=f"from tenon_lsp.related import *\nprint(related({near!r}, '', {others!r}, budget_characters=4000))",
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == repr(found)


names = st.sampled_from(("engine", "fillHole", "fill_hole", "Request", "x", "canvas", "größe", "token_ids"))
lines = st.one_of(
    st.just(""),
    st.just("   "),
    st.lists(names, min_size=1, max_size=5).map(" = ".join),
    st.lists(names, min_size=1, max_size=5).map(lambda found: "    " + "(".join(found)),
    st.just("def function(engine):"),
    st.just("page\x0cbreak\u2028engine"),
    st.just("y" * (CHUNK_CHARACTERS + 1)),
    st.just("canvas " * (CHUNK_CHARACTERS // 9)),
)
line_ends = st.sampled_from(("\n", "\n", "\r\n", "\r"))
texts = st.builds(
    lambda pairs, last: "".join(line + end for line, end in pairs) + last,
    st.lists(st.tuples(lines, line_ends), max_size=60),
    lines,
)
other_texts = st.lists(texts, max_size=4).map(
    lambda found: [OtherText(f"{number}.py", text, number % 2) for number, text in enumerate(found)]
)
budgets = st.integers(min_value=-1, max_value=5000)


@given(texts, texts, other_texts, budgets)
def test_what_is_read_is_whole_lines_within_the_budget(
    prefix: str, suffix: str, others: list[OtherText], budget: int
) -> None:
    found = related(prefix, suffix, others, budget_characters=budget)
    assert sum(len(extra.path) + len(extra.text) for extra in found) <= max(0, budget)
    sources = {other.path: other.text for other in others}
    for extra in found:
        assert extra.text.strip()
        assert stands_in_whole_lines(extra.text, sources[extra.path])


@given(texts, texts, other_texts, budgets)
def test_the_order_in_which_texts_are_given_does_not_matter(
    prefix: str, suffix: str, others: list[OtherText], budget: int
) -> None:
    found = related(prefix, suffix, others, budget_characters=budget)
    assert related(prefix, suffix, others[::-1], budget_characters=budget) == found


@given(texts, texts, other_texts, names, st.integers(min_value=0))
def test_the_answer_stays_while_a_word_is_typed(
    prefix: str, suffix: str, others: list[OtherText], word: str, rest: int
) -> None:
    before, after = f"{prefix}\n  (", f"{word[rest % len(word) :]})\n{suffix}"
    answers = {
        related(before + word[:typed], after, others, budget_characters=3000)
        for typed in range(len(word) + 1)
    }
    assert len(answers) == 1


def test_the_answer_depends_on_what_stands_near_the_cursor_alone() -> None:
    others = [OtherText("client.py", CLIENT, 1), OtherText("paint.py", PAINT, 2)]
    far = "Painter().paint(canvas_widget, brush)\n" * 9 + "pass\n" * 2000
    near = "client = EngineClient()\nclient.fill_hole(\n"
    assert related(far + near, far[::-1], others, budget_characters=2000) == (ExtraFile("client.py", CLIENT),)


def stands_in_whole_lines(piece: str, text: str) -> bool:
    """Whether the piece is somewhere in the text, from the start of a line to the end of one."""
    borders = {0, len(text)} | {match.end() for match in re.finditer(r"\r\n|\r|\n", text)}
    starts = (start for start in borders if text.startswith(piece, start))
    return any(start + len(piece) in borders for start in starts)
