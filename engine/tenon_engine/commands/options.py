"""Command line options that several commands share, and the configuration they lead to."""

from __future__ import annotations

import argparse
import math
import os
import sys

from tenon_engine import config as configuration
from tenon_engine.config import EngineConfig

TEMPERATURE_MIN, TEMPERATURE_MAX = 0.01, 100.0  # beside 0; outside, arithmetic degenerates
SEED_MAX = 2**63 - 1  # what a generator takes
CONFIG_OPTIONS = ("model", "adapter", "max_tokens", "sampler")


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """`--model`, by name."""
    parser.add_argument(
        "--model", metavar="M", help="tenon-0.5b (default), a hub id, a folder, or scripted:FILE"
    )


def add_adapter_option(parser: argparse.ArgumentParser) -> None:
    """`--adapter`, a file."""
    parser.add_argument(
        "--adapter",
        metavar="FILE",
        help="adapter of the embedded model (default: engine.adapter, else the shipped one)",
    )


def add_canvas_options(parser: argparse.ArgumentParser) -> None:
    """`--max-tokens` and `--sampler`."""
    parser.add_argument("--max-tokens", metavar="N", help="canvas slots of the hole")
    parser.add_argument(
        "--sampler",
        metavar="NAME",
        help="confirm (default), left, frontier:W:T, threshold:T, … (README, Settings)",
    )


def read_config(arguments: argparse.Namespace) -> EngineConfig:
    """The configuration under these flags; what was wrong in file or environment is said on stderr."""
    overrides = {name: getattr(arguments, name, None) for name in CONFIG_OPTIONS}
    config, complaints = configuration.load(os.environ, overrides)
    for complaint in complaints:
        print(f"tenon: warning: {complaint}", file=sys.stderr)
    return config


def names(text: str) -> tuple[str, ...]:
    """argparse type: names with commas between."""
    found = tuple(filter(None, map(str.strip, text.split(","))))
    if not found:
        raise argparse.ArgumentTypeError("must be a name, or several with commas between")
    return found


def count(text: str, *, least: int = 1) -> int:
    """argparse type: a whole number from 1."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise argparse.ArgumentTypeError(f"must be a whole number from {least}, not {text!r}")
    return int(text)


def index(text: str) -> int:
    """argparse type: a whole number from 0."""
    return count(text, least=0)


def seed(text: str) -> int:
    """argparse type: a whole number that a random generator takes."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= SEED_MAX):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {SEED_MAX}, not {text!r}")
    return int(text)


def temperature(text: str) -> float:
    """argparse type: 0, or a number that probabilities can be raised to."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if value != 0 and not TEMPERATURE_MIN <= value <= TEMPERATURE_MAX:
        limits = f"{TEMPERATURE_MIN:g} to {TEMPERATURE_MAX:g}"
        raise argparse.ArgumentTypeError(f"must be 0 or a number from {limits}, not {text!r}")
    return value
