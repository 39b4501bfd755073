"""Where background engines are found: the private folder, records and locks, and what is left of a killed one."""

from __future__ import annotations

import dataclasses
import http.server
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tenon_engine import __version__, runtime
from tenon_engine.runtime import Address, DaemonError

MODEL = "tenon-0.5b"
POSIX = pytest.mark.skipif(os.name == "nt", reason="modes, links and unix sockets as POSIX has them")

HOLD = """
import signal, sys
from tenon_engine import runtime
signal.signal(signal.SIGTERM, {reaction})
with runtime.lock(runtime.files_of({model!r})).acquire():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tenon-") as path:  # short: a socket's path is
        monkeypatch.setenv(runtime.FOLDER_VARIABLE, path)
        yield Path(path)


def address(**changes: object) -> Address:
    path = runtime.files_of(MODEL).socket
    own = Address(model=MODEL, version=__version__, pid=os.getpid(), started=1.0, socket=str(path))
    return dataclasses.replace(own, **changes)  # type: ignore[arg-type]


def publish(own: Address) -> None:
    runtime.publish(own, runtime.files_of(MODEL))


def is_published(own: Address) -> bool:
    return runtime.is_published(own, runtime.files_of(MODEL))


def holder(reaction: str = "signal.SIG_DFL") -> subprocess.Popen[str]:
    """A process that holds the lock as an engine does, and so reacts to being told to end."""
    code = HOLD.format(model=MODEL, reaction=reaction)
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_nothing_is_found_where_nothing_runs() -> None:
    assert runtime.find(MODEL) is None
    assert runtime.running() == []


@POSIX
def test_the_folder_and_the_files_are_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runtime.FOLDER_VARIABLE, str(tmp_path / "a" / "b"))
    publish(address())
    runtime.is_alive(runtime.files_of(MODEL))
    publish(address())
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    found = sorted((tmp_path / "a" / "b").iterdir())
    assert [path.suffix for path in found] == [".json", ".lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}


@POSIX
def test_a_folder_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.chmod(0o750)
    with pytest.raises(DaemonError, match=f"must be yours alone: chmod 700 {folder} .*TENON_RUNTIME"):
        runtime.folder()


@POSIX
def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv(runtime.FOLDER_VARIABLE, str(tmp_path / "link"))
    with pytest.raises(DaemonError, match="no link"):
        runtime.folder()


@POSIX
def test_a_folder_that_others_could_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv(runtime.FOLDER_VARIABLE, str(tmp_path / "mine"))
    with pytest.raises(DaemonError, match="others can replace it"):
        runtime.folder()


def test_a_folder_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(runtime.FOLDER_VARIABLE, str(tmp_path / "file" / "folder"))
    with pytest.raises(DaemonError, match="cannot be used"):
        runtime.folder()


@POSIX
def test_the_default_folder_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runtime.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stat.S_IMODE(runtime.folder().stat().st_mode) == 0o700
    assert tmp_path in runtime.folder().parents


def test_every_model_and_version_has_files_of_its_own() -> None:
    files = [runtime.files_of(*key).record for key in ((MODEL, "1"), (MODEL, "2"), ("other", "1"))]
    assert len(set(files)) == 3


def test_a_scripts_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert runtime.files_of("scripted:a.json") == runtime.files_of(f"scripted:{tmp_path / 'a.json'}")
    assert runtime.full_name(MODEL) == MODEL


def test_what_is_published_is_read_back_until_it_is_withdrawn() -> None:
    own = address(url="http://127.0.0.1:9", token="secret", socket=None)
    publish(own)
    assert is_published(own)
    assert not is_published(address())
    runtime.withdraw(runtime.files_of(MODEL))
    assert not is_published(own)


def test_a_token_is_not_shown() -> None:
    own = address(url="http://127.0.0.1:9", token="secret", socket=None)
    assert "secret" not in f"{own} {own!r}"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 1}', b"\xff", b"null"])
def test_a_record_that_is_none_is_no_engine(content: bytes) -> None:
    runtime.files_of(MODEL).record.write_bytes(content)
    assert runtime.find(MODEL) is None
    assert runtime.running() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"socket": 5},
        {"socket": None},
        {"url": "http://127.0.0.1:9"},
        {"socket": None, "url": "http://127.0.0.1:port"},
        {"socket": None, "url": "http://127.0.0.1:99999999999999999999"},
        {"socket": "a\x00b"},
        {"model": 5},
        {"pid": -1},
        {"token": []},
        {"more": 1},
    ],
)
def test_a_record_with_a_wrong_value_is_no_engine_and_does_no_harm(wrong: dict[str, object]) -> None:
    record = runtime.files_of(MODEL).record
    record.write_text(json.dumps(dataclasses.asdict(address()) | wrong), encoding="utf-8")
    assert runtime.find(MODEL) is None
    assert runtime.running() == []
    publish(address())
    assert is_published(address())


def test_what_a_killed_engine_left_is_cleared_away() -> None:
    publish(address())
    assert runtime.find(MODEL) is None
    assert runtime.running() == []
    assert not runtime.files_of(MODEL).record.exists()


def test_an_engine_that_lives_without_answering_runs_but_is_not_found() -> None:
    with holder() as process:
        publish(address(pid=process.pid))
        assert [found.pid for found in runtime.running()] == [process.pid]
        assert runtime.find(MODEL) is None
        process.kill()


@POSIX
def test_stopping_is_by_force_where_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "END_S", 0.2)
    with holder("signal.SIG_IGN") as process:
        own = address(pid=process.pid)
        publish(own)
        runtime.stop(own)
        assert process.wait() == -signal.SIGKILL
        assert not runtime.files_of(MODEL).record.exists()


def test_a_stale_record_harms_no_process_that_has_its_number_now() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        publish(address(pid=stranger.pid))
        assert runtime.running() == []  # so that nobody stops it
        assert stranger.poll() is None
        stranger.communicate(b"\n")


@POSIX
def test_a_foreign_server_on_the_socket_is_no_engine() -> None:
    publish(address())
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(runtime.files_of(MODEL).socket))
        foreign.listen()
        answer = threading.Thread(target=lambda: foreign.accept()[0].sendall(b"+OK ready\r\n"))
        answer.start()
        assert runtime.find(MODEL) is None
        answer.join()


class _Strange(http.server.BaseHTTPRequestHandler):
    said: bytes = b""
    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("said", "is_engine"), [(b'{"state": "ready"}', True), (b"{}", False), (b"<html>", False), (b"[]", False)]
)
def test_an_address_on_loopback_is_asked_with_its_token(said: bytes, is_engine: bool) -> None:
    _Strange.said, _Strange.seen = said, []
    with http.server.HTTPServer(("127.0.0.1", 0), _Strange) as server:
        threading.Thread(target=server.handle_request).start()
        own = address(socket=None, url=f"http://127.0.0.1:{server.server_port}", token="secret")
        publish(own)
        assert runtime.find(MODEL) == (own if is_engine else None)
    assert _Strange.seen == ["Bearer secret"]


def test_an_engine_that_ends_at_once_is_reported_in_its_own_words() -> None:
    with pytest.raises(DaemonError, match=r"^there is no model 'tenon-9000b'; supported: "):
        runtime.start("tenon-9000b", linger_s=None)


def test_an_engine_that_cannot_be_run_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(DaemonError, match="cannot be started: No such file"):
        runtime.start(MODEL, linger_s=None)


def test_a_script_costs_nothing_and_is_not_kept() -> None:
    assert (runtime.client_linger_s("scripted:x"), runtime.client_linger_s(MODEL)) == (0.0, 120.0)


def test_finding_nothing_loads_no_torch_and_no_http() -> None:
    code = (
        "import sys, json; from tenon_engine import runtime; assert runtime.find('tenon-0.5b') is None;"
        "print(json.dumps([n for n in sys.modules if n in ('torch', 'uvicorn', 'starlette', 'httpx', 'http.client')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
