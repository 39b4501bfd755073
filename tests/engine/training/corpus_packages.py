"""Small packages for tests: texts that every filter lets pass, and wheels, npm packages and sdists around them."""

from __future__ import annotations

import io
import json
import random
import tarfile
import zipfile
from pathlib import Path

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")


def python_text(seed: int, line_count: int = 40) -> str:
    """Code of its own for every seed."""
    rng = random.Random(seed)
    names = [f"{first}_{second}" for first in WORDS for second in WORDS]
    lines = (rng.choices(names, k=4) for _ in range(line_count))
    return "".join(f"{result} = {function}({one}, {other})\n" for result, function, one, other in lines)


def make_wheel(
    folder: Path, name: str, files: dict[str, str], *, licence: str = "MIT", readme: str = ""
) -> Path:
    """A wheel that pip takes, of version 1.0."""
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: {licence}\n"
    if readme:
        metadata += f"Description-Content-Type: text/markdown\n\n{readme}"
    information = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
        archive.writestr(f"{information}/METADATA", metadata)
        archive.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{information}/RECORD", "")
    return path


def make_npm_package(folder: Path, name: str, files: dict[str, str], *, licence: str = "MIT") -> Path:
    """What `npm pack` makes, of version 2.0.0."""
    stated = json.dumps({"name": name, "version": "2.0.0", "license": licence})
    return make_tar(
        folder / f"{name.replace('/', '-').lstrip('@')}-2.0.0.tgz",
        "package",
        files | {"package.json": stated},
    )


def make_tar(path: Path, top: str, files: dict[str, str]) -> Path:
    """A tar archive of one folder."""
    with tarfile.open(path, "w:gz") as archive:
        for place, text in files.items():
            info = tarfile.TarInfo(f"{top}/{place}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path
