"""Where commands write: files that are checked before the work begins, and a console on stdout.

Knows nothing of what is written.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from tenon_engine.errors import BadRequestError, StorageError

if TYPE_CHECKING:
    from rich.console import Console


def check_file(path: Path, *, source: Path) -> None:
    """Raise unless a file can be written at `path` without overwriting `source`; changes nothing."""
    try:
        is_there, is_link = path.exists(), path.is_symlink()
        if is_there and source.exists() and path.samefile(source):
            raise BadRequestError(f"{path} is the file that is read: nothing was written to it")
        if not is_there or path.is_file() or path.is_dir():  # a pipe's reader would be told of an end
            with path.open("ab"):
                pass
        if not is_there and not is_link:
            path.unlink()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"{path} cannot be written: {reason}") from None


def check_page(path: Path, *, source: Path) -> None:
    """The same for an HTML page, which replaces no other kind of file."""
    with contextlib.suppress(OSError):
        if path.exists() and not path.is_dir() and path.suffix.lower() not in (".html", ".htm"):
            raise BadRequestError(f"{path} is there and no HTML page: name another file for the trace")
    check_file(path, source=source)


def open_console() -> Console:
    """A console on stdout for which a reader that went away is the caller's business, as it is with print."""
    from rich.console import Console

    class OutputConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return OutputConsole()
