"""Random documents, edits, answers and keystrokes against the real server: what must hold whatever is typed.

What the server believes a document says is read off what the scripted engine was asked. `TENON_STORM` is the number of
steps of the keystroke storm, `TENON_EXAMPLES` the number of examples of each property.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lsp import invariants
from tests.lsp.client import AUTOMATIC, INVOKED, Client, Profile, running
from tests.lsp.connection import ABANDONED, Pending, children, on_loop
from tests.lsp.document import LINE_END, Document

ENCODINGS = ("utf-8", "utf-16", "utf-32")
EXAMPLES = int(os.environ.get("TENON_EXAMPLES", "60"))
STORM_STEPS = int(os.environ.get("TENON_STORM", "300"))
GROWTH_KB_MAX = 24 * 1024

PIECES = [
    "a",
    "xy",
    " ",
    "\t",
    "é",
    "e\u0301",
    "🚀",
    "👩‍🚀",
    "汉",
    "\u2028",
    "\x0b",
    "\ufeff",
    "(",
    ")",
    "\n",
    "\r\n",
]
TEXTS = st.lists(
    st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=60
)
NEW_TEXTS = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), NEW_TEXTS), max_size=6)

CODE = {
    "python": [
        "def f(x):",
        "    ",
        "return ",
        "x",
        " = ",
        "1",
        "(",
        ")",
        "'",
        '"""',
        ":",
        "# no",
        "if x:",
        "import os",
    ],
    "markdown": [
        "# T",
        "- ",
        "1. ",
        "| a | b |",
        "|---|---|",
        "```python",
        "```",
        "*",
        "word ",
        "[a](b)",
        "> ",
    ],
    "javascript": [
        "function f() {",
        "}",
        "let x = ",
        "`",
        "${",
        "// no",
        "/*",
        "*/",
        "(",
        ")",
        ";",
        "'",
        "=>",
    ],
    "unknown": ["begin", "end", " ", "{", "}", "word", ":=", '"'],
}
COMMON = ["\n", "\n", "\n    ", "\t", " ", "🚀", "e\u0301", "x", "a1"]
RAW_EXTRAS = [
    "<|endoftext|>",
    "<|fim_pad|>",
    "\ufffd",
    "\x00",
    "\r\n",
    "\r",
    "\n\n",
    "   ",
    "```",
    ")",
    "}",
    "]",
    "|",
]

examples = settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module", params=ENCODINGS)
def encoded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"), Profile(encodings=(request.param,)))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from running(tmp_path_factory.mktemp("editor"))


@examples
@given(text=TEXTS.map("".join), edits=EDITS, place=st.floats(0, 1), together=st.booleans())
@on_loop
async def test_the_server_has_the_text_that_the_editor_has(
    encoded: Client, text: str, edits: list[tuple[float, float, str]], place: float, together: bool
) -> None:
    encoded.script.says("1")
    document = encoded.open(text, "plaintext")
    apply(encoded, document, edits, together)
    offset = outside_line_ends(document.text, place)
    encoded.script.forget_calls()
    items = await encoded.ask(document, offset, INVOKED)
    invariants.check(document, offset, items)
    calls = encoded.script.calls()
    before, after = document.text[:offset], document.text[offset:]
    encoded.close(document)
    if document.text.strip():
        assert [(call["prefix"], call["suffix"]) for call in calls] == [(with_lf(before), with_lf(after))]


def apply(client: Client, document: Document, edits: list[tuple[float, float, str]], together: bool) -> None:
    """Send edits one notification each, or all in one; the ranges of each are in the text the earlier ones gave."""
    changes = []
    for first, second, new in edits:
        start, end = sorted(
            (outside_line_ends(document.text, first), outside_line_ends(document.text, second))
        )
        changes.append({"range": document.span(start, end), "text": new})
        if not together:
            client.send(client.changed(document, changes.pop()))
        document.text = document.text[:start] + new + document.text[end:]
    if changes:
        client.send(client.changed(document, *changes))


def outside_line_ends(text: str, place: float) -> int:
    """An offset at that part of the text, never between CR and LF: no position means that."""
    offset = round(place * len(text))
    return offset - 1 if text[offset - 1 : offset + 1] == "\r\n" else offset


def with_lf(text: str) -> str:
    return LINE_END.sub("\n", text)


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """A document of a language, a cursor in it, and what the model says."""

    language: str
    text: str
    place: float
    raw: str


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    language = draw(st.sampled_from([*CODE]))
    pieces = st.sampled_from(CODE[language] + COMMON)
    text = "".join(draw(st.lists(pieces, max_size=24)))
    place = draw(st.floats(0, 1))
    line_end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    raw = "".join(draw(st.lists(pieces | st.sampled_from(RAW_EXTRAS), min_size=1, max_size=10)))
    if draw(st.booleans()):  # models like to go on with what is there
        raw += text[round(place * len(text)) :][: draw(st.integers(0, 40))]
    return Situation(language, text.replace("\n", line_end), place, raw)


