"""What users report about completion, replayed through the real engine with a scripted model.

`█` is the cursor, `⏎` a line end, `⇥` a tab, `␣` a space that matters; the number is the reported case.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenon_engine.engine import Engine
from tenon_engine.models.scripted import ScriptedModel
from tenon_engine.wire import FillRequest, FillResult


def show(text: str) -> str:
    return text.replace("⏎", "\n").replace("⇥", "\t").replace("␣", " ")


def replay(folder: Path, document: str, raw: str, **limits: int) -> FillResult:
    script = folder / "script.json"
    script.write_text(json.dumps({"raw": show(raw)}), encoding="utf-8")
    prefix, suffix = show(document).split("█")
    return Engine(ScriptedModel(script)).fill(FillRequest.single(prefix, suffix, **limits))


CASES = [
    ("U01 stray spaces after a tab", "def hi(n):⏎⇥█", "␣␣␣print(n)", "print(n)"),
    ("U01 every line one off", "def f():⏎␣␣␣␣█", "␣a = 1⏎␣␣␣␣␣b = 2", "a = 1⏎␣␣␣␣b = 2"),
    ("U01 two-space steps", "if a:⏎␣␣␣␣█", "if b:⏎␣␣␣␣␣␣c()", "if b:⏎␣␣␣␣␣␣␣␣c()"),
    (
        "U02 spaces into tabs",
        "func f() {⏎⇥if ok {⏎⇥⇥█⏎⇥}⏎}",
        "a()⏎␣␣␣␣␣␣␣␣b()",
        "a()⏎⇥⇥b()",
    ),
    (
        "U02 tabs at column 0",
        "func a() {⏎⇥x()⏎}⏎⏎█",
        "func g() {⏎⇥return⏎}",
        "func g() {⏎⇥return⏎}",
    ),
    ("U03 no indentation yet", "let f x =⏎█", "␣␣␣␣x + 1", "␣␣␣␣x + 1"),
    ("U03 indentation there already", "let f x =⏎␣␣␣␣█", "␣␣␣␣x + 1", "x + 1"),
    ("U03 after a plain line", "a = 1⏎b = 2⏎if x:⏎␣␣␣␣y()⏎␣␣␣␣█", "␣␣␣␣z()", "z()"),
    (
        "U07 next line again",
        "def area(r):⏎␣␣␣␣█⏎␣␣␣␣return r * r * pi",
        "pi = 3.14⏎␣␣␣␣return r * r * pi",
        "pi = 3.14",
    ),
    ("U07 nothing but the next line", "def area(r):⏎␣␣␣␣█⏎␣␣␣␣return r * r * pi", "return r * r * pi", ""),
    (
        "U07 next line again, hole of whole lines",
        "def area(r):⏎█␣␣␣␣return r * pi",
        "␣␣␣␣pi = 3⏎␣␣␣␣return r * pi",
        "␣␣␣␣pi = 3⏎",
    ),
    (
        "U07 two next lines, the last cut short",
        "a()⏎█⏎b()⏎long_name(c)⏎",
        "x()⏎b()⏎long_na",
        "x()",
    ),
    (
        "U07 rest of the line and nearly all of the next",
        "for d in █:⏎␣␣␣␣if not a[warmest]:⏎␣␣␣␣␣␣␣␣b()⏎",
        "c():⏎␣␣␣␣if not a[warmest]",
        "c()",
    ),
    ("U08 tail of line in a string", 'use "./parts/█.css"', 'button.css"', "button"),
    ("U08 closer that is there", "foo(█)⏎bar()", "a, b)", "a, b"),
    ("U08 rest of line and next line", "foo(█)⏎bar()", "a, b)⏎bar()", "a, b"),
    (
        "U09 the same word further down",
        "def tri(n):⏎█⏎⏎tri(7)",
        "␣␣␣␣if n < 1: return 0⏎␣␣␣␣return n + tri(n-1)",
        "␣␣␣␣if n < 1: return 0⏎␣␣␣␣return n + tri(n-1)",
    ),
    ("U11 first time", "x = 1⏎█", "y = 2", "y = 2"),
    ("U11 the accepted line again", "x = 1⏎y = 2⏎█", "y = 2", ""),
    ("U12 inside an auto-closed pair", "log(█)", '"up"', '"up"'),
    ("U12 pair closed again", "log(█)", '"up")', '"up"'),
    ("U14 tail is kept", 'say("B█")', "ye", "ye"),
    ("U14 string closed again", 'say("B█")', 'ye")', "ye"),
    ("U14 only the quote again", 'say("B█")', 'ye"', "ye"),
    ("U15 auto-closed brace", "let b = Box {⏎␣␣█⏎}", "w,⏎␣␣h,⏎};", "w,⏎␣␣h,"),
    ("a closer that is needed stays", "print(foo(█)", "x)", "x)"),
    ("a closer of nothing ends the fill", "x = █", "1)", "1"),
    ("an opener that nothing closes", "def f(w, h):⏎␣␣␣␣return 2 * █⏎", "abs(w * h", "abs(w * h)"),
    ("a call inside a call stays", "bar(█).strip()", "x.strip()", "x.strip()"),
    ("U17 emoji in the line", 't="🚀█"', 'go"', "go"),
    ("U31 mid-line", "total = █ + tax", "price * qty", "price * qty"),
    ("U31 mid-line with its rest again", "total = █ + tax", "price * qty + tax", "price * qty"),
    ("U35 only a space", "int█ x", "␣", ""),
    ("U35 the right half of a word", "doc█ument.open(1)", "ument", ""),
    ("U35 infill inside a word", "doc█ument.open(1)", "s_and_doc", "s_and_doc"),
    ("U40 list item", "- alpha⏎- █⏎- gamma", "- beta⏎- gamma", "beta"),
    ("U40 table cell", "| a | █ | c |", "b | c |", "b"),
    ("U51 end token", "def f():⏎␣␣␣␣█", "return x<|endoftext|>", "return x"),
    ("U51 nothing but control tokens", "x = █", "<|fim_pad|><|mask|><|endoftext|>", ""),
    ("U51 one token inside another", "x = █", "1<|fim_<|fim_middle|>middle|>x", "1"),
    ("U51 broken bytes", "x = █", "'a\ufffd'", "'a"),
    ("U53 one line over and over", "█", "x = 1⏎x = 1⏎x = 1⏎x = 1", "x = 1"),
    ("U54 start of the line again", "total = █", "total = price", "price"),
    ("U54 prefix again", "def f(x):⏎␣␣␣␣return █", "def f(x):⏎␣␣␣␣return x + 1", "x + 1"),
]


@pytest.mark.parametrize(
    ("document", "raw", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_inserted(tmp_path: Path, document: str, raw: str, expected: str) -> None:
    assert replay(tmp_path, document, raw).holes[0].text == show(expected)


def test_u12_the_same_answer_is_offered_once(tmp_path: Path) -> None:
    (candidate,) = replay(tmp_path, "log(█)", '"up")').holes[0].candidates
    assert candidate.text == '"up"'


def test_u17_a_prefix_with_emoji_reaches_the_model_as_it_is(tmp_path: Path) -> None:
    replay(tmp_path, '#🚀🚀⏎t="🚀█"', "x")
    (call,) = (tmp_path / "script.json.calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert (json.loads(call)["prefix"], json.loads(call)["suffix"]) == ('#🚀🚀\nt="🚀', '"')


def test_u19_crlf_changes_neither_what_the_model_sees_nor_what_fits(tmp_path: Path) -> None:
    document, raw = "def f():⏎␣␣␣␣█⏎g()", "a = 1⏎␣␣␣␣b = 2"
    with_lf = replay(tmp_path, document, raw).holes[0].text
    with_crlf = replay(tmp_path, document.replace("⏎", "\r\n"), raw).holes[0].text
    first, second = (tmp_path / "script.json.calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert first == second
    assert with_crlf == with_lf.replace("\n", "\r\n") == "a = 1\r\n    b = 2"


def test_u51_a_fill_of_nothing_but_control_tokens_says_why(tmp_path: Path) -> None:
    assert replay(tmp_path, "x = █", "<|mask|>").holes[0].reason == "control token"


def test_u54_a_budget_of_zero_asks_nobody(tmp_path: Path) -> None:
    assert replay(tmp_path, "x = █", "1", max_tokens=0).holes[0].candidates == ()
    assert not (tmp_path / "script.json.calls.jsonl").exists()
