"""`tenon finetune`: what is learnt from, where it is kept, how it is undone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.training.corpus_packages import python_text

from tenon_engine import cli
from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.progress import silent
from tenon_engine.training import finetune
from tenon_engine.training.corpus import Corpus
from tenon_engine.training.finetune import Place, place_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for number in range(20):
        part = folder / f"part{number % 3}"
        part.mkdir(parents=True, exist_ok=True)
        (part / f"module{number}.py").write_text(f"# GNU General Public License\n{python_text(number)}")
    (folder / ".gitignore").write_text("ignored/\n")
    (folder / "ignored").mkdir()
    (folder / "ignored" / "module.py").write_text(python_text(100))
    (folder / "secrets.py").write_text(python_text(101))
    return folder


@pytest.fixture
def place(repository: Path, tmp_path: Path) -> Place:
    return place_of(repository, tmp_path / "home")


def test_it_learns_from_the_users_own_files_whatever_their_licence_and_not_from_secrets(place: Place) -> None:
    assert finetune.gather(place, silent) == 20
    texts = Corpus.open(place.corpus)
    paths = {texts[index].path for index in range(len(texts))}
    assert paths == {f"part{number % 3}/module{number}.py" for number in range(20)}


def test_it_compares_on_files_that_it_does_not_learn_from(place: Place) -> None:
    finetune.gather(place, silent)
    tasks = finetune.held_out_holes(place, 6)
    assert len(tasks) == 6
    assert len({task.path for task in tasks}) == 2  # a tenth of the files


def test_the_corpus_of_a_training_under_way_stays_as_it_is(place: Place) -> None:
    finetune.gather(place, silent)
    (place.source / "part0" / "new.py").write_text(python_text(50))
    assert finetune.gather(place, silent) == 20


def test_folders_of_one_name_have_adapters_of_their_own(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "shop"
    other.mkdir(parents=True)
    assert place_of(other, tmp_path).folder != place_of(repository, tmp_path).folder
    assert place_of(repository, tmp_path) == place_of(repository / "part0" / "..", tmp_path)


def test_too_little_to_learn_from_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadRequestError, match="0 files to learn from"):
        finetune.gather(place_of(empty, tmp_path), silent)
    with pytest.raises(InputFileError, match="not a directory"):
        place_of(tmp_path / "missing", None)


def test_status_and_undo(
    repository: Path,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TENON_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str]:
        return cli.main(["finetune", str(repository), *arguments]), capsys.readouterr().out

    assert run("--status") == (1, f"nothing was trained on {repository}\n")
    place.run.mkdir(parents=True)
    assert json.loads(run("--status", "--json")[1])["is_under_way"] is True
    figures = dict.fromkeys(
        ("exact_match", "first_line", "edit_similarity", "syntax_valid", "tokens_per_step"), 0.25
    )
    row = {"n": 60, **figures}
    place.figures.write_text(json.dumps({"before": row, "after": row, "adapter": "/x/adapter.safetensors"}))
    code, text = run("--status")
    assert code == 0
    assert '[engine]\nadapter = "/x/adapter.safetensors"' in text
    assert run("--undo")[0] == 0
    assert not place.folder.exists()
    assert run("--undo") == (1, f"nothing was trained on {repository}\n")


def test_only_the_embedded_model_can_be_trained(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENON_MODEL", "owner/another")
    assert cli.main(["finetune", str(repository)]) == 2
    assert "only tenon-0.5b can be trained" in capsys.readouterr().err
