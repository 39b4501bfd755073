"""Where an engine listens: HOST:PORT or a unix socket, opened so that whatever is wrong is one sentence.

Owns the checks of a place, a token and a certificate; knows no HTTP and no engine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import socket
import ssl
import stat
from pathlib import Path

from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.runtime import SOCKET_PATH_BYTES_MAX

UNIX_PREFIX = "unix:"
BACKLOG = 2048
TOKEN_BYTES_MAX = 4096

_HOST_AND_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>[0-9]{1,5})")
_TOKEN = re.compile(r"[!-~]{8,}")  # what a header can carry


@dataclasses.dataclass(frozen=True, slots=True)
class UnixPlace:
    """A unix socket: whoever may open its file may use the engine."""

    path: Path

    def __str__(self) -> str:
        return f"{UNIX_PREFIX}{self.path}"


@dataclasses.dataclass(frozen=True, slots=True)
class TcpPlace:
    """An address of this machine; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Place = UnixPlace | TcpPlace


@dataclasses.dataclass(frozen=True, slots=True)
class Certificate:
    """What TLS is spoken with: a chain of certificates and its private key, in PEM."""

    chain: Path
    key: Path


def parse_place(text: str) -> Place:
    """`HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`."""
    if text.startswith(UNIX_PREFIX) and len(text) > len(UNIX_PREFIX):
        return UnixPlace(Path(text.removeprefix(UNIX_PREFIX)).expanduser().absolute())
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or int(match["port"]) > 0xFFFF:
        raise BadRequestError(f"--listen must be HOST:PORT or unix:PATH, not {text!r}")
    return TcpPlace(match["six"] or match["host"], int(match["port"]))


def listen(place: Place) -> socket.socket:
    """A socket that listens there; a unix socket is for this user alone."""
    return _listen_unix(place.path) if isinstance(place, UnixPlace) else _listen_tcp(place)


def read_token(path: Path) -> str:
    """The token in this file, without the space around it."""
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputFileError(f"the token file {path} cannot be read: {error.strerror}") from error
    if not _TOKEN.fullmatch(token):
        raise InputFileError(
            f"the token file {path} must hold one token of at least 8 ASCII characters, without spaces"
        )
    return token


def check_certificate(certificate: Certificate) -> None:
    """Raise unless TLS can be spoken with these two files."""
    for path in (certificate.chain, certificate.key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InputFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.chain, certificate.key, password=lambda: "")
    except (
        ssl.SSLError,
        OSError,
    ) as error:  # an encrypted key is one: nobody is there to be asked for its word
        names = f"{certificate.chain} and {certificate.key}"
        raise InputFileError(f"{names} are no certificate and its unencrypted key") from error


def _listen_tcp(place: TcpPlace) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        return socket.create_server((place.host, place.port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadRequestError(f"{place} is in use by another process") from error
        raise BadRequestError(f"{place} cannot be listened on: {error.strerror or error}") from error


def _listen_unix(path: Path) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise BadRequestError("this system has no unix sockets: name a HOST:PORT")
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise BadRequestError(f"{path} is too long for a unix socket: at most {SOCKET_PATH_BYTES_MAX} bytes")
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o177)
    try:
        listening.bind(os.fspath(path))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise BadRequestError(f"{path} cannot be listened on: {error.strerror or error}") from error
    finally:
        os.umask(umask)
    return listening


def _remove_stale(path: Path) -> None:
    """Remove a socket on which nobody listens any more; refuse anything else that is there."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return  # nothing there; whatever else is wrong, binding will tell
    if not is_socket:
        raise BadRequestError(f"{path} is there already, and no socket")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
        except OSError as error:
            raise BadRequestError(f"{path} cannot be listened on: {error.strerror or error}") from error
        else:
            raise BadRequestError(f"{path} is in use by another process")
