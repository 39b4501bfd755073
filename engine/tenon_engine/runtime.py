"""The engines that run in the background for one user: where each is found, how one is started and ended.

There is one per model and version. Its files are in the user's private runtime folder, named by a hash of the two:
`.lock`, which it holds for as long as it lives (the system lets go of it, however the process ends); `.json`, the
Address it answers at, there from when it listens to when it is told to end; `.sock`, its socket; and `.log`, what it
wrote to stderr. Whatever a killed one leaves behind, the next one clears away.

Knows nothing of what an engine does. The language server imports this module: it loads no torch and little else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tenon_engine import __version__
from tenon_engine.errors import EngineError

if TYPE_CHECKING:
    from filelock import BaseFileLock

FOLDER_VARIABLE = "TENON_RUNTIME"
EMBEDDED = "tenon-0.5b"  # by this name it is no folder
SCRIPTED_PREFIX = "scripted:"
SOCKET_PATH_BYTES_MAX = 100  # some systems take 104

START_S = 30.0  # until a started engine answers; its weights may still be loading then
ANSWER_S = 3.0  # until an engine that is there answers /health
END_S = 3.0  # until an engine that was told to end is gone
POLL_S = 0.03
CLIENT_LINGER_S = 120.0
LOG_BYTES_MAX = 1 << 20  # a longer log is begun anew by the next start
HEALTH_BYTES_MAX = 1 << 20

# With `-m`, Python would import a workspace's `json.py` or `torch.py` in place of the real one.
_RUN = "import sys; sys.path[:] = filter(None, sys.path); from tenon_engine.cli import main; sys.exit(main())"


class DaemonError(EngineError):
    """A background engine cannot be started or ended, or its folder cannot be used."""

    code = "daemon"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A background engine and where it answers: a unix socket, or a loopback URL and the token it wants."""

    model: str
    version: str
    pid: int
    started: float  # seconds since 1970
    linger_s: float | None = None  # it ends so long after its last client; None: it stays
    socket: str | None = None
    url: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url or f"unix:{self.socket}"


