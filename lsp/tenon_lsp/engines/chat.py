"""A chat model that is asked to fill a hole: the prompt, and the strict reading of what it answers.

The text must be in one fenced block and nothing else; whatever else a model says is no suggestion.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

from tenon_engine.wire import Candidate
from tenon_lsp.engines.question import UNKNOWN_CONFIDENCE, Answer, Question, choices, sampling, tokens_used

NOT_ONE_BLOCK = "the model did not answer with one fenced block"

_HOLE = "<<<HOLE{}>>>"
_TOKENS_AROUND = 64  # for the fence, and for a model whose tokens are smaller
_OPENING = re.compile(r"(`{3,}|~{3,})[^\n`]*")
_FENCE = re.compile(r"`{3,}|~{3,}")
_RULES = """\
You fill a hole in a file. The hole is marked {hole}. Your text is inserted there exactly as you write it, character \
for character, and must fit what stands directly before and after it.
Answer with one fenced block that contains only the missing text, and with nothing else: no explanation, nothing \
before or after the block. Repeat nothing that already stands before or after the hole. Begin with the space or line \
break that is missing, if any. Write {tokens} tokens at most; if nothing is missing, leave the block empty. Open and \
close the block with {fence}."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chat:
    """The dialect. How sure the model is remains unknown: its tokens' probabilities are those of a whole answer."""

    model: str | None = None
    route: str = "/v1/chat/completions"

    def message(self, question: Question) -> dict[str, object]:
        """See Dialect."""
        system, user = _prompt(question)
        message: dict[str, object] = {
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "max_tokens": 2 * question.max_tokens + _TOKENS_AROUND,
            **sampling(question),
        }
        if self.model is not None:
            message["model"] = self.model
        return message

    def answer(self, form: object) -> Answer:
        """See Dialect."""
        texts = [_block(_content(choice)) for choice in choices(form)]
        found = tuple(Candidate(text, UNKNOWN_CONFIDENCE) for text in texts if text is not None)
        return Answer(found, "" if found else NOT_ONE_BLOCK, tokens_used(form))

    def without(self, complaint: str) -> Chat | None:
        """See Dialect."""
        return None


def _prompt(question: Question) -> tuple[str, str]:
    """The rules, and the file with the hole in it; neither the mark nor the fence stands in the file."""
    texts = [question.prefix, question.suffix, question.old, *(file.text for file in question.extra)]
    mark = _mark(texts)
    fence = "`" * max([3, *(1 + len(found) for text in texts for found in _FENCE.findall(text))])
    name = question.language or ""
    parts = [f"{file.path}:\n{fence}\n{file.text}\n{fence}" for file in question.extra]
    parts.append(
        f"{question.path or 'The file'}:\n{fence}{name}\n{question.prefix}{mark}{question.suffix}\n{fence}"
    )
    if question.old:
        parts.append(f"Where the hole is, this stands now:\n{fence}{name}\n{question.old}\n{fence}")
    if question.instruction:
        parts.append(f"What the text should be: {question.instruction}")
    return _RULES.format(hole=mark, tokens=question.max_tokens, fence=fence), "\n\n".join(parts)


def _mark(texts: list[str]) -> str:
    """A mark that stands in none of the texts."""
    marks = (_HOLE.format(number or "") for number in itertools.count())
    return next(mark for mark in marks if not any(mark in text for text in texts))


def _content(choice: dict[str, object]) -> str:
    match choice:
        case {"message": {"content": str(content)}}:
            return content
    raise ValueError('a choice has no "message" with "content"')


def _block(content: str) -> str | None:
    """What is in the one block that `content` is; None when it is not one."""
    first, *lines = content.strip().split("\n")
    opening = _OPENING.fullmatch(first.rstrip())
    if opening is None:
        return None
    ends = [index for index, line in enumerate(lines) if _closes(line.strip(), opening.group(1))]
    return "\n".join(lines[:-1]) if ends == [len(lines) - 1] else None


def _closes(line: str, fence: str) -> bool:
    return line.startswith(fence) and not line.strip(fence[0])
