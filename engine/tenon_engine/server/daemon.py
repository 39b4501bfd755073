"""An engine as a process of its own that answers HTTP: for this user's editors, or at an address of their choice.

Owns the life of that process: one per user, model and version; listening before loading; ending when it is told to,
when its last client is gone, or when it cannot be found any more. The routes are `app`'s, the fills the worker's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import filelock
import uvicorn

from tenon_engine import __version__, memory, runtime
from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError
from tenon_engine.models import registry
from tenon_engine.progress import Progress
from tenon_engine.runtime import Address, DaemonError
from tenon_engine.server import listening
from tenon_engine.server.app import build_app
from tenon_engine.server.listening import Certificate, Place, TcpPlace, UnixPlace
from tenon_engine.server.punctual import PunctualProtocol
from tenon_engine.worker import Worker

if TYPE_CHECKING:
    from tenon_engine.engine import Engine

LOOPBACK = "127.0.0.1"
TAKE_OVER_S = 3.0  # for the engine before this one, told to end, to be gone
FIRST_CLIENT_S = 30.0  # for the first client to come to an engine that was started for it
KEEP_ALIVE_S = 75
ANSWERS_S = 1  # for answers under way when the engine is told to end
EXIT_S = 1.5  # for everything then: a forward that is under way cannot be stopped
TICKS_PER_LOOK = 20  # uvicorn ticks ten times a second
OPEN_FILES_MAX = 65_536


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is served: a model under its configuration, and how long it is kept loaded unused (None: for ever)."""

    config: EngineConfig
    idle_unload_s: float | None


class Linger:
    """Tells when to end an engine without clients: `seconds` after the last one, of which the first may come late."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._ends_at = clock() + max(seconds, FIRST_CLIENT_S)
        self._seen = 0

    def is_over(self, client_count: int, client_total: int) -> bool:
        """Whether it is time; asked again and again, with how many clients there are now, and were so far."""
        now = self._clock()
        if client_count or client_total != self._seen:
            self._ends_at = now + self._seconds
            self._seen = client_total
        return now >= self._ends_at and not client_count


def serve_user(service: Service, *, linger_s: float | None) -> None:
    """Be this user's engine of the model until told to end; DaemonError when there is one."""
    service = _anywhere(service)
    files = runtime.files_of(service.config.model)
    with _alone(files, service.config.model):
        place = _private_place(files)
        with contextlib.closing(listening.listen(place)) as listener:
            address = _address(service.config.model, place, listener, linger_s)

            def begin() -> None:
                runtime.publish(address, files)
                _say(service.config.model, str(address))

            def end() -> None:
                runtime.withdraw(files)
                _remove(place)

            _Daemon(
                service,
                token=address.token,
                on_started=begin,
                on_ending=end,
                is_wanted=lambda: runtime.is_published(address, files),
                linger=None if linger_s is None else Linger(linger_s),
            ).run([listener])


def serve_at(service: Service, place: Place, *, token: str | None, certificate: Certificate | None) -> None:
    """Serve at that place until told to end, beside whatever else serves this user."""
    registry.check(service.config.model)  # a typing error is told at once
    if isinstance(place, TcpPlace) and token is None:
        raise BadRequestError("whoever reaches a HOST:PORT could use the engine: --token-file FILE is needed")
    if certificate is not None:
        listening.check_certificate(certificate)
    with contextlib.closing(listening.listen(place)) as listener:
        scheme = "" if isinstance(place, UnixPlace) else "https://" if certificate else "http://"
        where = f"{scheme}{_bound(place, listener)}"
        _Daemon(
            service,
            token=token,
            certificate=certificate,
            on_started=lambda: _say(service.config.model, where),
            on_ending=lambda: _remove(place),
        ).run([listener])


