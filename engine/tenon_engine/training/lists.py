"""The lists that stand beside this package as text: packages to train on, packages never to train on, names to avoid.

One entry a line; what follows a # is a comment.
"""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources

PYTHON, NPM = "python", "npm"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Package:
    """A package of a registry ("python" or "npm"); a `version` of "" stands for the newest."""

    registry: str
    name: str
    version: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.registry, self.name, self.version)))


def to_train_on() -> tuple[Package, ...]:
    """Packages under permissive licences."""
    return _packages("packages.txt")


def held_out() -> tuple[Package, ...]:
    """Packages that the adapter is evaluated on, and which no corpus may hold."""
    return _packages("held_out.txt")


@functools.cache
def held_out_names() -> frozenset[str]:
    """Their names, whatever the registry."""
    return frozenset(package.name for package in held_out())


@functools.cache
def evaluation_functions() -> tuple[str, ...]:
    """Functions of HumanEval that nobody else is likely to have named so."""
    return _lines("evaluation_names.txt")


def _packages(file_name: str) -> tuple[Package, ...]:
    return tuple(Package(*line.split()) for line in _lines(file_name))


def _lines(file_name: str) -> tuple[str, ...]:
    text = resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(filter(None, lines))
