"""The VS Code extension without an editor: its settings are the server's, its parts work, its package is small."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tenon_lsp.settings import describe

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
OWN_SETTINGS = {"tenon.path", "tenon.preview", "tenon.trace.server"}
BUNDLE_BYTES_MAX = 500_000
PICTURES_BYTES_MAX = 150_000
PATIENCE_S = 200

Json = dict[str, Any]


def manifest() -> Json:
    form: Json = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    return form


def node(*command: str) -> str:
    """What a program of the extension's tools prints; skipped with the reason where they are not installed."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node and npm are not installed")
    if not (FOLDER / "node_modules").exists():
        pytest.skip("the packages of editors/vscode are not installed: make test-editors")
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def schemas() -> dict[str, Json]:
    """The server's settings, by name, as VS Code wants them described."""
    rows = [re.split(r" \| ", line.strip("| ")) for line in describe().splitlines()[2:]]
    return {
        name.strip("`"): schema(kind, json.loads(default.strip("`")), purpose)
        for name, kind, default, purpose in rows
    }


def schema(kind: str, default: object, purpose: str) -> Json:
    match kind.split():
        case ["true", "or", "false"]:
            form: Json = {"type": "boolean"}
        case ["a", "whole", "number", "from", least, "to", most]:
            form = {"type": "integer", "minimum": int(least), "maximum": int(most)}
        case ["a", "number", "from", least, "to", most]:
            form = {"type": "number", "minimum": int(least), "maximum": int(most)}
        case ["a", "list", "of", "strings"]:
            form = {"type": "array", "items": {"type": "string"}}
        case ["one", "of", *_]:
            form = {"type": "string", "enum": re.findall(r'"(\w+)"', kind)}
        case ["a", "string"] | ["an", "address", *_]:
            form = {"type": "string"}
        case _:
            raise AssertionError(f"a new kind of setting: {kind}")
    if default is None:
        form["type"] = [form["type"], "null"]
    return form | {"default": default, "markdownDescription": purpose}


def test_the_settings_are_those_of_the_server_and_three_of_its_own() -> None:
    properties = manifest()["contributes"]["configuration"]["properties"]
    own = {name: properties.pop(name) for name in OWN_SETTINGS}
    shown = {
        name: {key: value for key, value in form.items() if key not in ("scope", "order")}
        for name, form in properties.items()
    }
    assert shown == schemas()
    assert all(form["markdownDescription"] for form in own.values())


def test_a_workspace_that_is_not_trusted_chooses_neither_program_nor_engine_nor_files() -> None:
    form = manifest()
    untrusted = form["capabilities"]["untrustedWorkspaces"]
    names = {name for name in schemas() if name.startswith("tenon.engine.")} | {"tenon.path"}
    of_files = {"tenon.exclude", "tenon.disabled.globs", "tenon.disabled.languages"}
    assert untrusted["supported"] == "limited"
    assert set(untrusted["restrictedConfigurations"]) == names | of_files
    properties = form["contributes"]["configuration"]["properties"]
    assert all(properties[name]["scope"] == "machine-overridable" for name in names)


def test_every_command_that_is_named_is_there_and_none_is_the_servers() -> None:
    form = manifest()["contributes"]
    declared = {each["command"] for each in form["commands"]}
    named = {each["command"] for each in form["keybindings"]} | {
        each["command"] for entries in form["menus"].values() for each in entries
    }
    own = {name for name in named if name.startswith("tenon.")}
    assert own <= declared
    assert not declared & {"tenon.rewrite", "tenon.carryOut", "tenon.didAccept", "tenon.trace"}
    source = (FOLDER / "src" / "extension.ts").read_text(encoding="utf-8")
    assert all(f'"{name}":' in source for name in declared)


def test_the_lock_file_names_no_registry() -> None:
    packages = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert [name for name, form in packages.items() if "resolved" in form] == []
    assert all("integrity" in form for name, form in packages.items() if name)


def test_the_pictures_of_the_readme_are_small_and_there() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    names = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert names
    assert sum((FOLDER / name).stat().st_size for name in names) <= PICTURES_BYTES_MAX


def test_the_types_are_right() -> None:
    node("npx", "--no", "tsc", "--", "-p", ".")


def test_the_parts_do_what_their_own_tests_say() -> None:
    node("npm", "test", "--silent")


def test_the_package_holds_little_and_its_bundle_is_small(tmp_path: Path) -> None:
    package = tmp_path / "tenon.vsix"
    node("npm", "run", "--silent", "package", "--", "--out", str(package))
    with zipfile.ZipFile(package) as archive:
        sizes = {each.filename: each.file_size for each in archive.infolist()}
    bundled = [size for name, size in sizes.items() if name.endswith(".js")]
    assert sum(bundled) <= BUNDLE_BYTES_MAX
    kinds = {Path(name).suffix for name in sizes if name.startswith("extension/")}
    assert kinds <= {".js", ".json", ".md", ".png", ".txt", ""}
    assert not [name for name in sizes if "node_modules" in name or name.endswith((".ts", ".map"))]