@examples
@given(situation=situations(), trigger=st.sampled_from([AUTOMATIC, INVOKED]))
@on_loop
async def test_whatever_the_model_says_what_is_offered_fits(
    client: Client, situation: Situation, trigger: int
) -> None:
    client.script.says(situation.raw)
    document = client.open(situation.text, situation.language)
    offset = outside_line_ends(document.text, situation.place)
    items = await client.ask(document, offset, trigger)
    invariants.check(document, offset, items)
    assert await client.ask(document, offset, trigger) == items  # the same question, the same answer
    client.close(document)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A request under way, and the document as it was when it was sent."""

    pending: Pending
    document: Document
    offset: int
    asked_of: Document  # the same document, later
    number: int  # of the requests for that document


class Storm:
    """A user who types, deletes, asks and cancels at random, and checks every answer that comes."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.documents: list[Document] = []
        self.questions: list[Question] = []
        self.asked: dict[str, int] = {}  # requests for a document
        # Version and request that the server must know of by now: it has answered something sent later.
        self.known: dict[str, tuple[float, float]] = {}
        for language in ("python", "markdown", "plaintext"):
            self.open(language)
        self.answers = 0

    async def step(self) -> None:
        """One thing that a user or an editor does."""
        act = self.random.choices(
            [self.type, self.delete, self.ask, self.cancel, self.say, self.collect, self.settle, self.swap],
            [40, 8, 30, 8, 4, 6, 4, 1],
        )[0]
        await act()

    def open(self, language: str, text: str = "") -> None:
        document = self.client.open(text, language)
        self.documents.append(document)
        self.asked[document.uri], self.known[document.uri] = 0, (1, 0)

    async def swap(self) -> None:
        """Close a document and open another one with its text."""
        document = self.documents.pop(self.random.randrange(len(self.documents)))
        self.client.close(document)
        self.open(document.language, document.text)

    async def type(self) -> None:
        document = self.random.choice(self.documents)
        offset = outside_line_ends(document.text, self.random.random())
        pool = [*CODE.get(document.language, CODE["unknown"]), *COMMON]
        self.client.type(document, offset, self.random.choice(pool))
        if len(document.text) > 4_000:
            self.client.change(document, 0, 3_000, "")

    async def delete(self) -> None:
        document = self.random.choice(self.documents)
        start = outside_line_ends(document.text, self.random.random())
        self.client.change(document, start, min(start + self.random.randint(1, 5), len(document.text)), "")

    async def ask(self) -> None:
        document = self.random.choice(self.documents)
        offset = outside_line_ends(document.text, self.random.random())
        trigger = self.random.choice([AUTOMATIC, AUTOMATIC, INVOKED])
        pending = self.client.inline(document, offset, trigger)
        self.asked[document.uri] += 1
        snapshot = dataclasses.replace(document)
        self.questions.append(Question(pending, snapshot, offset, document, self.asked[document.uri]))

    async def cancel(self) -> None:
        if self.questions:
            self.random.choice(self.questions).pending.cancel()

    async def say(self) -> None:
        pool = [*CODE["python"], *COMMON, *RAW_EXTRAS]
        raw = "".join(self.random.choices(pool, k=self.random.randint(1, 8)))
        fault = self.random.random()
        if fault < 0.05:
            self.client.script.says(fail="out of memory")
        else:
            self.client.script.says(raw, delay_ms=self.random.choice([0, 0, 0, 5, 30]))

    async def collect(self) -> None:
        """Wait for a few answers."""
        for question in self.questions[:3]:
            await self.check(question)
        del self.questions[:3]

    async def settle(self) -> None:
        """Learn what the server must have read by now; what has come before that is judged by what it knew then."""
        now: dict[str, tuple[float, float]] = dict.fromkeys(self.known, (math.inf, math.inf))  # closed
        now |= {document.uri: (document.version, self.asked[document.uri]) for document in self.documents}
        await self.client.barrier()
        come = [question for question in self.questions if question.pending.message.done()]
        for question in come:
            await self.check(question)
            self.questions.remove(question)
        self.known = now

    async def check(self, question: Question) -> None:
        reply = await question.pending.reply()
        if "error" in reply:
            assert reply["error"]["code"] in ABANDONED, reply
            return
        items = await question.pending.items()
        if items:
            version, number = self.known[question.document.uri]
            assert question.document.version >= version, "I4: answered for a version known to be old"
            assert question.number >= number, "I4: answered although a newer request was known"
            self.answers += 1
        invariants.check(question.document, question.offset, items)

    async def finish(self) -> None:
        for question in self.questions:
            await self.check(question)


@pytest.mark.timeout(300 + STORM_STEPS // 5)
@on_loop
async def test_a_storm_of_keystrokes_leaves_no_error_no_stale_answer_and_no_memory_behind(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "editor"
    folder.mkdir()
    client = await Client(folder, settings={"prefetch": True}).start()
    storm = Storm(client, seed=4)
    sizes: list[int] = []
    for step in range(STORM_STEPS):
        await storm.step()
        if step in (STORM_STEPS // 3, STORM_STEPS - 1):
            await storm.settle()
            sizes.append(memory_kb(client))
    await storm.finish()
    assert storm.answers
    assert client.strays == []
    assert sizes[-1] - sizes[0] < GROWTH_KB_MAX
    assert await client.stop() == 0
    assert "Traceback" not in client.log()


def memory_kb(client: Client) -> int:
    """The resident memory of the server and its engine; 0 where there is no /proc."""
    total = 0
    for pid in (client.process.pid, *children(client.process.pid)):
        status = Path(f"/proc/{pid}/status")
        if status.exists():
            fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
            total += int(fields.get("VmRSS", "0").split()[0])
    return total
