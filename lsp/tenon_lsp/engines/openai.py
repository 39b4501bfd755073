"""OpenAI's completions with a suffix, as vLLM, Mercury, Codestral and many others have it."""

from __future__ import annotations

import dataclasses

from tenon_engine.wire import Candidate
from tenon_lsp.engines.question import Answer, Question, choices, confidence, sampling, tokens_used


@dataclasses.dataclass(frozen=True, slots=True)
class Completions:
    """The dialect; it has no place for other files. Token probabilities are asked for until a server refuses."""

    model: str | None = None
    with_probabilities: bool = True
    route: str = "/v1/completions"

    def message(self, question: Question) -> dict[str, object]:
        """See Dialect."""
        message: dict[str, object] = {
            "prompt": question.instructed_prefix,
            "suffix": question.suffix,
            "max_tokens": question.max_tokens,
            **sampling(question),
        }
        if self.model is not None:
            message["model"] = self.model
        if self.with_probabilities:
            message["logprobs"] = 1
        return message

    def answer(self, form: object) -> Answer:
        """See Dialect."""
        return Answer(tuple(map(_candidate, choices(form))), tokens=tokens_used(form))

    def without(self, complaint: str) -> Completions | None:
        """See Dialect."""
        if self.with_probabilities and "logprobs" in complaint:
            return dataclasses.replace(self, with_probabilities=False)
        return None


def _candidate(choice: dict[str, object]) -> Candidate:
    match choice:
        case {"text": str(text)} | {"message": {"content": str(text)}}:
            pass
        case _:
            raise ValueError('a choice has no "text"')
    match choice:
        case {"logprobs": {"token_logprobs": [*numbers]}}:
            return Candidate(text, confidence(numbers))
    return Candidate(text, confidence(()))
