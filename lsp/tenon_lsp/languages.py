"""The table of languages: one row each, with what the rest of the server needs to know of its grammar.

A language without a row still works, by brackets and indentation. Grammars are loaded when first asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import re

import tree_sitter

_NESTED_AT_MOST = 100  # columns, each of which may begin two blocks; YAML's scanner has room for 250
_MARK_OF_BLOCK = re.compile(r"[-?:](?<!\S.)(?!\S)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language: its LSP id, its grammar, and the names of the nodes that matter."""

    id: str
    grammar: str  # the module that carries it
    entry: str = "language"
    scopes: frozenset[str] = frozenset()  # what encloses others and has a header: functions, classes, …
    blocks: frozenset[str] = frozenset()  # bodies: what a fill may not leave
    imports: frozenset[str] = frozenset()
    comments: frozenset[str] = frozenset({"comment"})
    strings: frozenset[str] = frozenset()
    line_comment: str = ""  # '' where the language has none
    is_indented: bool = False  # blocks end by indentation alone
    is_prose: bool = False
    docstrings: frozenset[str] = frozenset()  # strings that document the scope they begin


def _row(language_id: str, grammar: str, /, **names: str | bool) -> Language:
    """A row whose sets of nodes are written as words in one string."""
    sets = {"scopes", "blocks", "imports", "comments", "strings", "docstrings"}
    return Language(
        id=language_id,
        grammar=grammar,
        **{name: frozenset(str(value).split()) if name in sets else value for name, value in names.items()},  # type: ignore[arg-type]
    )


_SCRIPT = {
    "scopes": "function_declaration generator_function_declaration function_expression method_definition"
    " class_declaration class arrow_function",
    "blocks": "statement_block class_body switch_body object",
    "imports": "import_statement",
    "strings": "string template_string regex",
    "line_comment": "//",
}
_TYPED_SCRIPT = {
    **_SCRIPT,
    "scopes": f"{_SCRIPT['scopes']} interface_declaration enum_declaration internal_module abstract_class_declaration",
    "blocks": f"{_SCRIPT['blocks']} interface_body enum_body",
}
_C = {
    "scopes": "function_definition struct_specifier union_specifier enum_specifier",
    "blocks": "compound_statement field_declaration_list enumerator_list declaration_list",
    "imports": "preproc_include",
    "strings": "string_literal char_literal system_lib_string",
    "line_comment": "//",
}

