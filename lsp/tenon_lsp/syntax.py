"""The syntax tree of a text: scopes, imports, comments, errors, and trees of edited texts.

Speaks in character offsets; bytes, which tree-sitter counts, stay inside. Knows no documents, positions or requests.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import functools
import re
from collections.abc import Iterator

import tree_sitter

from tenon_lsp import languages
from tenon_lsp.languages import Language

LARGE_CHARACTERS = 150_000
CHARACTERS_AT_MOST = 4_000_000  # a larger text is treated as one of an unknown language

_CHECKPOINT_CHARACTERS = 2048
_LONE_CR = re.compile(r"\r(?!\n)")
_CODE_IN_STRINGS = frozenset({"interpolation", "template_substitution", "command_substitution"})


class Kind(enum.Enum):
    """What a place in a text is part of."""

    CODE = "code"
    COMMENT = "comment"
    STRING = "string"
    DOCSTRING = "docstring"


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """A function, class or the like: its header is `[start:body_start]`, its body `[body_start:body_end]`."""

    start: int
    end: int
    body_start: int
    body_end: int
    kind: str  # the grammar's name of the node


@dataclasses.dataclass(frozen=True, slots=True)
class Flaw:
    """A place that does not parse; `is_missing` where the parser had to imagine a token."""

    start: int
    end: int
    is_missing: bool


class Syntax:
    """One text's tree; texts and trees never change, an edit makes another (parsed when first asked)."""

    def __init__(self, source: str, language: Language, stale_tree: tree_sitter.Tree | None = None) -> None:
        self.source = source
        self.language = language
        self._stale_tree = stale_tree  # the tree of an earlier text, told of every edit since

    @staticmethod
    def parse(source: str, language_id: str) -> Syntax | None:
        """The tree of `source`; None when there is no grammar for it, or it is too large."""
        language = languages.find(language_id)
        return Syntax(source, language) if language and len(source) <= CHARACTERS_AT_MOST else None

    def edited(self, start: int, end: int, new: str, source: str | None = None) -> Syntax:
        """The tree of the text with `new` in place of `[start:end]`; what the edit leaves alone is parsed no more.

        `source` is that text, for who has it already.
        """
        if source is None:
            source = self.source[:start] + new + self.source[end:]
        is_parsed = "tree" in self.__dict__
        tree = self.tree if is_parsed else self._stale_tree
        if tree is None or not self._is_plain:
            return Syntax(source, self.language)
        stale = tree.copy()
        start_byte, old_end = self.byte(start), self.byte(end)
        new_bytes = _encoded(new)
        new_end = start_byte + len(new_bytes)
        start_point = self._point(start_byte)
        stale.edit(
            start_byte, old_end, new_end, start_point, self._point(old_end), _moved(start_point, new_bytes)
        )
        return Syntax(source, self.language, stale)

    @functools.cached_property
    def tree(self) -> tree_sitter.Tree:
        """The tree itself; that of an empty text where parsing is not safe."""
        parser = languages.parser(self.language)
        if self._stale_tree and self._is_plain:
            return parser.parse(self._bytes, self._stale_tree)
        return parser.parse(self._bytes if self._is_safe else b"")

    @property
    def outline(self) -> tree_sitter.Tree:
        """The tree; of a large text that was edited since it was parsed, the tree from before with its places moved.

        Parsing a large text again may take longer than a key; `refresh` does it when there is time.
        """
        is_large = len(self.source) > LARGE_CHARACTERS
        stale = self._stale_tree if is_large and "tree" not in self.__dict__ else None
        return stale or self.tree

    def refresh(self) -> None:
        """Parse what was edited; may be called in another thread."""
        _ = self.tree

    @functools.cached_property
    def errors(self) -> tuple[Flaw, ...]:
        """Every place that does not parse, in order; nothing inside another one."""
        return tuple(self._errors(self.tree.root_node))

    def scopes(self, offset: int) -> tuple[Scope, ...]:
        """The scopes around `offset`, outermost first. At the end of an indented scope, `offset` is still in it."""
        return tuple(map(self._scope, reversed(list(self._scope_nodes(offset)))))

    def kind_at(self, offset: int) -> Kind:
        """What `offset` is inside of: an edge between two nodes belongs to the code around them."""
        node: tree_sitter.Node | None = self._leaf(offset)
        while node is not None and not (node.type in _CODE_IN_STRINGS and self._is_inside(node, offset)):
            if node.type in self.language.comments and self._is_inside_comment(node, offset):
                return Kind.COMMENT
            if node.type in self.language.strings and self._is_inside(node, offset):
                return Kind.DOCSTRING if self._is_docstring(node) else Kind.STRING
            node = node.parent
        return Kind.CODE

    def enclosing(self, offset: int, kinds: frozenset[str]) -> tuple[int, int] | None:
        """Start and end of the innermost node of one of `kinds` around `offset`."""
        node: tree_sitter.Node | None = self._leaf(offset)
        while node is not None and not (node.type in kinds and node.start_byte < self.byte(offset)):
            node = node.parent
        return None if node is None else self._span(node)

    def node_at(self, start: int, end: int | None = None) -> tree_sitter.Node:
        """The smallest named node that covers `[start:end]`."""
        end = start if end is None else end
        root = self.outline.root_node
        return root.named_descendant_for_byte_range(self.byte(start), self.byte(end)) or root

    def span(self, node: tree_sitter.Node) -> tuple[int, int]:
        """Start and end of a node of this tree, in characters."""
        return self._span(node)

    def _scope_nodes(self, offset: int) -> Iterator[tree_sitter.Node]:
        """Innermost first."""
        at = self._last_solid(offset) if self.language.is_indented else offset
        node: tree_sitter.Node | None = self._leaf(at)
        byte, indent = self.byte(at), self._indent(offset)
        while node is not None:
            if node.type in self.language.scopes and node.start_byte < byte:
                left = at == offset or node.start_point.column < indent
                if left and (byte < node.end_byte or self.language.is_indented):
                    yield node
            node = node.parent

    def _scope(self, node: tree_sitter.Node) -> Scope:
        body = node.child_by_field_name("body") or next(
            (child for child in reversed(node.named_children) if child.type in self.language.blocks), None
        )
        start, end = self._span(node)
        body_start, body_end = self._span(body) if body else (end, end)
        return Scope(start, end, body_start, body_end, node.type)

    def _last_solid(self, offset: int) -> int:
        """The end of the last thing before `offset` that is no space."""
        return len(self.source[:offset].rstrip())

    def _indent(self, offset: int) -> int:
        """The column that a blank line's cursor stands at, or that its line begins at."""
        line_start = self.source.rfind("\n", 0, offset) + 1
        line = self.source[line_start:offset]
        return len(line) - len(line.lstrip())

    def _leaf(self, offset: int) -> tree_sitter.Node:
        """The smallest node around `offset`: of the character before it where that is the closer one."""
        before, at = self.byte(max(offset - 1, 0)), self.byte(offset)
        root = self.outline.root_node
        return root.descendant_for_byte_range(before, at) or root

    def _is_inside(self, node: tree_sitter.Node, offset: int) -> bool:
        return node.start_byte < self.byte(offset) < node.end_byte

    def _is_inside_comment(self, node: tree_sitter.Node, offset: int) -> bool:
        start, end = self._span(node)
        is_closed = self.source[start:end].rstrip().endswith(("*/", "-->", "]]"))
        is_block = self.source.startswith(("/*", "<!--", "--[["), start)
        return start < offset < end if is_block and is_closed else start < offset <= end

    def _is_docstring(self, node: tree_sitter.Node) -> bool:
        statement = node.parent
        if node.type not in self.language.docstrings or statement is None or statement.parent is None:
            return False
        is_first = statement.prev_named_sibling is None or statement.prev_named_sibling.type == "comment"
        return statement.type == "expression_statement" and is_first

    def _errors(self, node: tree_sitter.Node) -> Iterator[Flaw]:
        if node.is_error or node.is_missing:
            yield Flaw(*self._span(node), node.is_missing)
        elif node.has_error:
            for child in node.children:
                yield from self._errors(child)

    def _span(self, node: tree_sitter.Node) -> tuple[int, int]:
        return self._character(node.start_byte), self._character(node.end_byte)

    @functools.cached_property
    def _is_safe(self) -> bool:
        return languages.is_safe(self.language, self.source)

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Whether what is parsed is the very text; else neighbours in time share no trees."""
        return self._is_safe and not _LONE_CR.search(self.source)

    @functools.cached_property
    def _bytes(self) -> bytes:
        """The text as it is parsed: to most grammars a lone CR ends no line."""
        return _encoded(_LONE_CR.sub("\n", self.source))

    @functools.cached_property
    def _checkpoints(self) -> list[int]:
        """The byte at which every so manieth character begins."""
        found = [0]
        for at in range(0, len(self.source) - _CHECKPOINT_CHARACTERS + 1, _CHECKPOINT_CHARACTERS):
            found.append(found[-1] + len(_encoded(self.source[at : at + _CHECKPOINT_CHARACTERS])))
        return found

    def byte(self, offset: int) -> int:
        """The byte at which a character begins."""
        if self.source.isascii():
            return min(offset, len(self.source))
        block = min(offset, len(self.source)) // _CHECKPOINT_CHARACTERS
        start = block * _CHECKPOINT_CHARACTERS
        return self._checkpoints[block] + len(_encoded(self.source[start:offset]))

    def _character(self, byte: int) -> int:
        if self.source.isascii():
            return byte
        block = max(bisect.bisect_right(self._checkpoints, byte) - 1, 0)
        rest = self._bytes[self._checkpoints[block] : byte]
        return block * _CHECKPOINT_CHARACTERS + len(rest.decode("utf-8", "surrogatepass"))

    def _point(self, byte: int) -> tuple[int, int]:
        row = self._bytes.count(b"\n", 0, byte)
        return row, byte - (self._bytes.rfind(b"\n", 0, byte) + 1)


def _moved(point: tuple[int, int], text: bytes) -> tuple[int, int]:
    """The point at which `text` ends when it begins at `point`."""
    rows = text.count(b"\n")
    column = len(text) - (text.rfind(b"\n") + 1)
    return (point[0] + rows, column) if rows else (point[0], point[1] + column)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
