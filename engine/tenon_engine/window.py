"""Which text goes into a context, within a budget of tokens, and where a hole's edges fall inside a token.

The start of the prefix moves in blocks, not with every key, so that the context cache keeps what it has.
"""

from __future__ import annotations

import dataclasses

from tenon_engine.tokenizer import Tokenizer

CHARACTERS_PER_TOKEN = 6  # generous: what a budget of tokens could hold at most, before tokens are counted
BLOCK_TOKENS = 64
END_OF_FILE = "\n\n\n"  # shown for a blank suffix: training holes had one, and without it fills run on
LINE_ENDS_MAX = 3
WORD_EDGE_MAX = 32  # characters of a word taken back from the suffix at most


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Ids of what stands around a hole; `left` and `right` are the parts taken back from prefix and suffix."""

    prefix_ids: list[int]
    suffix_ids: list[int]
    left_ids: list[int]
    left: bytes
    right: bytes


def window(
    tokenizer: Tokenizer, prefix: str, suffix: str, *, prefix_tokens: int, suffix_tokens: int
) -> Window:
    """Cut both sides to their budgets, at line boundaries where there are any, and heal the edges."""
    right = _right_edge(prefix, suffix)
    prefix = _prefix_text(prefix, prefix_tokens)
    prefix_ids, left_ids = tokenizer.encode_for_hole(prefix)
    start = _moved_start(len(prefix_ids), prefix_tokens, BLOCK_TOKENS)
    if start:
        start = _line_start(tokenizer, prefix_ids, start)
    shown = suffix[len(right) :][: suffix_tokens * CHARACTERS_PER_TOKEN]
    suffix_ids = tokenizer.encode(shown if shown.strip() else END_OF_FILE)
    return Window(
        prefix_ids=prefix_ids[start:],
        suffix_ids=_suffix_end(tokenizer, suffix_ids, suffix_tokens),
        left_ids=left_ids,
        left=tokenizer.to_bytes(left_ids),
        right=right.encode("utf-8", "surrogatepass"),
    )


def _right_edge(prefix: str, suffix: str) -> str:
    """What is taken back from a suffix that does not begin at a boundary.

    The rest of the word a hole stands in the middle of; else the line ends it begins with, since tokens such as `)\\n`
    span them and a model that may not write one stops a character early.
    """
    if prefix and suffix and _in_word(prefix[-1]) and _in_word(suffix[0]):
        end = next((n for n, char in enumerate(suffix[:WORD_EDGE_MAX]) if not _in_word(char)), 0)
        return suffix[:end]
    line_ends = len(suffix) - len(suffix.lstrip("\n"))
    return suffix[: min(line_ends, LINE_ENDS_MAX)]


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _prefix_text(prefix: str, prefix_tokens: int) -> str:
    """The last characters that could fill the budget, from the start of a line if one is near."""
    block = BLOCK_TOKENS * CHARACTERS_PER_TOKEN
    start = _moved_start(len(prefix), prefix_tokens * CHARACTERS_PER_TOKEN, block)
    if not start:
        return prefix
    line = prefix.find("\n", start - 1, start + block)
    return prefix[line + 1 if line >= 0 else start :]


def _moved_start(length: int, budget: int, block: int) -> int:
    """The smallest multiple of `block` that leaves at most `budget`."""
    return max(0, -(-(length - budget) // block) * block)


def _line_start(tokenizer: Tokenizer, ids: list[int], start: int) -> int:
    """The first token at or after `start` that begins a line, if there is one within a block."""
    for index in range(start, min(len(ids), start + BLOCK_TOKENS)):
        if tokenizer.to_bytes(ids[index - 1 : index]).endswith(b"\n"):
            return index
    return start


def _suffix_end(tokenizer: Tokenizer, ids: list[int], budget: int) -> list[int]:
    """At most `budget` ids, ending with a whole line if that keeps more than half of them."""
    if len(ids) <= budget:
        return ids
    for index in range(budget, budget // 2, -1):
        if tokenizer.to_bytes(ids[index - 1 : index]).endswith(b"\n"):
            return ids[:index]
    return ids[:budget]
