"""llama.cpp's own /infill."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from tenon_engine.wire import Candidate
from tenon_lsp.engines.question import Answer, Question, confidence


@dataclasses.dataclass(frozen=True, slots=True)
class Infill:
    """The dialect; it has one text per request. The line before the hole goes as the prompt, as its own clients do."""

    route: str = "/infill"

    def message(self, question: Question) -> dict[str, object]:
        """See Dialect."""
        prefix = question.instructed_prefix
        start = prefix.rfind("\n") + 1
        return {
            "input_prefix": prefix[:start],
            "prompt": prefix[start:],
            "input_suffix": question.suffix,
            "input_extra": [{"filename": file.path, "text": file.text} for file in question.extra],
            "n_predict": question.max_tokens,
            "t_max_predict_ms": question.deadline_ms,
            "temperature": question.temperature,
            "seed": question.seed,
            "n_probs": 1,
            "cache_prompt": True,
            "stream": False,
        }

    def answer(self, form: object) -> Answer:
        """See Dialect."""
        match form:
            case {"content": str(text), **rest}:
                count = rest.get("tokens_predicted")
                candidate = Candidate(text, confidence(_log_probabilities(rest)))
                return Answer((candidate,), tokens=count if isinstance(count, int) else 0)
        raise ValueError('it has no "content"')

    def without(self, complaint: str) -> Infill | None:
        """See Dialect."""
        return None


def _log_probabilities(form: Mapping[object, object]) -> Iterator[object]:
    """One per token."""
    match form.get("completion_probabilities"):
        case [*tokens]:
            yield from (token.get("logprob") for token in tokens if isinstance(token, dict))
