"""Control text: what a model writes to itself and a user must never see."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"<[|\uff5c][\w\u2581]+[|\uff5c]>"  # Qwen, LLaDA, Dream, DeepSeek: <|endoftext|>, <|fim_pad|>, <|mask|>
    r"|<fim_\w+>"
    r"|[\x00\ufffd\ud800-\udfff]"  # broken bytes: no encoding brings them back
)


def cut_control(text: str) -> str:
    """`text` up to its first control token."""
    found = _CONTROL.search(text)
    return text[: found.start()] if found else text