_ROWS = (
    _row(
        "python",
        "tree_sitter_python",
        scopes="function_definition class_definition",
        blocks="block",
        imports="import_statement import_from_statement future_import_statement",
        strings="string",
        docstrings="string",
        line_comment="#",
        is_indented=True,
    ),
    _row("javascript", "tree_sitter_javascript", **_SCRIPT),
    _row("javascriptreact", "tree_sitter_javascript", **_SCRIPT),
    _row("typescript", "tree_sitter_typescript", entry="language_typescript", **_TYPED_SCRIPT),
    _row("typescriptreact", "tree_sitter_typescript", entry="language_tsx", **_TYPED_SCRIPT),
    _row(
        "go",
        "tree_sitter_go",
        scopes="function_declaration method_declaration type_declaration func_literal",
        blocks="block field_declaration_list literal_value",
        imports="import_declaration package_clause",
        strings="interpreted_string_literal raw_string_literal rune_literal",
        line_comment="//",
    ),
    _row(
        "rust",
        "tree_sitter_rust",
        scopes="function_item impl_item trait_item struct_item enum_item mod_item macro_definition",
        blocks="block declaration_list field_declaration_list enum_variant_list match_block",
        imports="use_declaration extern_crate_declaration",
        comments="line_comment block_comment",
        strings="string_literal raw_string_literal char_literal",
        line_comment="//",
    ),
    _row(
        "java",
        "tree_sitter_java",
        scopes="method_declaration constructor_declaration class_declaration interface_declaration"
        " enum_declaration record_declaration",
        blocks="block class_body interface_body enum_body constructor_body switch_block",
        imports="import_declaration package_declaration",
        comments="line_comment block_comment",
        strings="string_literal character_literal",
        line_comment="//",
    ),
    _row("c", "tree_sitter_c", **_C),
    _row(
        "cpp",
        "tree_sitter_cpp",
        **{
            **_C,
            "scopes": f"{_C['scopes']} class_specifier namespace_definition lambda_expression",
            "imports": "preproc_include using_declaration",
            "strings": f"{_C['strings']} raw_string_literal",
        },
    ),
    _row(
        "csharp",
        "tree_sitter_c_sharp",
        scopes="method_declaration constructor_declaration class_declaration interface_declaration"
        " struct_declaration record_declaration enum_declaration namespace_declaration property_declaration"
        " local_function_statement",
        blocks="block declaration_list enum_member_declaration_list accessor_list switch_body",
        imports="using_directive",
        strings="string_literal verbatim_string_literal raw_string_literal interpolated_string_expression",
        line_comment="//",
    ),
    _row(
        "ruby",
        "tree_sitter_ruby",
        scopes="method singleton_method class module singleton_class",
        blocks="body_statement block_body do_block block",
        strings="string heredoc_body",
        line_comment="#",
    ),
    _row(
        "php",
        "tree_sitter_php",
        entry="language_php",
        scopes="function_definition method_declaration class_declaration interface_declaration"
        " trait_declaration enum_declaration anonymous_function",
        blocks="compound_statement declaration_list enum_declaration_list switch_block",
        imports="namespace_use_declaration namespace_definition",
        strings="string encapsed_string heredoc_body nowdoc_body",
        line_comment="//",
    ),
    _row(
        "shellscript",
        "tree_sitter_bash",
        scopes="function_definition",
        blocks="compound_statement do_group",
        strings="string raw_string ansi_c_string heredoc_body",
        line_comment="#",
    ),
    _row(
        "lua",
        "tree_sitter_lua",
        scopes="function_declaration function_definition",
        blocks="block",
        strings="string",
        line_comment="--",
    ),
    _row("html", "tree_sitter_html", scopes="element", blocks="element", strings="quoted_attribute_value"),
    _row(
        "css",
        "tree_sitter_css",
        scopes="rule_set media_statement",
        blocks="block",
        imports="import_statement",
        comments="comment js_comment",
        strings="string_value",
    ),
    _row("json", "tree_sitter_json", scopes="pair", blocks="object array", strings="string"),
    _row(
        "jsonc", "tree_sitter_json", scopes="pair", blocks="object array", strings="string", line_comment="//"
    ),
    _row(
        "yaml",
        "tree_sitter_yaml",
        scopes="block_mapping_pair",
        blocks="block_mapping block_sequence",
        strings="double_quote_scalar single_quote_scalar",
        line_comment="#",
        is_indented=True,
    ),
    _row(
        "toml",
        "tree_sitter_toml",
        scopes="table table_array_element",
        blocks="array inline_table",
        strings="string",
        line_comment="#",
    ),
    _row("markdown", "tree_sitter_markdown", scopes="section", comments="html_block", is_prose=True),
    _row("sql", "tree_sitter_sql", comments="comment marginalia", strings="literal", line_comment="--"),
)
LANGUAGES = {row.id: row for row in _ROWS}

_SYNONYMS = {
    "bash": "shellscript",
    "c#": "csharp",
    "c++": "cpp",
    "console": "shellscript",
    "cs": "csharp",
    "golang": "go",
    "h": "c",
    "hpp": "cpp",
    "js": "javascript",
    "jsx": "javascriptreact",
    "json5": "jsonc",
    "md": "markdown",
    "mjs": "javascript",
    "py": "python",
    "python3": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "shellscript",
    "shell": "shellscript",
    "ts": "typescript",
    "tsx": "typescriptreact",
    "yml": "yaml",
    "zsh": "shellscript",
}


def language_id(name: str) -> str:
    """The LSP id of a language that a fence, a script or an editor calls `name`; unknown names stay as they are."""
    name = name.strip().lower()
    return _SYNONYMS.get(name, name)


def find(name: str) -> Language | None:
    """The row of a language whose grammar is installed, else None."""
    row = LANGUAGES.get(language_id(name))
    return row if row and importlib.util.find_spec(row.grammar) else None


def parser(language: Language, entry: str | None = None) -> tree_sitter.Parser:
    """A parser of a language, for one thread; `entry` names another grammar of the same module."""
    return tree_sitter.Parser(_grammar(language.grammar, entry or language.entry))


def is_safe(language: Language, source: str) -> bool:
    """Whether a text may be parsed: the scanner of YAML ends the process where blocks are nested too deep."""
    if language.id != "yaml":
        return True
    columns: list[int] = []
    for line in re.split(r"[\r\n]+", source):
        indent = len(line) - len(line.lstrip())
        if indent == len(line):
            continue
        while columns and columns[-1] >= indent:
            columns.pop()
        columns.append(indent)
        columns += (mark.start() for mark in _MARK_OF_BLOCK.finditer(line, indent + 1))
        if len(columns) > _NESTED_AT_MOST:
            return False
    return True


@functools.cache
def _grammar(module: str, entry: str) -> tree_sitter.Language:
    return tree_sitter.Language(getattr(importlib.import_module(module), entry)())
