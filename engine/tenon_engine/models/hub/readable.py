"""What reading a checkpoint's files may raise, as one sentence. Knows nothing of what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from tenon_engine.errors import WeightsCorruptError

# Of transformers and torch, for settings that are of another type, negative, or contradict each other.
_RAISED = (
    *(StrictDataclassError, SafetensorError, OSError, ValueError, TypeError, AttributeError),
    *(ArithmeticError, LookupError, AssertionError, RuntimeError),
)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Inside, what is wrong with the files of the model `name` becomes a WeightsCorruptError; no memory stays that."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except KeyError as error:
        raise WeightsCorruptError(f"config.json of {name} is damaged: it has no {error}") from error
    except _RAISED as error:
        cause = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise WeightsCorruptError(f"{name} cannot be loaded ({cause}); get its files again") from error
