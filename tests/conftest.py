"""What several test files share: the embedded model, loaded once, its weights fetched as a user would."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tenon_engine import config as engine_config
from tenon_engine.diffusion import DiffusionModel
from tenon_engine.models.qwen2 import KeyValues

# How long a case takes is the business of benchmarks.
settings.register_profile("tenon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tenon")


@pytest.fixture(scope="session")
def embedded() -> DiffusionModel[KeyValues]:
    from tenon_engine.models.embedded import load_embedded

    config, _ = engine_config.load(os.environ, {})
    return load_embedded(config)
