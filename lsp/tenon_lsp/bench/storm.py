"""A storm of keys, questions and cancellations against the real server: what goes wrong, and what memory it leaves.

An answer is stale when the server gave it although it knew better: it had already answered a request that was sent
behind a newer key, or a newer question, of the same document.
"""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path
from typing import Any

from tenon_lsp.bench.documents import markdown_document, python_document
from tenon_lsp.bench.editor import AUTOMATIC, INVOKED, Arrival, Document, Editor, Json, cancellation

ABANDONED = (-32800, -32801)  # cancelled, content modified
OPEN_QUESTIONS_AT_MOST = 6
GROWTH_CHARACTERS = 4_000  # of a document, until it is replaced by what it was
MEMORY_SAMPLES = 10
# The rocket is spelt out, since this file is part of the documents: one such character makes Python hold a whole text
# in four bytes a character.
PIECES = (
    *"abcdefghij_=+.,:; ",
    *("(", ")", "[", "]", "{", "}", '"', "'", "`", "|", "#"),
    *(
        "\n",
        "\n",
        "\n    ",
        "\t",
        "é",
        "\N{ROCKET}",
        "return ",
        "def f(x):\n    ",
        "- ",
        "```\n",
        "import os\n",
    ),
)
ANSWERS = (
    "x",
    "value)",
    "name = 1\n",
    "return self.total\n",
    "é\N{ROCKET}",
    ")",
    "a\n    b\nc",
    "<|endoftext|>",
    "",
)


@dataclasses.dataclass(slots=True)
class _Followed:
    """A document, how much has happened to it, and how much of that the server must know of."""

    document: Document
    origin: str
    cursor: int = 0
    happened: int = 0
    known: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """A request under way: of which document, and how much had happened to that then."""

    message: Json
    of: _Followed
    happened: int


@dataclasses.dataclass(slots=True)
class Storm:
    """What has happened so far; counts only grow."""

    editor: Editor
    followed: list[_Followed]
    chosen: random.Random
    keys: int = 0
    requests: int = 0
    cancels: int = 0
    answers: int = 0
    stale_answers: int = 0
    error_replies: int = 0  # but for those that the protocol has for what is not wanted any more
    open_questions: dict[int, _Question] = dataclasses.field(default_factory=dict)
    probes: dict[int, list[int]] = dataclasses.field(default_factory=dict)

    def step(self) -> None:
        """A key; often a question, seldom a cancellation, another script or a pause until all is answered."""
        followed = self.chosen.choice(self.followed)
        self._type(followed)
        self._probe()
        if self.chosen.random() < 0.6:
            self._ask(followed)
        if self.open_questions and self.chosen.random() < 0.2:
            question = self.chosen.choice([*self.open_questions.values()])
            self.editor.send(cancellation(question.message))
            self.cancels += 1
        if self.chosen.random() < 0.05:
            self.editor.says(self.chosen.choice(ANSWERS), delay_ms=self.chosen.choice([0, 0, 5, 30]))
        most = 0 if self.chosen.random() < 0.3 else OPEN_QUESTIONS_AT_MOST
        while len(self.open_questions) > most:
            self._take(self.editor.next_arrival())

    def _type(self, followed: _Followed) -> None:
        document, length = followed.document, len(followed.document.text.source)
        if self.chosen.random() < 0.2:
            followed.cursor = self.chosen.randrange(length + 1)
        cursor = min(followed.cursor, length)
        if length > len(followed.origin) + GROWTH_CHARACTERS:
            change, followed.cursor = self.editor.replace(document, followed.origin), 0
        elif self.chosen.random() < 0.15:
            followed.cursor = max(0, cursor - self.chosen.randint(1, 4))
            change = self.editor.change(document, followed.cursor, cursor, "")
        else:
            piece = self.chosen.choice(PIECES)
            followed.cursor = cursor + len(piece)
            change = self.editor.change(document, cursor, cursor, piece)
        followed.happened += 1
        self.keys += 1
        self.editor.send(change)

    def _ask(self, followed: _Followed) -> None:
        trigger = self.chosen.choice([AUTOMATIC, AUTOMATIC, AUTOMATIC, INVOKED])
        message = self.editor.inline(followed.document, followed.cursor, trigger)
        followed.happened += 1
        self.requests += 1
        self.open_questions[message["id"]] = _Question(message, followed, followed.happened)
        self.editor.send(message)

    def _probe(self) -> None:
        message = self.editor.probe()
        self.probes[message["id"]] = [followed.happened for followed in self.followed]
        self.editor.send(message)

    def _take(self, arrival: Arrival) -> None:
        number = arrival.message.get("id")
        if number in self.probes:
            for followed, happened in zip(self.followed, self.probes.pop(number), strict=True):
                followed.known = happened
        elif number in self.open_questions:
            self._judge(self.open_questions.pop(number), arrival.message)

    def _judge(self, question: _Question, reply: Json) -> None:
        if "error" in reply:
            self.error_replies += reply["error"]["code"] not in ABANDONED
        elif reply["result"]["items"]:
            self.answers += 1
            self.stale_answers += question.happened < question.of.known


def measure_storm(folder: Path, keys: int) -> dict[str, Any]:
    """The counts of a storm of so many keys, and the server's memory at its start, after each tenth, and at its end."""
    place = folder / "storm"
    place.mkdir()
    started = time.perf_counter()
    with Editor(place) as editor:
        editor.initialize(debounceMs=0)
        storm = Storm(editor, _documents(editor), random.Random(7))  # noqa: S311 - it chooses keys
        editor.says("value")
        memory_mb = [memory(editor.process.pid)]
        for key in range(1, keys + 1):
            storm.step()
            if key * MEMORY_SAMPLES // keys > (key - 1) * MEMORY_SAMPLES // keys:
                memory_mb.append(memory(editor.process.pid))
    log = editor.log_path.read_text(encoding="utf-8", errors="replace")
    return {
        "keys": storm.keys,
        "requests": storm.requests,
        "cancels": storm.cancels,
        "answers": storm.answers,
        "stale_answers": storm.stale_answers,
        "exceptions": storm.error_replies + log.count("Traceback") + log.count(" ERROR "),
        "exit_code": editor.process.returncode,
        "memory_mb": memory_mb,
        "seconds": round(time.perf_counter() - started, 1),
    }


def memory(pid: int) -> float:
    """The resident memory of a process in MB; 0 where there is no /proc."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmRSS:")), "0")
    return round(int(kilobytes) / 1024, 1)


def _documents(editor: Editor) -> list[_Followed]:
    texts = {
        "long.py": python_document(2_000),
        "short.py": python_document(200),
        "notes.md": markdown_document(600),
    }
    languages = {".py": "python", ".md": "markdown"}
    return [
        _Followed(editor.open(name, languages[Path(name).suffix], text), text) for name, text in texts.items()
    ]
