"""The configuration: file, then environment, then flags; what is wrong is named and its default runs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest

from tenon_engine import config
from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"TENON_CONFIG": str(tmp_path / "config.toml")}


def write(environ: dict[str, str], text: str) -> None:
    Path(environ["TENON_CONFIG"]).write_text(text, encoding="utf-8")


def test_without_any_setting_the_defaults_run(environ: dict[str, str]) -> None:
    assert config.load(environ, {}) == (EngineConfig(), ())


def test_the_environment_wins_over_the_file_and_flags_over_both(environ: dict[str, str]) -> None:
    write(environ, '[engine]\nmodel = "file"\nthreads = 2\nsampler = "margin"\n')
    environ |= {"TENON_MODEL": "environment", "TENON_THREADS": "3"}
    made, complaints = config.load(environ, {"model": "flag", "max_tokens": None})
    assert made == EngineConfig(model="flag", threads=3, sampler="margin")
    assert complaints == ()


def test_every_setting_can_come_from_the_file_and_from_the_environment(environ: dict[str, str]) -> None:
    values = {
        "model": "m",
        "home": "/h",
        "adapter": "/a",
        "offline": True,
        "threads": 3,
        "max_tokens": 8,
        "prefix_tokens": 100,
        "suffix_tokens": 0,
        "sampler": "margin",
        "min_confidence": 0.25,
        "path_header": False,
        "device": "cuda:1",
        "dtype": "fp16",
        "attention": "eager",
        "quantization": "nf4",
        "compile": True,
        "trusted_models": ("owner/one", "two"),
    }
    assert set(values) == {field.name for field in dataclasses.fields(EngineConfig)}
    expected = EngineConfig(**{**values, "home": Path("/h"), "adapter": Path("/a")})  # type: ignore[arg-type]
    from_environment = {f"TENON_{name.upper()}": str(value) for name, value in values.items()}
    from_environment["TENON_TRUSTED_MODELS"] = "owner/one, two"
    assert config.load(environ | from_environment, {}) == (expected, ())
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]  # TOML is like it
    write(environ, "[engine]\n" + "\n".join(lines))
    assert config.load(environ, {}) == (expected, ())


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("thread = 2", "unknown setting engine.thread (did you mean threads?)"),
        ("threads = 0", "engine.threads must be a whole number from 1 to 1024, not 0"),
        ("threads = true", "engine.threads must be a whole number"),
        ('offline = "maybe"', "engine.offline must be true or false, not 'maybe'"),
        ("min_confidence = 1.5", "engine.min_confidence must be a number from 0 to 1, not 1.5"),
        ("min_confidence = nan", "engine.min_confidence must be a number from 0 to 1"),
        ("model = 3", "engine.model must be a name, not 3"),
        ('home = ""', "engine.home must be a path"),
        ('home = "a\\u0000b"', "engine.home must be a path"),
        ('home = "~nosuchuser/x"', "engine.home must be a path in a home folder that exists"),
        ("trusted_models = [1]", "engine.trusted_models must be a list of names, not [1]"),
        ("quantization = 4", "engine.quantization must be a name, not 4"),
        ('"a\\nb\\u009b" = 1', "unknown setting engine.a b<U+009B>"),
    ],
)
def test_a_bad_setting_in_the_file_is_named_and_its_default_runs(
    environ: dict[str, str], table: str, complaint: str
) -> None:
    write(environ, f"[engine]\nmax_tokens = 7\n{table}\n")
    made, (line,) = config.load(environ, {})
    assert made == EngineConfig(max_tokens=7)
    assert complaint in line
    assert "\n" not in line


@pytest.mark.parametrize("text", ["[engine", "engine = 3", "\xff", "a = " + "[" * 5_000])
def test_a_file_that_cannot_be_understood_is_named_and_the_defaults_run(
    environ: dict[str, str], text: str
) -> None:
    Path(environ["TENON_CONFIG"]).write_bytes(text.encode("latin-1"))
    made, (line,) = config.load(environ, {})
    assert made == EngineConfig()
    assert environ["TENON_CONFIG"] in line


def test_a_folder_in_place_of_the_file_is_named(environ: dict[str, str]) -> None:
    Path(environ["TENON_CONFIG"]).mkdir()
    assert "cannot be read" in config.load(environ, {})[1][0]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_pipe_in_place_of_the_file_is_not_waited_for(environ: dict[str, str]) -> None:
    os.mkfifo(environ["TENON_CONFIG"])
    assert "not a regular file" in config.load(environ, {})[1][0]


def test_a_byte_order_mark_before_the_settings_is_accepted(environ: dict[str, str]) -> None:
    write(environ, '\ufeff[engine]\nmodel = "m"\n')
    assert config.load(environ, {}) == (EngineConfig(model="m"), ())


def test_a_home_folder_of_nobody_is_named(environ: dict[str, str]) -> None:
    assert "TENON_HOME must be a path" in config.load(environ | {"TENON_HOME": "~nosuchuser/x"}, {})[1][0]
    assert config.load({"TENON_CONFIG": "~nosuchuser/x"}, {}) == (EngineConfig(), ())


def test_bad_and_unknown_variables_are_named(environ: dict[str, str]) -> None:
    environ |= {"TENON_THREADS": "many", "TENON_TREADS": "2", "TENON_MODEL": ""}
    made, complaints = config.load(environ, {})
    assert made == EngineConfig()
    assert complaints == (
        "TENON_THREADS must be a whole number from 1 to 1024, not 'many'; using the default",
        "unknown environment variable TENON_TREADS (did you mean TENON_THREADS?)",
    )


def test_a_bad_flag_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(BadRequestError, match="--max-tokens must be a whole number from 1 to 1024, not 0"):
        config.load(environ, {"max_tokens": "0"})


def test_tables_of_others_are_left_alone(environ: dict[str, str]) -> None:
    write(environ, '[server]\nport = 1\n[engine]\nmodel = "m"\n')
    assert config.load(environ, {}) == (EngineConfig(model="m"), ())
