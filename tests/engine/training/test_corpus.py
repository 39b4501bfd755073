"""A corpus is built from packages and read back; the manifest says what was left out and why."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from tests.engine.training.corpus_packages import make_npm_package, make_tar, make_wheel, python_text

from tenon_engine.errors import BadRequestError, InputFileError
from tenon_engine.progress import silent
from tenon_engine.training import corpus, lists, sources
from tenon_engine.training.archives import Member
from tenon_engine.training.corpus import Corpus, Manifest, SourceText


def build(out: Path, *paths: Path, licence: str = "", workers: int = 1) -> Manifest:
    return corpus.build(sources.find(paths, licence=licence), out, silent, workers=workers)


def left_out(manifest: Manifest) -> dict[str, int]:
    return dict(manifest.left_out)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder as `tenon train fetch` leaves it: two wheels and an npm package."""
    folder = tmp_path / "packages"
    folder.mkdir()
    make_wheel(
        folder,
        "one",
        {"one/a.py": python_text(1), "one/b.py": python_text(2)},
        readme="# One\n\n" + "Read it. " * 40,
    )
    make_wheel(folder, "two", {"two/c.py": python_text(3, 400)}, licence="Apache-2.0")
    make_npm_package(folder, "@scope/three", {"src/d.ts": python_text(4)}, licence="ISC")
    return folder


def test_a_corpus_gives_back_what_was_put_in(tmp_path: Path, packages: Path) -> None:
    build(tmp_path / "out", packages)
    texts = Corpus.open(tmp_path / "out")
    assert len(texts) == 5
    assert texts[0] == SourceText("@scope/three", "src/d.ts", "typescript", "ISC", python_text(4))
    assert {texts[number].path for number in texts.packages["one"]} == {"README.md", "one/a.py", "one/b.py"}
    assert {texts[number].text for number in texts.languages["python"]} == {
        *(python_text(seed) for seed in (1, 2)),
        python_text(3, 400),
    }


def test_the_manifest_counts_and_hashes(tmp_path: Path, packages: Path) -> None:
    manifest = build(tmp_path / "out", packages)
    content = (tmp_path / "out" / "texts.bin").read_bytes()
    assert manifest.sha256 == hashlib.sha256(content).hexdigest()
    assert (
        manifest.bytes == len(content) == sum(manifest.languages.values()) == sum(manifest.licences.values())
    )
    assert {*manifest.licences} == {"Apache-2.0", "ISC", "MIT"}
    wheel = next(report for report in manifest.sources if report.package == "two")
    assert (wheel.version, wheel.texts, wheel.reason) == ("1.0", 1, "")
    assert wheel.sha256 == hashlib.sha256((packages / wheel.file).read_bytes()).hexdigest()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == json.loads(
        json.dumps(dataclasses.asdict(manifest))
    )


def test_the_same_sources_give_the_same_bytes_in_any_order_and_number_of_processes(
    tmp_path: Path, packages: Path
) -> None:
    build(tmp_path / "one", packages)
    build(tmp_path / "two", *sorted(packages.iterdir(), reverse=True), *packages.iterdir(), workers=2)
    for name in ("texts.bin", "files.jsonl", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        "texts.bin",
        "files.jsonl",
        "manifest.json",
    }


