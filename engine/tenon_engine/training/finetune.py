"""The adapter of one folder: where it is kept, what it is trained on, how it compares on files it has not seen.

Everything lies in one folder of the user's data, named after the user's folder, so that undoing it is to remove that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import platformdirs

from tenon_engine.base_fetch import appearing_complete
from tenon_engine.config import EngineConfig
from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.evaluation import holes
from tenon_engine.evaluation.holes import HoleTask, Outcome, Summary
from tenon_engine.models import registry
from tenon_engine.progress import Progress, silent
from tenon_engine.training import corpus, licences, sources
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.examples import held_out_texts
from tenon_engine.training.holes import deterministic
from tenon_engine.training.pack import pack

HELD_OUT = 0.1  # of the files
TEXTS_AT_LEAST = 10
HOLE_TOKENS = 48


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """What is kept of a user's folder, and where. `corpus` and `run` are there while its training is not done."""

    source: Path
    folder: Path

    @property
    def adapter(self) -> Path:
        """The result."""
        return self.folder / "adapter.safetensors"

    @property
    def corpus(self) -> Path:
        """What it is trained on."""
        return self.folder / "corpus"

    @property
    def run(self) -> Path:
        """The checkpoint."""
        return self.folder / "run"

    @property
    def figures(self) -> Path:
        """Before and after, JSON."""
        return self.folder / "figures.json"


def place_of(source: Path, home: Path | None) -> Place:
    """Where the adapter of a folder is kept, whether it is there or not."""
    if not source.is_dir():
        raise InputFileError(f"{source} is not a directory")
    source = source.resolve()
    key = f"{source.name}-{hashlib.sha256(str(source).encode()).hexdigest()[:8]}"
    return Place(source, (home or Path(platformdirs.user_data_dir("tenon"))) / "adapters" / key)


def gather(place: Place, progress: Progress) -> int:
    """The corpus of the folder, made unless a training on it is under way; how many texts it has.

    Ignored files, secrets, generated and copied ones are left out as they are of every corpus.
    """
    if not (place.corpus / "manifest.json").exists():
        source = sources.describe(place.source, licence=licences.OWN)
        corpus.build([dataclasses.replace(source, package=place.source.name)], place.corpus, progress)
    count = len(Corpus.open(place.corpus)) if (place.corpus / "texts.bin").stat().st_size else 0
    if count < TEXTS_AT_LEAST:
        shutil.rmtree(place.corpus)
        raise BadRequestError(
            f"{place.source} has {count} files to learn from, and {TEXTS_AT_LEAST} are the least that make sense"
        )
    return count


def finish(
    place: Place, config: EngineConfig, hole_count: int, progress: Progress = silent
) -> dict[str, Any]:
    """Pack the adapter, compare it with the shipped one, and remove what only the training needed."""
    packed = pack(place.run, place.adapter)
    tasks = held_out_holes(place, hole_count)
    figures = {"source": str(place.source), "steps": packed.step, "adapter": str(place.adapter)}
    for name, adapter in (("before", None), ("after", place.adapter)):
        figures[name] = holes.summary_row(
            _summary(dataclasses.replace(config, adapter=adapter), tasks, progress)
        )
    with appearing_complete(place.figures) as path:
        path.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    for needed in (place.corpus, place.run):
        shutil.rmtree(needed)
    return figures


def held_out_holes(place: Place, count: int) -> list[HoleTask]:
    """Holes of the files that were not trained on, as many of each."""
    texts = Corpus.open(place.corpus)
    held_out = [texts[int(index)] for index in held_out_texts(texts, HELD_OUT).nonzero()[0]]
    of_each = -(-count // max(1, len(held_out)))
    return [
        HoleTask(text.path, text.language, text.text, span)
        for text in held_out
        for span in deterministic(text.text, text.language, 0, of_each)
    ][:count]


def undo(place: Place) -> bool:
    """Remove all that is kept of the folder; False when there is nothing."""
    if not place.folder.exists():
        return False
    shutil.rmtree(place.folder)
    return True


def _summary(config: EngineConfig, tasks: list[HoleTask], progress: Progress) -> Summary:
    config = dataclasses.replace(config, max_tokens=HOLE_TOKENS, min_confidence=0.0)
    engine = registry.load_engine(config, silent)
    outcomes: list[Outcome] = []
    for outcome in holes.evaluate(engine, tasks):
        outcomes.append(outcome)
        progress("compare", len(outcomes), len(tasks))
    return holes.summarise(outcomes)
