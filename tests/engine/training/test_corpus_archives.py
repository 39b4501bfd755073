"""What is read of directories and archives, and what is not, however they were made."""

from __future__ import annotations

import io
import os
import random
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenon_engine.errors import InputFileError
from tenon_engine.training import archives


def contents(path: Path) -> dict[str, bytes]:
    return {str(member.path): member.read() for member in archives.read_members(path)}


def make_zip(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def make_tar(path: Path, entries: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info in others:
            archive.addfile(info)
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def write(top: Path, **files: str) -> None:
    for name, text in files.items():
        place = top / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def test_wheels_and_tar_archives_give_their_files(tmp_path: Path) -> None:
    entries = {"pkg/a.py": b"a = 1\n", "pkg/b/c.py": b"c = 2\n"}
    assert contents(make_zip(tmp_path / "x.whl", entries)) == entries
    assert contents(make_tar(tmp_path / "x.tar.gz", entries)) == entries
    assert contents(make_tar(tmp_path / "x.tgz", entries)) == entries


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up.py", "a/../../up.py", "C:/x.py", "..\\up.py", "C:\\x.py"]
)
def test_paths_that_lead_out_of_an_archive_are_passed_over(tmp_path: Path, name: str) -> None:
    entries = {name: b"evil", "good.py": b"good"}
    assert contents(make_zip(tmp_path / "x.zip", entries)) == {"good.py": b"good"}
    assert contents(make_tar(tmp_path / "x.tgz", entries)) == {"good.py": b"good"}


def test_links_and_devices_in_a_tar_archive_are_passed_over(tmp_path: Path) -> None:
    others = [
        link("soft.py", "/etc/passwd"),
        link("hard.py", "good.py", tarfile.LNKTYPE),
        link("pipe.py", "", tarfile.FIFOTYPE),
        link("device.py", "", tarfile.CHRTYPE),
    ]
    path = make_tar(tmp_path / "x.tgz", {"good.py": b"good"}, *others)
    assert contents(path) == {"good.py": b"good"}


def test_links_in_a_zip_archive_are_passed_over(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", {"good.py": b"good"})
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("soft.py")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert contents(path) == {"good.py": b"good"}


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "UNPACKED_BYTES_AT_MOST", 1 << 20)
    bomb = {"zeros.py": bytes(4 << 20)}
    for path in (make_zip(tmp_path / "x.zip", bomb), make_tar(tmp_path / "x.tgz", bomb)):
        assert path.stat().st_size < 1 << 16
        with pytest.raises(InputFileError, match="unpacks to more than 1 MB: leave it out"):
            contents(path)


def test_an_archive_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MEMBERS_AT_MOST", 3)
    entries = {f"{number}.py": b"" for number in range(4)}
    for path in (make_zip(tmp_path / "x.zip", entries), make_tar(tmp_path / "x.tgz", entries)):
        with pytest.raises(InputFileError, match="more than 3 files"):
            contents(path)


@pytest.mark.parametrize("name", ["x.zip", "x.tgz"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_a_damaged_archive_is_said_to_be_one_or_read_as_far_as_it_is_whole(
    tmp_path: Path, name: str, place: int, value: int, cut: int
) -> None:
    make = make_zip if name.endswith("zip") else make_tar
    whole = make(
        tmp_path / name, {"a.py": random.Random(1).randbytes(300), "b/c.py": b"x = 1\n" * 90}
    ).read_bytes()
    damaged = bytearray(whole[: max(1, len(whole) - cut % len(whole)) if cut % 3 == 0 else len(whole)])
    damaged[place % len(damaged)] = value
    (tmp_path / name).write_bytes(damaged)
    try:
        contents(tmp_path / name)
    except InputFileError as error:
        assert "\n" not in str(error)


def test_what_git_ignores_is_left_out_of_a_directory(tmp_path: Path) -> None:
    write(
        tmp_path,
        _DOT_gitignore="build/\n*.log\n!keep.log\n/top.py\n!\n",  # the last line is no pattern
        build__made_DOT_py="1",
        a_DOT_log="1",
        keep_DOT_log="1",
        top_DOT_py="1",
        sub__top_DOT_py="1",
        sub___DOT_gitignore="*.py\n!inner.py\n",
        sub__inner_DOT_py="1",
        _DOT_git__config="1",
    )
    assert {*contents(tmp_path)} == {".gitignore", "keep.log", "sub/.gitignore", "sub/inner.py"}


def test_links_in_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    write(tmp_path / "outside", secret_DOT_py="1")
    write(tmp_path / "top", own_DOT_py="1")
    (tmp_path / "top" / "folder").symlink_to(tmp_path / "outside", target_is_directory=True)
    (tmp_path / "top" / "file.py").symlink_to(tmp_path / "outside" / "secret.py")
    (tmp_path / "top" / "circle").symlink_to(tmp_path / "top", target_is_directory=True)
    os.mkfifo(tmp_path / "top" / "pipe.py")
    assert {*contents(tmp_path / "top")} == {"own.py"}
