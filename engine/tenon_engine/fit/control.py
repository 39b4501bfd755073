"""Control text: what a model writes to itself and a user must never see."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"<[|\uff5c][\w\u2581]+[|\uff5c]>"  # Qwen, LLaDA, Dream, DeepSeek: <|endoftext|>, <|fim_pad|>, <|mask|>
    r"|<fim_\w+>"
    r"|[\x00\ufffd\ud800-\udfff]"  # broken bytes: no encoding brings them back
)
_BEGUN = re.compile(r"<(?:[|\uff5c][\w\u2581]*|fim_\w*)\Z")  # the outer one of nested control tokens


def cut_control(text: str) -> str:
    """`text` up to its first control token, and up to what was begun of one right before it."""
    found = _CONTROL.search(text)
    while found:
        text = text[: found.start()]
        found = _BEGUN.search(text)
    return text