def test_an_interrupted_build_goes_on_where_it_was(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def interrupted(stage: str, done: int, total: int) -> None:
        if stage == "read" and done < total:
            raise KeyboardInterrupt

    def noted(path: Path) -> Iterator[Member]:
        read.append(path.name)
        return read_files(path)

    read_files = sources.read_files
    monkeypatch.setattr(sources, "read_files", noted)
    with pytest.raises(KeyboardInterrupt):
        corpus.build(sources.find([packages]), tmp_path / "out", interrupted)
    with pytest.raises(InputFileError, match="holds no corpus"):
        Corpus.open(tmp_path / "out")
    manifest = build(tmp_path / "out", packages)
    assert sorted(read) == sorted(path.name for path in packages.iterdir())
    assert manifest == build(tmp_path / "fresh", packages)


def test_duplicates_are_left_out_across_packages(tmp_path: Path) -> None:
    text = python_text(7, 200)
    nearly = text.replace(text.splitlines()[100], "something = quite(different)")
    folder = tmp_path / "packages"
    folder.mkdir()
    make_wheel(folder, "first", {"a.py": text})
    make_wheel(folder, "second", {"same.py": text, "nearly.py": nearly, "other.py": python_text(8, 200)})
    manifest = build(tmp_path / "out", folder)
    assert left_out(manifest)["duplicate"] == left_out(manifest)["near_duplicate"] == 1
    texts = Corpus.open(tmp_path / "out")
    assert [texts[number].path for number in range(len(texts))] == ["a.py", "other.py"]


@pytest.mark.parametrize("licence", ["AGPL-3.0", "LGPL-2.1-only", "LicenseRef-Proprietary"])
def test_a_package_that_is_not_permissive_is_left_out_whole(tmp_path: Path, licence: str) -> None:
    manifest = build(
        tmp_path / "out", make_wheel(tmp_path, "free", {"a.py": python_text(1)}, licence=licence)
    )
    assert (manifest.texts, manifest.sources[0].reason) == (0, "licence")


def test_a_stated_licence_is_not_overruled_by_an_option(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "free", {"a.py": python_text(1)}, licence="GPL-3.0-only")
    assert build(tmp_path / "out", path, licence="MIT").texts == 0


def test_a_package_that_is_kept_for_evaluation_is_left_out_whole(tmp_path: Path) -> None:
    name = next(package.name for package in lists.held_out() if package.registry == lists.PYTHON)
    manifest = build(tmp_path / "out", make_wheel(tmp_path, name, {"a.py": python_text(1)}))
    assert (manifest.texts, manifest.sources[0].reason) == (0, "held_out")


def test_a_damaged_archive_is_left_out_and_the_others_are_not(tmp_path: Path, packages: Path) -> None:
    whole = make_tar(
        tmp_path / "packages" / "cut-1.0.tar.gz",
        "cut-1.0",
        {"a.py": python_text(9, 3000), "LICENSE": "MIT License"},
    )
    whole.write_bytes(whole.read_bytes()[:3000])
    manifest = build(tmp_path / "out", packages, licence="MIT")
    reasons = {report.file: report.reason for report in manifest.sources}
    assert reasons["cut-1.0.tar.gz"].startswith("unreadable: cut-1.0.tar.gz ")
    assert str(tmp_path) not in reasons["cut-1.0.tar.gz"]
    assert manifest.texts == 5


def test_the_users_own_directory_is_a_source_without_its_secrets(tmp_path: Path) -> None:
    top = tmp_path / "project"
    (top / "ignored").mkdir(parents=True)
    (top / ".gitignore").write_text("ignored/\n")
    for place in ("a.py", "ignored/b.py", "secrets.py"):
        (top / place).write_text(python_text(len(place)))
    manifest = build(tmp_path / "out", top, licence="own")
    texts = Corpus.open(tmp_path / "out")
    assert [texts[number].path for number in range(len(texts))] == ["a.py"]
    assert (texts[0].package, texts[0].licence, left_out(manifest)["secret"]) == ("project", "own", 1)


def test_whatever_licence_the_users_own_code_has_is_no_reason(tmp_path: Path) -> None:
    top = tmp_path / next(iter(lists.held_out_names() - {"@tanstack/query-core"}))
    top.mkdir()
    (top / "LICENSE").write_text("GNU GENERAL PUBLIC LICENSE, Version 3\n")
    (top / "a.py").write_text(f"# under the GNU General Public License\n{python_text(1)}")
    assert build(tmp_path / "theirs", top, licence="MIT").texts == 0
    assert build(tmp_path / "own", top, licence="own").texts == 1


def test_an_sdist_is_named_by_what_it_states(tmp_path: Path) -> None:
    path = make_tar(
        tmp_path / "Thing_x-3.tar.gz",
        "Thing_x-3",
        {"a.py": python_text(1), "PKG-INFO": "Name: Thing.x\nVersion: 3\nLicense: BSD\n"},
    )
    assert sources.describe(path) == sources.Source(path, "thing-x", "3", "BSD-3-Clause")


def test_what_is_neither_a_directory_nor_an_archive_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "a.txt"):
        with pytest.raises(InputFileError, match="neither a directory nor an archive"):
            sources.find([path])


def test_a_corpus_that_is_cut_or_mixed_up_is_not_opened(tmp_path: Path, packages: Path) -> None:
    build(tmp_path / "out", packages)
    for name in ("texts.bin", "files.jsonl", "manifest.json"):
        whole = (tmp_path / "out" / name).read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"[1]\n"):
            (tmp_path / "out" / name).write_bytes(damaged)
            with pytest.raises(InputFileError, match="tenon train corpus"):
                Corpus.open(tmp_path / "out")
        (tmp_path / "out" / name).write_bytes(whole)
    assert len(Corpus.open(tmp_path / "out")) == 5


def test_weights_give_each_language_its_share_as_far_as_it_is_there(tmp_path: Path, packages: Path) -> None:
    build(tmp_path / "out", packages)
    texts = Corpus.open(tmp_path / "out")
    weights = texts.weights({"python": 0.6, "typescript": 0.2, "rust": 0.5, "other": 0.2})
    assert weights.sum() == pytest.approx(1.0)
    shares = {name: weights[list(numbers)].sum() for name, numbers in texts.languages.items()}
    assert shares == pytest.approx({"python": 0.6, "typescript": 0.2, "markdown": 0.2})


def test_within_a_language_packages_count_by_the_root_of_their_size(tmp_path: Path, packages: Path) -> None:
    build(tmp_path / "out", packages)
    texts = Corpus.open(tmp_path / "out")
    weights = texts.weights({"python": 1.0})
    sizes = dict.fromkeys(texts.packages, 0)
    for number in texts.languages["python"]:
        sizes[texts[number].package] += len(texts[number].text)
    shares = {name: weights[list(texts.packages[name])].sum() for name in ("one", "two")}
    assert shares["one"] / shares["two"] == pytest.approx(numpy.sqrt(sizes["one"] / sizes["two"]))


def test_a_mix_of_languages_that_are_not_there_is_refused(tmp_path: Path, packages: Path) -> None:
    build(tmp_path / "out", packages)
    with pytest.raises(
        BadRequestError, match="has nothing in rust: name some of markdown, python, typescript"
    ):
        Corpus.open(tmp_path / "out").weights({"rust": 1.0})
