"""Tenon's engine: a text-diffusion model fills holes in text so that they fit both sides.

The front door: `FillRequest` in, `FillResult` out, an `Engine` between them, `load_engine` to get one. Importing this
package does no work and imports no torch; `Engine` and `load_engine` bring it in when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_engine.wire import FillRequest, FillResult

if TYPE_CHECKING:
    from tenon_engine.engine import Engine

__version__ = "0.1.0"
__all__ = ["Engine", "FillRequest", "FillResult", "__version__", "load_engine"]


def load_engine() -> Engine:
    """An engine as the user's configuration file and environment describe it; see `tenon_engine.config`."""
    import os

    from tenon_engine import config
    from tenon_engine.models import registry

    configured, _ = config.load(os.environ, {})
    return registry.load_engine(configured)


def __getattr__(name: str) -> object:
    if name == "Engine":
        from tenon_engine.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
