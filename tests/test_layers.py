"""The shape of the product code, read from its source: imports, sizes, docstrings, forbidden calls."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE_FOLDERS = tuple(Path(__file__).parents[1] / name for name in ("engine", "lsp"))

MODULE_LINES_AT_MOST = 350
FUNCTION_LINES_AT_MOST = 60

# What a language server or `tenon --help` imports; a package stands for all its modules.
TORCH_FREE = (
    "tenon_engine.wire",
    "tenon_engine.errors",
    "tenon_engine.config",
    "tenon_engine.fit",
    "tenon_engine.cli",
    "tenon_engine.source_file",
    "tenon_engine.runtime",
    "tenon_engine.commands",
    "tenon_lsp",
)

# The contract, how the shared engine is found, the page of a trace, and fit for the text of engines that have none.
KNOWN_OF_THE_ENGINE = {
    "tenon_engine",
    "tenon_engine.wire",
    "tenon_engine.runtime",
    "tenon_engine.trace",
    "tenon_engine.fit",
    "tenon_engine.line_ends",
    "tenon_engine.comment",
}

BROAD_EXCEPTS_IN = {
    "tenon_engine.cli",  # the outermost edge: an unforeseen exception becomes one sentence
    "tenon_engine.engine",  # whatever a model raises becomes ModelFailedError
    "tenon_engine.tokenizer",  # its library raises bare Exception
    "tenon_engine.worker",  # a fill that fails fails alone
    "tenon_engine.batching",
    "tenon_engine.server.guard",  # the edge to HTTP
}

# Code from a model's repository, or from a file that is meant to hold numbers, is never run.
FORBIDDEN_NAMES = {
    "trust_remote_code",
    "pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
}
FORBIDDEN_CALLS = {"torch.load", "torch.hub.load"}
# Said once, and only of a model that the user has named as trusted.
ALLOWED = [("tenon_engine.models.masked.weights", "trust_remote_code")]


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A source file and the modules it imports: `early` at once, `late` in functions and for types."""

    tree: ast.Module
    line_count: int
    early: frozenset[str]
    late: frozenset[str]


def test_the_parts_are_found() -> None:
    assert {"tenon_engine.wire", "tenon_engine.cli", "tenon_engine.engine"} <= set(_modules())


def test_the_language_server_knows_little_of_the_engine() -> None:
    assert _known("tenon_lsp", "tenon_engine") <= KNOWN_OF_THE_ENGINE


def test_the_engine_knows_nothing_of_the_language_server() -> None:
    assert _known("tenon_engine", "tenon_lsp") == set()


def test_the_wire_knows_nothing_of_the_engine() -> None:
    assert _known("tenon_engine.wire", "tenon_engine") <= {"tenon_engine"}


def test_torch_free_modules_do_not_lead_to_torch() -> None:
    for name in _torch_free():
        path = _path_to("torch", name)
        assert path is None, " -> ".join(path)


def test_importing_the_torch_free_modules_does_not_load_torch() -> None:
    names = ", ".join(_torch_free())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCE_FOLDERS))}
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_no_import_leads_back_to_where_it_started() -> None:
    for name in _modules():
        path = _path_to(name, name)
        assert path is None, " -> ".join(path)


def test_modules_are_short() -> None:
    assert {n: m.line_count for n, m in _modules().items() if m.line_count > MODULE_LINES_AT_MOST} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{name}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, node in _nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_AT_MOST} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, module in _modules().items() if not ast.get_docstring(module.tree)] == []


def test_broad_excepts_stand_at_the_named_edges_alone() -> None:
    found = {name for name, node in _nodes() if isinstance(node, ast.ExceptHandler) and _swallows_all(node)}
    assert found <= BROAD_EXCEPTS_IN


def test_no_code_from_data_is_run() -> None:
    found = [(name, text) for name, node in _nodes() if (text := _spelt(node)) and _is_forbidden(text)]
    assert found == ALLOWED


def _is_forbidden(text: str) -> bool:
    return text in FORBIDDEN_CALLS or bool(FORBIDDEN_NAMES.intersection(text.split(".")))


def _spelt(node: ast.AST) -> str:
    """The dotted name that a node reads, imports or passes; '' for other nodes."""
    if isinstance(node, ast.Attribute | ast.Name):
        return ast.unparse(node)
    if isinstance(node, ast.alias):
        return node.name
    if isinstance(node, ast.ImportFrom):
        return node.module or ""
    return (node.arg or "") if isinstance(node, ast.keyword) else ""


def _swallows_all(handler: ast.ExceptHandler) -> bool:
    """Whether it catches everything; one that ends in a bare `raise` only cleans up."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    caught = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    return any(kind is None or ast.unparse(kind) in {"Exception", "BaseException"} for kind in caught)


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for name, module in _modules().items():
        for node in ast.walk(module.tree):
            yield name, node


def _torch_free() -> list[str]:
    return [name for name in _modules() if any(_within(name, part) for part in TORCH_FREE)]


def _known(knower: str, known: str) -> set[str]:
    """The modules within `known` that modules within `knower` name."""
    knowers = [module for name, module in _modules().items() if _within(name, knower)]
    return {name for module in knowers for name in module.early | module.late if _within(name, known)}


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _path_to(goal: str, start: str) -> list[str] | None:
    """A chain of early imports that leads from `start` to `goal`; None when there is none."""
    paths, seen = [[start]], {start}
    while paths:
        path = paths.pop()
        for name in _modules()[path[-1]].early if path[-1] in _modules() else ():
            if name == goal:
                return [*path, name]
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return None


@functools.cache
def _modules() -> Mapping[str, Module]:
    files = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in SOURCE_FOLDERS
        for path in sorted(folder.rglob("*.py"))
    }
    return {name: _read(name, path, set(files)) for name, path in files.items()}


def _read(name: str, path: Path, names: set[str]) -> Module:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    early = {found for node in _early_nodes(tree) for found in _imported(node, package, names)}
    everything = {found for node in ast.walk(tree) for found in _imported(node, package, names)}
    return Module(tree, len(source.splitlines()), frozenset(early - {name}), frozenset(everything - early))


def _early_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run on import: not in functions, not under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _early_nodes(child)


def _imported(node: ast.AST, package: str, names: set[str]) -> Iterator[str]:
    """What an import statement names: our modules in full, of other packages the top one."""
    if isinstance(node, ast.Import):
        targets = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        parent = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*parent, *([node.module] if node.module else [])])
        inner = [f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in names]
        targets = [*inner, *([base] if len(inner) < len(node.names) else [])]
    else:
        return
    for target in targets:
        parts = target.split(".")
        yield target if target in names else parts[0]
