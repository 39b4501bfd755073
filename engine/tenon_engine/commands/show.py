"""A fill in colour inside its surroundings, and its timing on one line, for a terminal.

Colours are the terminal's own, so that they suit light and dark ones; NO_COLOR and old Windows consoles are
left to rich. Knows no files and no engine.
"""

from __future__ import annotations

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from tenon_engine import excerpt
from tenon_engine.wire import FillResult

LINES_AROUND = 4
TAB = "    "
FILL_STYLE = "bold reverse green"


def show(console: Console, path: str, prefix: str, suffix: str, result: FillResult) -> None:
    """Print the best candidate between the lines around it, the others below, then what it cost."""
    fill = result.holes[0].text
    around = excerpt.around(prefix, suffix, LINES_AROUND)
    before, middle, after = (
        part.replace("\t", TAB) for part in (around.before, excerpt.plain(fill), around.after)
    )
    code = _highlighted(path, before + middle + after)
    code.stylize(FILL_STYLE, len(before), len(before) + len(middle))
    hole_lines = range(before.count("\n"), (before + middle).count("\n") + 1)
    for index, line in enumerate(code.split("\n", allow_blank=True)):
        in_hole = index in hole_lines
        line.no_wrap, line.overflow = not in_hole, "fold" if in_hole else "ellipsis"
        console.print(_gutter(around.first_line + index, in_hole) + line)
    console.print()
    for other in result.holes[0].candidates[1:]:
        alternative = Text.assemble(
            (f"{other.confidence:>5.2f} ", "dim"), excerpt.plain(other.text).replace("\n", "⏎")
        )
        alternative.no_wrap, alternative.overflow = True, "ellipsis"
        console.print(alternative)
    console.print(timing_line(result), style="dim", highlight=False, soft_wrap=True)


def timing_line(result: FillResult) -> str:
    """Model, tokens, steps, milliseconds per stage and confidence."""
    cost = result.cost
    rate = cost.tokens / cost.forwards if cost.forwards else 0.0
    return (
        f"{result.model} · {cost.tokens} tokens, {cost.forwards} steps, {rate:.1f} per step"
        f" · {cost.total_ms:.0f} ms (context {cost.context_ms:.0f}, denoise {cost.denoise_ms:.0f})"
        f" · confidence {result.holes[0].confidence:.2f}"
    )


def _highlighted(path: str, code: str) -> Text:
    lexer = Syntax.guess_lexer(path, code)
    text = Syntax(code, lexer, theme="ansi_dark").highlight(code)
    return text[: len(code)]  # the highlighter may add a line end


def _gutter(number: int, in_hole: bool) -> Text:
    bar = ("┃ ", "bold green") if in_hole else ("│ ", "dim")
    return Text.assemble((f"{number:>5} ", "dim"), bar)
