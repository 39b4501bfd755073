"""What is shown of a model's text: cut and mended, on text level, until it fits what stands on both sides.

Order: control tokens, indentation, then in turn until nothing changes: echo of the suffix, echo of the prefix, loops,
brackets; at last a line end that whole lines lack. Indentation comes before echo, so that a re-stated line is known
whatever its stray spaces. Line ends are LF.

Knows no tokens, no syntax trees and no confidence; every rule is a pure function of text.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon_engine.fit.brackets import (
    close_brackets,
    cut_unneeded_closers,
    leaves_line_open,
    shorten,
    unmatched_count,
)
from tenon_engine.fit.control import cut_control
from tenon_engine.fit.echo import cut_loop, cut_prefix_echo, cut_suffix_echo
from tenon_engine.fit.fitted import Fitted, Reason
from tenon_engine.fit.indent import indent
from tenon_engine.fit.place import Place

__all__ = ["Fitted", "Reason", "fit", "leaves_line_open", "shorten", "unmatched_count"]

Rule = Callable[[str, Place], str]


def fit(raw: str, *, prefix: str, suffix: str) -> Fitted:
    """`raw` as it may stand between `prefix` and `suffix`; '' when nothing of it is worth showing."""
    place = Place.between(prefix, suffix)
    reasons: set[Reason] = set()
    text = _apply(raw, place, _ONCE, reasons)
    while (changed := _apply(text, place, _REPEATED, reasons)) != text:
        text = changed
    text = _apply(text, place, _LAST, reasons)
    if not text.strip():
        if text or not raw:
            reasons.add(Reason.BLANK)
        text = ""
    return Fitted(text, frozenset(reasons))


def _apply(text: str, place: Place, rules: tuple[tuple[Rule, Reason], ...], reasons: set[Reason]) -> str:
    for rule, reason in rules:
        changed = rule(text, place)
        if changed != text:
            reasons.add(reason)
        text = changed
    return text


_ONCE: tuple[tuple[Rule, Reason], ...] = (
    (lambda text, _: cut_control(text), Reason.CONTROL),
    (indent, Reason.INDENTATION),
)
_REPEATED: tuple[tuple[Rule, Reason], ...] = (
    (cut_suffix_echo, Reason.SUFFIX_ECHO),
    (cut_prefix_echo, Reason.PREFIX_ECHO),
    (cut_loop, Reason.LOOP),
    (cut_unneeded_closers, Reason.BRACKETS),
    (close_brackets, Reason.CLOSED),
)
_LAST: tuple[tuple[Rule, Reason], ...] = ((lambda text, place: place.end_line(text), Reason.LINE_END),)
