"""An instruction as a comment line before a hole: in what a model reads, never in the document."""

from __future__ import annotations

_HASH, _SLASHES, _DASHES, _MARKUP = ("# ", ""), ("// ", ""), ("-- ", ""), ("<!-- ", " -->")
_MARKS: dict[str, tuple[str, str]] = {  # by LSP language id; every other one takes a hash
    **dict.fromkeys(
        ("c", "cpp", "csharp", "dart", "go", "groovy", "java", "javascript", "javascriptreact", "jsonc",
         "kotlin", "less", "objective-c", "objective-cpp", "php", "rust", "scala", "scss", "swift",
         "typescript", "typescriptreact", "zig"), _SLASHES),
    **dict.fromkeys(("haskell", "lua", "sql", "elm", "ada"), _DASHES),
    **dict.fromkeys(("html", "xml", "markdown", "vue", "svelte", "xsl"), _MARKUP),
    **dict.fromkeys(("latex", "tex", "bibtex", "erlang", "matlab"), ("% ", "")),
    **dict.fromkeys(("clojure", "lisp", "scheme", "ini"), ("; ", "")),
    "css": ("/* ", " */"),
    "vim": ('" ', ""),
}  # fmt: skip


def with_instruction(prefix: str, instruction: str, language: str | None) -> str:
    """`prefix` with `instruction` as one comment line, indented like the hole's line and right before it."""
    start = prefix.rfind("\n") + 1
    line = prefix[start:]
    indentation = line[: len(line) - len(line.lstrip(" \t"))]
    opener, closer = _MARKS.get(language or "", _HASH)
    return f"{prefix[:start]}{indentation}{opener}{' '.join(instruction.split())}{closer}\n{line}"
