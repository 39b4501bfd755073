"""What can go wrong in the engine, as data: a code, a level and one sentence a user can act on.

Does not know who will show an error, nor how.
"""

from __future__ import annotations

import enum


class Level(enum.Enum):
    """How loudly a client should speak about an error."""

    QUIET = "quiet"  # log only: the user did nothing wrong and can do nothing about it
    NOTICE = "notice"  # say it once
    FATAL = "fatal"  # nothing works until the user acts


class EngineError(Exception):
    """Base of every error the engine raises on purpose; `str(error)` is one line for the user."""

    code = "engine_error"
    level = Level.NOTICE


class BadRequestError(EngineError):
    """The request contradicts itself or exceeds a limit."""

    code = "bad_request"


class InputFileError(EngineError):
    """A file the user named cannot be used: missing, binary, undecodable, too large."""

    code = "bad_input"


class UnknownModelError(EngineError):
    """No adapter is registered for the model that was asked for."""

    code = "unknown_model"
    level = Level.FATAL


class WeightsMissingError(EngineError):
    """The base weights are not on this machine and could not be fetched."""

    code = "weights_missing"
    level = Level.FATAL


class WeightsCorruptError(EngineError):
    """A weight file is unreadable, truncated or not the one that was expected."""

    code = "weights_corrupt"
    level = Level.FATAL


class StorageError(EngineError):
    """The disk is full or a folder cannot be written."""

    code = "storage"
    level = Level.FATAL


class ModelFailedError(EngineError):
    """The model raised or produced numbers that mean nothing (NaN) while filling."""

    code = "model_failed"


class OutOfMemoryError(ModelFailedError):
    """The device has not enough memory for the model, or none left for even the smallest canvas."""

    code = "out_of_memory"


class BusyError(EngineError):
    """Too much is waiting already; after `retry_after_s` there may be room."""

    code = "busy"
    level = Level.QUIET

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
