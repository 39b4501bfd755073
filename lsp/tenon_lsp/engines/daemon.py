"""The user's own engine: one process of its own for all windows, started on first use, started again when it died.

Knows where such an engine is looked for, not how it is spoken to.
"""

from __future__ import annotations

from tenon_lsp.engines.client import EngineError, EngineFault
from tenon_lsp.engines.connection import Endpoint
from tenon_lsp.engines.health import Listeners
from tenon_lsp.engines.http import HttpEngine


def daemon_engine(
    model: str, listeners: Listeners, *, idle_minutes: int, log_level: str = "warning"
) -> HttpEngine:
    """The engine with `model` that this user's windows share."""
    return HttpEngine(
        lambda: _found_or_started(model, idle_minutes, log_level), listeners, lost=lambda _: _died()
    )


def _found_or_started(model: str, idle_minutes: int, log_level: str) -> Endpoint:
    from tenon_engine import runtime  # here: what it imports is not needed to begin to listen

    try:
        address = runtime.start(
            model,
            linger_s=runtime.client_linger_s(model),
            idle_minutes=idle_minutes,
            log_level=log_level,
        )
    except runtime.DaemonError as error:
        raise EngineError(EngineFault.STARTING_FAILED, str(error)) from error
    except OSError as error:
        sentence = f"the engine cannot be started: {error.strerror or error}"
        raise EngineError(EngineFault.STARTING_FAILED, sentence) from error
    token = address.token or ""
    if address.url is not None:
        return Endpoint(address.url, token=token)
    assert address.socket is not None
    return Endpoint.at_socket(address.socket, token=token)


def _died() -> EngineError:
    return EngineError(EngineFault.DIED, "the engine ended unexpectedly; the next request starts it again")
