"""A real Neovim without a screen, driven as a user drives it: keys go in, what would be seen comes out.

Speaks Neovim's msgpack-RPC on the pipes of a child `nvim --embed --headless`. Of the plugin it knows the folder alone.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]

T = TypeVar("T")
Self = TypeVar("Self", bound="Neovim")

PLUGIN = Path(__file__).parents[2] / "editors" / "nvim"
PATIENCE_S = 60.0

_POLL_S = 0.01
_CHUNK_BYTES = 1 << 16
_REQUEST, _RESPONSE = 0, 1

# What is said to the user is kept, as is what somebody adds to the global names.
_INIT = """
said, globals = {}, {}
vim.notify = function(message) table.insert(said, message) end
vim.o.more, vim.o.swapfile = false, false
vim.opt.shortmess:append("FI")
local _ = vim.re -- a module of Neovim's that sets global names when it is first used
setmetatable(_G, { __newindex = function(_, name, value) table.insert(globals, name) rawset(_G, name, value) end })
"""

_SCREEN = """
vim.cmd.redraw()
local rows = {}
for row = 1, vim.o.lines - 2 do
  local cells = {}
  for column = 1, vim.o.columns do
    table.insert(cells, vim.fn.screenstring(row, column))
  end
  table.insert(rows, (table.concat(cells):gsub("%s+$", "")))
end
return rows
"""


class NeovimError(Exception):
    """Neovim's answer to a request that it could not carry out."""


class Neovim:
    """One editor; ends with the block."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        environment: Mapping[str, str],
        init: str,
        files: Sequence[Path] = (),
    ) -> None:
        path = folder / "init.lua"
        path.write_text(
            f"{_INIT}vim.opt.runtimepath:prepend({json.dumps(str(PLUGIN))})\n{init}", encoding="utf-8"
        )
        self._process = subprocess.Popen(
            [str(program), "--embed", "--headless", "-u", str(path), "-i", "NONE", "-n", *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment},
            cwd=folder,
        )
        self._unpacker = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape", strict_map_key=False)
        self._number = 0

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        try:
            self.request("nvim_command", "qall!")
        except (EOFError, BrokenPipeError):
            pass
        finally:
            self._process.stdin.close()
            try:
                self._process.wait(PATIENCE_S)
            finally:
                self._process.kill()
                self._process.stdout.close()

    def request(self, method: str, *arguments: object) -> Any:
        """What a function of Neovim's API returns."""
        assert self._process.stdin
        self._number += 1
        message = msgpack.packb([_REQUEST, self._number, method, arguments])
        self._process.stdin.write(message)
        self._process.stdin.flush()
        while True:
            kind, number, error, result = self._message()
            if (kind, number) == (_RESPONSE, self._number):
                break
        if error:
            raise NeovimError(error[1])
        return result

    def lua(self, code: str, *arguments: object) -> Any:
        """What a piece of Lua returns; it finds its arguments in `...`."""
        return self.request("nvim_exec_lua", code, arguments)

    def type(self, keys: str) -> None:
        """Press keys, named as in a mapping: `<Tab>`, `<lt>`."""
        while keys:
            keys = keys.encode()[self.request("nvim_input", keys) :].decode()

    def insert(self, line: int, column: int) -> None:
        """Begin to insert at a line and a byte of it, both counted from 0."""
        self.lua(
            "local line, column = ... vim.api.nvim_win_set_cursor(0, { line + 1, column })"
            " vim.cmd.startinsert({ bang = column >= #vim.api.nvim_get_current_line() })",
            line,
            column,
        )
        self.until(lambda: self.mode() == "i")

    def mode(self) -> str:
        """The mode's letters."""
        return str(self.request("nvim_get_mode")["mode"])

    def text(self) -> str:
        """The buffer's lines."""
        return "\n".join(self.request("nvim_buf_get_lines", 0, 0, -1, False))

    def screen(self) -> str:
        """What the windows show, without the lines behind the buffer's end."""
        return "\n".join(row for row in self.lua(_SCREEN) if row != "~").rstrip("\n")

    def said(self) -> list[str]:
        """What the user was told."""
        return [*self.lua("return said")]

    def until(self, found: Callable[[], T], what: str = "it never came true") -> T:
        """What `found` returns, as soon as that is true."""
        end = time.monotonic() + PATIENCE_S
        while not (value := found()):
            assert time.monotonic() < end, f"{what}\n{self.screen()}\n{self.said()}"
            time.sleep(_POLL_S)
        return value

    def shows(self, screen: str) -> None:
        """Wait for a screen."""
        self.until(lambda: self.screen() == screen, f"never on the screen: {screen!r}")

    def _message(self) -> tuple[int, int, Any, Any]:
        """The next request or response; notifications are nobody's business."""
        assert self._process.stdout
        output = self._process.stdout.fileno()
        while True:
            for message in self._unpacker:
                if len(message) == 4:
                    return tuple(message)
            ready, _, _ = select.select([output], [], [], PATIENCE_S)
            assert ready, "Neovim does not answer: it may wait for a key"
            if not (chunk := os.read(output, _CHUNK_BYTES)):
                raise EOFError
            self._unpacker.feed(chunk)