class _Daemon(uvicorn.Server):
    """The HTTP server around one worker."""

    def __init__(
        self,
        service: Service,
        *,
        token: str | None,
        on_started: Callable[[], None],
        on_ending: Callable[[], None],
        is_wanted: Callable[[], bool] = lambda: True,
        linger: Linger | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self._worker = Worker(_loader(service.config), idle_unload_s=service.idle_unload_s)
        self._app = build_app(self._worker, token=token, models=[service.config.model])
        self._on_started = on_started
        self._on_ending = on_ending
        self._is_wanted = is_wanted
        self._linger = linger
        super().__init__(
            uvicorn.Config(
                self._app,
                http=PunctualProtocol,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=ANSWERS_S,
                ssl_certfile=certificate.chain if certificate else None,
                ssl_keyfile=certificate.key if certificate else None,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer first, then load."""
        _allow_many_connections()
        memory.share_arena()
        await super().startup(sockets)
        self._on_started()
        self._worker.warm()

    async def on_tick(self, counter: int) -> bool:
        """Whether to end now."""
        is_over = self._linger is not None and self._linger.is_over(
            self._app.state.client_count, self._app.state.client_total
        )
        is_lost = counter % TICKS_PER_LOOK == TICKS_PER_LOOK - 1 and not self._is_wanted()
        return await super().on_tick(counter) or is_over or is_lost

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Be found no more, stop what is under way, and end in time, whatever a thread is busy with."""
        self._on_ending()
        patience = threading.Timer(EXIT_S, os._exit, [0])
        patience.daemon = True
        patience.start()
        closing = threading.Thread(target=self._worker.close, daemon=True)
        closing.start()  # now, so that what is under way is answered "cancelled"
        await super().shutdown(sockets)
        closing.join()  # or Python would end beside a thread that computes

    def handle_exit(self, sig: int, frame: object) -> None:
        """A signal ends the server, and after it nothing: uvicorn would raise it once more."""
        self.should_exit = True


def _anywhere(service: Service) -> Service:
    """The same, fit for a process that stands in the runtime folder: it must not keep its starter's in use."""
    config = service.config
    registry.check(config.model)
    os.environ[runtime.FOLDER_VARIABLE] = str(folder := runtime.folder())
    absolute = dataclasses.replace(
        config,
        model=runtime.full_name(config.model),
        home=config.home and config.home.absolute(),
        trusted_models=tuple(map(runtime.full_name, config.trusted_models)),
    )
    os.chdir(folder)
    return dataclasses.replace(service, config=absolute)


@contextlib.contextmanager
def _alone(files: runtime.Files, model: str) -> Iterator[None]:
    """Hold the lock, with nothing left of whoever held it before."""
    if found := runtime.find(model):
        raise DaemonError(f"an engine for {model} is running already: {found} (process {found.pid})")
    try:
        with runtime.lock(files).acquire(timeout=TAKE_OVER_S):
            runtime.withdraw(files)
            yield
    except filelock.Timeout:
        raise DaemonError(f"another process is, or starts, the engine for {model}") from None


def _private_place(files: runtime.Files) -> Place:
    """The user's own socket; where there is none, or its path is too long, loopback, for who has the token."""
    has_sockets = hasattr(socket, "AF_UNIX") and sys.platform != "win32"
    is_short = len(os.fsencode(files.socket)) <= runtime.SOCKET_PATH_BYTES_MAX
    return UnixPlace(files.socket) if has_sockets and is_short else TcpPlace(LOOPBACK, 0)


def _address(model: str, place: Place, listener: socket.socket, linger_s: float | None) -> Address:
    own = Address(model=model, version=__version__, pid=os.getpid(), started=time.time(), linger_s=linger_s)
    if isinstance(place, UnixPlace):
        return dataclasses.replace(own, socket=str(place.path))
    url = f"http://{_bound(place, listener)}"
    return dataclasses.replace(own, url=url, token=secrets.token_urlsafe(32))


def _bound(place: Place, listener: socket.socket) -> Place:
    """`place` with the port that the system chose."""
    if isinstance(place, UnixPlace):
        return place
    return dataclasses.replace(place, port=listener.getsockname()[1])


def _remove(place: Place) -> None:
    if isinstance(place, UnixPlace):
        place.path.unlink(missing_ok=True)


def _say(model: str, where: str) -> None:
    with contextlib.suppress(OSError):  # whoever started it need not listen
        print(f"{model}: {where} (process {os.getpid()})", flush=True)


def _loader(config: EngineConfig) -> Callable[[Progress], Engine]:
    return lambda progress: registry.load_engine(config, progress)


def _allow_many_connections() -> None:
    """As many open files as the system lets a process have: idle connections are many."""
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
