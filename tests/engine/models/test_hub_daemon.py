"""A checkpoint in the engine that editors share: named by a relative path, run by a process that stands elsewhere."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.models import tiny
from tests.lsp.connection import on_loop

from tenon_engine import runtime
from tenon_engine.wire import FillRequest
from tenon_lsp.engines import engine_for
from tenon_lsp.engines.client import EngineError
from tenon_lsp.engines.health import Listeners
from tenon_lsp.settings import EngineSettings

REQUEST = FillRequest.single("def area(r):\n    ", "\n    return r * r * pi\n", language="python")


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stands beside the model; what runs at the end is ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENON_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TENON_OFFLINE", "1")
    with tempfile.TemporaryDirectory(prefix="tenon-") as folder:
        monkeypatch.setenv(runtime.FOLDER_VARIABLE, folder)
        yield
        for address in runtime.running():
            with contextlib.suppress(runtime.DaemonError):
                runtime.stop(address)


@on_loop
async def test_the_settings_of_an_editor_may_name_a_folder(tmp_path: Path) -> None:
    tiny.write_llada(tmp_path / "model")
    engine = engine_for(EngineSettings(model="model"), Listeners())
    try:
        result = await engine.fill(REQUEST)
        assert result.model == str(tmp_path / "model")
        assert result.cost.forwards > 0
        assert [address.model for address in runtime.running()] == [str(tmp_path / "model")]
    finally:
        await engine.close()


@on_loop
async def test_what_is_wrong_with_a_checkpoint_reaches_the_editor(tmp_path: Path) -> None:
    (tiny.write_llada(tmp_path / "model") / "model.safetensors").unlink()
    for name, told in (("model", "has no weights"), ("./nowhere/model", "is not a folder")):
        engine = engine_for(EngineSettings(model=name), Listeners())
        try:
            with pytest.raises(EngineError, match=told):
                await engine.fill(REQUEST)
        finally:
            await engine.close()
