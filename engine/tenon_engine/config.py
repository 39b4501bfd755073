"""Settings of the engine: one frozen value from file, environment and flags, in that order.

Nothing ever writes to it after it is made; everything else takes what it needs as an argument.
Does not know which models or samplers exist: a wrong name there is refused by whoever looks it up.
"""

from __future__ import annotations

import dataclasses
import difflib
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from tenon_engine import excerpt
from tenon_engine.errors import BadRequestError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT_PREFIX = "TENON_"
CONFIG_PATH_VARIABLE = "TENON_CONFIG"
_NO_SETTINGS = (CONFIG_PATH_VARIABLE, "TENON_RUNTIME")  # where things are


@dataclasses.dataclass(frozen=True, slots=True)
class EngineConfig:
    """Every setting of the engine with its default."""

    model: str = "tenon-0.5b"
    home: Path | None = None  # folder of the base weights; None for the user's data folder
    adapter: Path | None = (
        None  # of the embedded model, such as `tenon finetune` makes; None for the one shipped
    )
    offline: bool = False  # True forbids any use of the network
    threads: int | None = None  # None leaves the choice to torch
    max_tokens: int = 32  # canvas slots of a hole that does not say
    prefix_tokens: int = 480
    suffix_tokens: int = 128
    sampler: str = "confirm"
    min_confidence: float = 0.0  # below it, nothing is suggested
    path_header: bool = True  # whether the model is told the file's path
    device: str = "auto"  # of a model of the hub, as are those below: auto, cpu, cuda, cuda:1, …
    dtype: str = "auto"  # auto, bf16, fp16, fp32
    attention: str = "sdpa"  # transformers' name of it
    quantization: str = ""  # fp8, int8, nf4, int4; "" as stored
    compile: bool = False  # the denoising step: faster on a GPU, after a minute or more at the start
    trusted_models: tuple[str, ...] = ()  # whose own code may run


def load(environ: Mapping[str, str], overrides: Mapping[str, object]) -> tuple[EngineConfig, tuple[str, ...]]:
    """The configuration and one line per setting that was not understood (its default runs).

    `overrides` are flags: None stands for "not given", and a bad one raises BadRequestError instead.
    """
    complaints: list[str] = []
    path = config_path(environ)
    settings = _from_table(_read_table(path, complaints), str(path), complaints)
    settings |= _from_environment(environ, complaints)
    settings |= _from_flags(overrides)
    return EngineConfig(**settings), tuple(map(excerpt.one_line, complaints))


def config_path(environ: Mapping[str, str]) -> Path:
    """Where the configuration file is looked for, whether it is there or not."""
    named = environ.get(CONFIG_PATH_VARIABLE)
    if not named:
        return Path(platformdirs.user_config_dir("tenon")) / "config.toml"
    try:
        return Path(named).expanduser()
    except RuntimeError:  # ~somebody, who is not there: nor is the file
        return Path(named)


def _read_table(path: Path, complaints: list[str]) -> Mapping[str, object]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for its writer
            complaints.append(f"{path} cannot be read (it is not a regular file); using defaults")
            return {}
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        complaints.append(f"{path} cannot be read ({error.strerror}); using defaults")
        return {}
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        complaints.append(f"{path} is not valid TOML ({error}); using defaults")
        return {}
    table = document.get("engine", {})
    if not isinstance(table, dict):
        complaints.append(f"{path}: engine must be a table; using defaults")
        return {}
    return table


def _from_table(table: Mapping[str, object], source: str, complaints: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _READERS:
            complaints.append(f"{source}: unknown setting engine.{key}{_hint(key, _READERS)}")
            continue
        try:
            settings[key] = _READERS[key](value)
        except ValueError as error:
            complaints.append(f"{source}: engine.{key} {error}, not {value!r}; using the default")
    return settings


def _from_environment(environ: Mapping[str, str], complaints: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    variables = {ENVIRONMENT_PREFIX + key.upper(): key for key in _READERS}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NO_SETTINGS or not text:
            continue
        if variable not in variables:
            complaints.append(f"unknown environment variable {variable}{_hint(variable, variables)}")
            continue
        try:
            settings[variables[variable]] = _READERS[variables[variable]](text)
        except ValueError as error:
            complaints.append(f"{variable} {error}, not {text!r}; using the default")
    return settings


def _from_flags(overrides: Mapping[str, object]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in overrides.items():
        if value is None:
            continue
        try:
            settings[key] = _READERS[key](value)
        except ValueError as error:
            raise BadRequestError(f"--{key.replace('_', '-')} {error}, not {value}") from None
    return settings


def _hint(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _name(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("must be a name")


def _path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError("must be a path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("must be a path in a home folder that exists") from None


def _optional_name(value: object) -> str:
    return "" if value == "" else _name(value)


def _names(value: object) -> tuple[str, ...]:
    """A list of names; in an environment variable, with commas between."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be a list of names")
    return tuple(filter(None, map(str.strip, parts)))


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _ON | _OFF:
        return value.lower() in _ON
    raise ValueError("must be true or false")


def _whole_number(minimum: int, maximum: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        complaint = f"must be a whole number from {minimum} to {maximum}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(complaint)
        try:
            number = int(value)
        except ValueError:
            raise ValueError(complaint) from None
        if not minimum <= number <= maximum:
            raise ValueError(complaint)
        return number

    return read


def _probability(value: object) -> float:
    complaint = "must be a number from 0 to 1"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(complaint)
    try:
        number = float(value)
    except ValueError:
        raise ValueError(complaint) from None
    if not 0.0 <= number <= 1.0:
        raise ValueError(complaint)
    return number


_ON = {"1", "true", "yes", "on"}
_OFF = {"0", "false", "no", "off"}

_READERS: Mapping[str, Callable[[object], Any]] = {
    "model": _name,
    "home": _path,
    "adapter": _path,
    "offline": _switch,
    "threads": _whole_number(1, 1024),
    "max_tokens": _whole_number(1, 1024),
    "prefix_tokens": _whole_number(1, 32_000),
    "suffix_tokens": _whole_number(0, 32_000),
    "sampler": _name,
    "min_confidence": _probability,
    "path_header": _switch,
    "device": _name,
    "dtype": _name,
    "attention": _name,
    "quantization": _optional_name,
    "compile": _switch,
    "trusted_models": _names,
}
