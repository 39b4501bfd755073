"""A Neovim with the plugin, set up as a user does it, and what its server's model says."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.editors import installed
from tests.editors.neovim import Neovim
from tests.lsp.document import at_cursor, at_selection
from tests.lsp.script import Script

from tenon_engine import runtime

# What the server answers goes through here, where a test may add texts; the commands it is given are kept.
SPY = """
rawset(_G, "more", {})
rawset(_G, "commands", {})
local start = vim.lsp.rpc.start
vim.lsp.rpc.start = function(...)
  local server = start(...)
  local request = server.request
  server.request = function(method, params, callback, ...)
    if method == "workspace/executeCommand" then
      table.insert(commands, params.command)
    end
    return request(method, params, function(err, result, ...)
      for _, text in ipairs(method == "textDocument/inlineCompletion" and result and result.items[1] and more or {}) do
        local item = vim.deepcopy(result.items[1])
        item.insertText = text
        table.insert(result.items, item)
      end
      return callback(err, result, ...)
    end, ...)
  end
  return server
end
"""
IS_ATTACHED = """
local client = vim.lsp.get_clients({ name = 'tenon', bufnr = 0 })[1]
return client and client.initialized
"""
IS_VISIBLE = "return require('tenon').is_visible()"
IS_SETTLED = """
local client = vim.lsp.get_clients({ name = 'tenon', bufnr = 0 })[1]
return next(client.requests) == nil
"""
QUICK: dict[str, object] = {"debounceMs": 0, "prefetch": False}


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A version of Neovim, and whether its core shows the suggestions."""

    version: str
    core: bool

    def __str__(self) -> str:
        return f"{self.version}-{'core' if self.core else 'own'}"


CORE, OWN, OLDER = Kind("0.12", core=True), Kind("0.12", core=False), Kind("0.11", core=False)
KINDS = (CORE, OWN, OLDER)


class Editor(Neovim):
    """A Neovim with the plugin, the script that its server's model speaks, and a folder of files."""

    def __init__(
        self, kind: Kind, folder: Path, environment: dict[str, str], script: Script, **options: Any
    ) -> None:
        self.folder, self.script, self.kind = folder, script, kind
        self._files = 0
        program = installed.neovim(kind.version)
        given = {"core": kind.core, "settings": QUICK} | options
        setup = f"require('tenon').setup(vim.json.decode({json.dumps(json.dumps(given))}))"
        super().__init__(program, folder, environment, f"{SPY}\n{setup}\n")

    def edit(self, text: str, name: str = "file.py") -> Path:
        """Edit a new file."""
        self._files += 1
        path = self.folder / f"{self._files}" / name
        path.parent.mkdir()
        path.write_bytes(text.encode())
        self.request("nvim_command", f"edit {path}")
        return path

    def begin(self, marked: str, name: str = "file.py") -> Path:
        """Edit a new file with the server, and insert where its text has the cursor."""
        text, offset = at_cursor(marked)
        path = self.edit(text, name)
        self.until(lambda: self.lua(IS_ATTACHED), "no server")
        before = text[:offset].split("\n")
        self.insert(len(before) - 1, len(before[-1].encode()))
        return path

    def select(self, marked: str, name: str = "file.py") -> Path:
        """Edit a new file with the server, and select what its text has in brackets, by characters."""
        text, start, end = at_selection(marked)
        path = self.edit(text, name)
        self.until(lambda: self.lua(IS_ATTACHED), "no server")
        places = [
            (text[:offset].count("\n") + 1, len(text[:offset].rpartition("\n")[2]))
            for offset in (start, end - 1)
        ]
        (row, column), (end_row, end_column) = places
        moves = [
            f"{row}G0{f'{column}l' if column else ''}",
            f"v{end_row}G0{f'{end_column}l' if end_column else ''}",
        ]
        self.type("<Esc>" + "".join(moves))
        self.until(lambda: self.mode() == "v")
        return path

    def written(self, path: Path) -> str:
        """What is in a file after the text was saved."""
        self.type("<Esc>:silent write<CR>")
        self.until(lambda: not self.lua("return vim.bo.modified"))
        return path.read_bytes().decode()

    def is_visible(self) -> bool:
        """Whether there is something to accept."""
        return bool(self.lua(IS_VISIBLE))

    def settles(self) -> None:
        """Wait until the server has answered everything, to the last change."""
        self.lua("vim.wait(250)")  # the core asks 200 ms after a key
        self.until(lambda: self.lua(IS_SETTLED), "the server did not answer")


@contextlib.contextmanager
def engines_of_its_own() -> Iterator[str]:
    """A runtime folder; the engines in it are ended."""
    with tempfile.TemporaryDirectory(prefix="tenon-") as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv(runtime.FOLDER_VARIABLE, path)
        yield path
        for address in runtime.running():
            with contextlib.suppress(runtime.DaemonError):
                runtime.stop(address)