_RECORD_TYPES: dict[str, Any] = {
    "model": str,
    "version": str,
    "pid": int,
    "started": int | float,
    "linger_s": int | float | None,
    "socket": str | None,
    "url": str | None,
    "token": str | None,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Files:
    """Where the engine of one model and version keeps what."""

    record: Path
    socket: Path
    lock: Path
    log: Path


def find(model: str) -> Address | None:
    """Where the user's engine of this version with `model` answers now; None when none does."""
    address = _read(files_of(model).record)
    return address if address and health(address) else None


def start(
    model: str, *, linger_s: float | None, idle_minutes: int | None = None, log_level: str = "warning"
) -> Address:
    """Find that engine or start it, and wait until it answers; DaemonError, with its own words, when it does not.

    Who starts the same one at the same time gets the same one. It outlives this process; with `linger_s`, it ends
    that long after its last client.
    """
    if found := find(model):
        return found
    files = files_of(model)
    command = [
        sys.executable,
        "-c",
        _RUN,
        "--log-level",
        log_level,
        "engine",
        "run",
        "--model",
        full_name(model),
    ]
    command += [] if linger_s is None else ["--linger-seconds", f"{linger_s:g}"]
    command += [] if idle_minutes is None else ["--idle-minutes", str(idle_minutes)]
    process, log_begin = _spawn(command, files.log)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if found := find(model):
            return found
        if process.poll() is not None and not is_alive(files):
            raise DaemonError(
                _last_words(files.log, log_begin) or f"the engine ended at once (see {files.log})"
            )
        time.sleep(POLL_S)
    process.kill()
    way_out = "; `tenon engine stop` ends the one that hangs" if is_alive(files) else ""
    raise DaemonError(f"the engine does not answer within {START_S:.0f} s (see {files.log}){way_out}")


def stop(address: Address) -> None:
    """End that engine, by force if need be; returns when it is gone."""
    files = files_of(address.model, address.version)
    for reason in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with contextlib.suppress(OSError):  # it is gone already
            os.kill(address.pid, reason)
        if not is_alive(files, patience_s=END_S):
            return
        latest = find(address.model)
        if (
            latest is not None and latest.pid != address.pid
        ):  # somebody who waited for it to end has begun another
            return
    raise DaemonError(f"the engine (process {address.pid}) does not end")


def running() -> list[Address]:
    """The user's engines, of every model and version, that live, whether they answer or not."""
    addresses = map(_read, sorted(folder().glob("engine-*.json")))
    return [found for found in addresses if found and is_alive(files_of(found.model, found.version))]


def client_linger_s(model: str) -> float:
    """The `linger_s` of an engine that a client starts for its own use: none for a script, which costs nothing."""
    return 0.0 if model.startswith(SCRIPTED_PREFIX) else CLIENT_LINGER_S


def health(address: Address) -> dict[str, Any] | None:
    """What the engine at `address` says of itself; None when nobody answers, or somebody who is no engine."""
    import http.client  # here: a language server that needs it imports it when it has begun to listen

    connection = http.client.HTTPConnection("localhost", timeout=ANSWER_S)
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    try:
        connection.sock = _dial(address)
        connection.request("GET", "/health", headers=headers)
        said = json.loads(connection.getresponse().read(HEALTH_BYTES_MAX))
    except (OSError, http.client.HTTPException, ValueError, OverflowError, RecursionError):
        return None
    finally:
        connection.close()
    return said if isinstance(said, dict) and "state" in said else None


def full_name(model: str) -> str:
    """`model`, a path in it made absolute: an engine and its clients may stand in different folders."""
    if model.startswith(SCRIPTED_PREFIX):
        return f"{SCRIPTED_PREFIX}{Path(model.removeprefix(SCRIPTED_PREFIX)).absolute()}"
    return str(model_folder(model) or model)


def model_folder(model: str) -> Path | None:
    """The folder that `model` names, made absolute; None when it names none, as a hub id does."""
    try:
        path = Path(model).expanduser().absolute()
        return path if path.is_dir() and model != EMBEDDED else None
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or of ~somebody who is not there
        return None


def files_of(model: str, version: str = __version__) -> Files:
    """The files of the engine with this model and version; their folder is there afterwards."""
    key = hashlib.sha256(f"{full_name(model)}\0{version}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    stem = folder() / f"engine-{key}"
    return Files(*(stem.with_suffix(f".{kind}") for kind in ("json", "sock", "lock", "log")))


def folder() -> Path:
    """The runtime folder: made if need be, and refused unless it is this user's alone."""
    named = os.environ.get(FOLDER_VARIABLE)
    try:
        path = Path(named).expanduser().absolute() if named else _default_folder()
        for missing in reversed([place for place in (path, *path.parents) if not place.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        complaint = "" if os.name == "nt" else _complaint(path)  # there, folders inherit who may read them
    except (OSError, RuntimeError) as error:  # RuntimeError: ~somebody, who is not there
        complaint = f"the runtime folder cannot be used: {error}"
    if complaint:
        raise DaemonError(f"{complaint} (another one can be named in {FOLDER_VARIABLE})")
    return path


def publish(address: Address, files: Files) -> None:
    """Let `find` find this engine. For the engine itself, as is what follows."""
    draft = files.record.with_suffix(".new")
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
    ) as file:
        json.dump(dataclasses.asdict(address), file)
    draft.replace(files.record)


def is_published(address: Address, files: Files) -> bool:
    """Whether `find` still finds this engine: its folder may go when the user logs out."""
    return _read(files.record) == address


def withdraw(files: Files) -> None:
    """The contrary of `publish`; also fit for what a killed engine left behind."""
    files.record.unlink(missing_ok=True)


def lock(files: Files) -> BaseFileLock:
    """The lock that an engine holds for as long as it lives."""
    import filelock  # here for the same reason as above

    return filelock.FileLock(files.lock, mode=0o600, poll_interval=POLL_S)


def is_alive(files: Files, *, patience_s: float = 0.0) -> bool:
    """Whether the engine of these files lives, still after `patience_s`; if not, what it left is removed."""
    import filelock

    try:
        with lock(files).acquire(timeout=patience_s):
            withdraw(files)
    except filelock.Timeout:
        return True
    return False


def _read(record: Path) -> Address | None:
    """What a record says; None where there is none, or none of this version's."""
    try:
        form = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(form, dict) or form.keys() != _RECORD_TYPES.keys():
        return None
    if not all(isinstance(form[name], kind) for name, kind in _RECORD_TYPES.items()):
        return None
    address = Address(**form)
    return address if address.pid > 0 and (address.socket is None) != (address.url is None) else None


def _dial(address: Address) -> socket.socket:
    if address.url is not None:
        host, _, port = address.url.rpartition("/")[2].rpartition(":")
        return socket.create_connection((host, int(port)), timeout=ANSWER_S)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_S)
        connection.connect(cast(str, address.socket))
    except BaseException:
        connection.close()
        raise
    return connection


def _spawn(command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The process, free of ours, and where in the log its own words begin."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if os.fstat(descriptor).st_size > LOG_BYTES_MAX:
            os.ftruncate(descriptor, 0)
        begin = os.fstat(descriptor).st_size
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
            start_new_session=True,  # no hang-up and no ctrl-c of ours reaches it
            creationflags=_creation_flags(),
        )
    except OSError as error:
        raise DaemonError(f"the engine cannot be started: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    threading.Thread(target=process.wait, daemon=True).start()  # so that no zombie is left while we live
    return process, begin


def _creation_flags() -> int:
    if sys.platform == "win32":
        return subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    return 0


def _last_words(log: Path, begin: int) -> str:
    """The last line that was written behind `begin`: on failure, the one sentence of `tenon`."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("tenon: ") if lines else ""


def _default_folder() -> Path:
    import platformdirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another folder had to be taken is of no consequence here
        return Path(platformdirs.user_runtime_dir("tenon", appauthor=False))


def _complaint(path: Path) -> str:
    """Why others could read or replace what is in this folder; '' when they cannot."""
    found, above = path.lstat(), path.parent.stat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return f"the runtime folder {path} must be a folder of yours, and no link"
    if found.st_mode & 0o077:
        return f"the runtime folder {path} must be yours alone: chmod 700 {path}"
    others_may_write = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
    if others_may_write or above.st_uid not in (0, os.getuid()):
        return f"the runtime folder {path} is in a folder where others can replace it"
    return ""
