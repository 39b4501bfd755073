"""The gate: whether to suggest anything at a place, and what shape of hole it is.

Silence beats noise: a refusal has a reason, and costs nothing. What is asked for by hand is refused only where nobody
may read or write, or nothing could be inserted. Knows neither engine nor clock nor protocol.
"""

from __future__ import annotations

import dataclasses
import enum
import re

from tenon_lsp import languages, markup
from tenon_lsp.documents import LastChange
from tenon_lsp.markup import Markup
from tenon_lsp.place import Place
from tenon_lsp.settings import Multiline, PopupPolicy, Settings
from tenon_lsp.syntax import Kind

BLOCK_FACTOR = 2  # times max_tokens, for what goes on over several lines
INSIDE_SHARE = 0.75  # of max_tokens, where the line goes on behind the hole

# Panels, boxes and views of other versions, which editors show as documents.
_VIRTUAL = frozenset(
    {
        "chat",
        "chat-editing-text-model",
        "comment",
        "commit-message",
        "debug",
        "git",
        "gitfs",
        "gitlens",
        "interactive-input",
        "octo",
        "output",
        "review",
        "scm",
        "search-editor",
        "svn",
        "terminal",
        "vscode-chat",
        "vscode-chat-code-block",
        "vscode-interactive-input",
        "vscode-scm",
        "vscode-settings",
        "vscode-terminal",
        "walkthrough",
    }
)
_COMMIT_LANGUAGES = frozenset({"git-commit", "git-rebase", "scminput", "gitcommit", "gitrebase"})
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">", '"': '"', "'": "'", "`": "`"}
_CLOSERS = frozenset(")]}>\"'`;,: \t")
_ONLY_CLOSERS = re.compile(r"\s*(?:[)\]}][)\]};,\s]*)?")
_OPENS_BLOCK = re.compile(r"(?:[{(\[:=]|[-=]>|\b(?:do|then|else))\s*\Z")


class Shape(enum.Enum):
    """What is to be filled."""

    REST_OF_LINE = "rest-of-line"
    INSIDE_LINE = "inside-line"
    INSIDE_PAIR = "inside-pair"
    STATEMENT = "statement"
    BLOCK = "block"
    DOCSTRING = "docstring"
    COMMENT = "comment"
    LIST_ITEM = "list-item"
    TABLE_CELL = "table-cell"
    HEADING = "heading"
    PARAGRAPH = "paragraph"


class Refusal(enum.Enum):
    """Why nothing is suggested."""

    SCHEME = "scheme"  # no document of the user's
    EXCLUDED = "excluded"
    POPUP = "popup"
    OFF = "off"
    LANGUAGE_OFF = "language-off"
    GLOB_OFF = "glob-off"
    AFTER_DELETION = "after-deletion"
    INSIDE_WORD = "inside-word"
    BEFORE_TEXT = "before-text"  # in front of all that is on the line
    UNDER_INDENTED = "under-indented"
    COMMENT = "comment"
    STRING = "string"
    PROSE = "prose"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """A shape, or a refusal; how long a fill may be, in tokens, and whether it must stay on its line."""

    shape: Shape | None
    refusal: Refusal | None
    max_tokens: int = 0
    one_line: bool = True


def judge(
    place: Place,
    settings: Settings,
    *,
    is_invoked: bool,
    has_popup: bool,
    excluded: str,
    is_disabled: bool,
) -> Verdict:
    """The verdict on a place. `excluded` says why the document may not be read, `is_disabled` that a glob is off."""
    refusal = refuse(
        place,
        settings,
        is_invoked=is_invoked,
        has_popup=has_popup,
        excluded=excluded,
        is_disabled=is_disabled,
    )
    if refusal is None and not is_invoked:
        refusal = _kind_off(place, settings) or _unwanted(place)
    if refusal is not None:
        return Verdict(None, refusal)
    shape = _shape(place)
    one_line = has_popup or _is_one_line(place, shape, settings.multiline)
    return Verdict(shape, None, _max_tokens(place, shape, settings.max_tokens), one_line)


def refuse(
    place: Place,
    settings: Settings,
    *,
    is_invoked: bool,
    has_popup: bool,
    excluded: str,
    is_disabled: bool,
) -> Refusal | None:
    """The part of `judge` that needs no tree: what holds for an answer from memory as well."""
    refusal = _never(place, settings, has_popup=has_popup, excluded=excluded)
    if refusal is not None or is_invoked:
        return refusal
    return _off(place, settings, is_disabled=is_disabled)


def goes_on(place: Place) -> bool:
    """Whether more than closers follows a place on its line."""
    return not set(place.after) <= _CLOSERS


def _never(place: Place, settings: Settings, *, has_popup: bool, excluded: str) -> Refusal | None:
    """Refusals that hold whoever asks."""
    if place.snapshot.uri.partition(":")[0].lower() in _VIRTUAL:
        return Refusal.SCHEME
    if excluded:
        return Refusal.EXCLUDED
    if has_popup and settings.when_popup_visible is PopupPolicy.OFF:
        return Refusal.POPUP
    return None


