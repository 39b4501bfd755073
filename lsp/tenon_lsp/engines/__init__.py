"""Which engine the settings mean: this user's own, or one elsewhere, in the protocol that is spoken there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tenon_lsp.engines.client import Engine, EngineError, EngineFault
from tenon_lsp.engines.connection import Endpoint
from tenon_lsp.engines.daemon import daemon_engine
from tenon_lsp.engines.health import Listeners
from tenon_lsp.engines.http import HttpEngine
from tenon_lsp.settings import EngineKind, EngineSettings

_SOCKET = "unix:"


def engine_for(settings: EngineSettings, listeners: Listeners, *, log_level: str = "warning") -> Engine:
    """The engine that `settings` mean, not started yet. Without `url`, nothing leaves this machine."""
    if not settings.url:
        return daemon_engine(
            settings.model, listeners, idle_minutes=settings.idle_minutes, log_level=log_level
        )
    model = None if settings.model == EngineSettings().model else settings.model
    if settings.kind is EngineKind.TENON:
        return HttpEngine(lambda: _endpoint(settings), listeners, model=model)
    return _remote(settings, model, listeners)


def _remote(settings: EngineSettings, model: str | None, listeners: Listeners) -> Engine:
    # Here: few clients need them, and all wait for the server to start.
    from tenon_lsp.engines.chat import Chat
    from tenon_lsp.engines.llamacpp import Infill
    from tenon_lsp.engines.openai import Completions
    from tenon_lsp.engines.question import Dialect
    from tenon_lsp.engines.remote import RemoteEngine

    dialects: dict[EngineKind, Dialect] = {
        EngineKind.OPENAI: Completions(model),
        EngineKind.CHAT: Chat(model),
        EngineKind.LLAMACPP: Infill(),
    }
    dialect = dialects[settings.kind]
    return RemoteEngine(lambda: _endpoint(settings), dialect, listeners, model=model)


def _endpoint(settings: EngineSettings) -> Endpoint:
    """Where the settings say the engine is; the token's file is read anew for every connection."""
    token = _token(Path(settings.token_file)) if settings.token_file else ""
    ca_file = _expanded(Path(settings.ca_file)) if settings.ca_file else None
    if settings.url.startswith(_SOCKET):
        return Endpoint.at_socket(settings.url.removeprefix(_SOCKET), token=token)
    if not _has_host(settings.url):
        raise _unusable("the setting engine.url is no address of a server, such as https://localhost:8012")
    return Endpoint(settings.url, token=token, ca_file=ca_file)


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # also of a port that is none
        return False


def _token(path: Path) -> str:
    try:
        text = _expanded(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise _unusable(f"the token file {path} cannot be read ({reason})") from None
    if not text or not text.isprintable() or " " in text:
        raise _unusable(f"the token file {path} does not hold one token")
    return text


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise _unusable(f"there is no home folder for {path}") from None


def _unusable(sentence: str) -> EngineError:
    return EngineError(EngineFault.UNAVAILABLE, sentence)