def _off(place: Place, settings: Settings, *, is_disabled: bool) -> Refusal | None:
    """What the user has switched off."""
    if not settings.enabled:
        return Refusal.OFF
    here = {place.language, place.snapshot.language}
    if here & _COMMIT_LANGUAGES or here & {*map(languages.language_id, settings.disabled.languages)}:
        return Refusal.LANGUAGE_OFF
    if is_disabled:
        return Refusal.GLOB_OFF
    if place.snapshot.last_change is LastChange.SHRANK:
        return Refusal.AFTER_DELETION
    return None


def _kind_off(place: Place, settings: Settings) -> Refusal | None:
    """Kinds of text that the user has switched off."""
    kind = _kind(place)
    if kind in (Kind.COMMENT, Kind.DOCSTRING) and not settings.suggest_in.comments:
        return Refusal.COMMENT
    if kind is Kind.STRING and not settings.suggest_in.strings:
        return Refusal.STRING
    if _is_prose(place) and not settings.suggest_in.prose:
        return Refusal.PROSE
    return None


def _unwanted(place: Place) -> Refusal | None:
    """Places at which a suggestion disturbs."""
    before, after = place.before, place.after
    if before and after and _in_word(before[-1]) and _in_word(after[0]):
        return Refusal.INSIDE_WORD
    if not before.strip() and not _ONLY_CLOSERS.fullmatch(after):
        return Refusal.BEFORE_TEXT
    if not before.strip() and not after.strip() and _is_under_indented(place):
        return Refusal.UNDER_INDENTED
    return None


def _is_under_indented(place: Place) -> bool:
    """Whether the lines around a blank one both stand further right: its next key is Tab, not a suggestion's."""
    text, line = place.snapshot.text, place.snapshot.text.line_of(place.start)
    here = len(place.before.expandtabs(4))
    above, below = _solid(place, range(line - 1, -1, -1)), _solid(place, range(line + 1, text.line_count))
    return bool(above and below) and all(_indent(each) > here for each in (above, below))


def _solid(place: Place, lines: range) -> str:
    """The first line of these that has any text, within the region."""
    text = place.snapshot.text
    for line in lines:
        start, end = text.line_span(line)
        if start < place.region.start or end > place.region.end:
            return ""
        found = text.line(line)
        if found.strip():
            return found
    return ""


def _shape(place: Place) -> Shape:
    if place.language == "markdown":
        return _PROSE_SHAPES.get(markup.markup_at(place), Shape.PARAGRAPH)
    if _is_prose(place):
        return Shape.PARAGRAPH
    kind = _kind(place)
    if kind is Kind.DOCSTRING:
        return Shape.DOCSTRING
    if kind is Kind.COMMENT:
        return Shape.COMMENT
    before, after = place.before, place.after
    if before and after and _PAIRS.get(before[-1]) == after[0]:
        return Shape.INSIDE_PAIR
    if after.strip():
        return Shape.INSIDE_LINE
    if before.strip():
        return Shape.REST_OF_LINE
    return Shape.BLOCK if _begins_block(place) else Shape.STATEMENT


def _begins_block(place: Place) -> bool:
    """Whether the line above opens a block that has nothing in it yet."""
    line = place.snapshot.text.line_of(place.start)
    above = _solid(place, range(line - 1, -1, -1))
    below = _solid(place, range(line + 1, place.snapshot.text.line_count))
    return bool(_OPENS_BLOCK.search(above)) and _indent(below) <= _indent(above)


def _max_tokens(place: Place, shape: Shape, max_tokens: int) -> int:
    if shape is Shape.BLOCK:
        return BLOCK_FACTOR * max_tokens
    return max(1, int(INSIDE_SHARE * max_tokens)) if place.after.strip() else max_tokens


def _is_one_line(place: Place, shape: Shape, multiline: Multiline) -> bool:
    if multiline is not Multiline.AUTO:
        return multiline is Multiline.NEVER
    if shape in (Shape.TABLE_CELL, Shape.HEADING) or (_is_prose(place) and shape is Shape.INSIDE_PAIR):
        return True
    return goes_on(place)


def _kind(place: Place) -> Kind:
    syntax = place.region.syntax
    if syntax is None or syntax.language.is_prose:
        return Kind.CODE
    return syntax.kind_at(place.region.inside(place.start))


def _is_prose(place: Place) -> bool:
    syntax = place.region.syntax
    if syntax is not None:
        return syntax.language.is_prose
    return place.language in ("plaintext", "text", "latex", "restructuredtext", "asciidoc", "org")


def _indent(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_PROSE_SHAPES = {
    Markup.HEADING: Shape.HEADING,
    Markup.TABLE_CELL: Shape.TABLE_CELL,
    Markup.LIST_ITEM: Shape.LIST_ITEM,
    Markup.CODE_SPAN: Shape.INSIDE_PAIR,
    Markup.LINK_TEXT: Shape.INSIDE_PAIR,
    Markup.LINK_TARGET: Shape.INSIDE_PAIR,
}
