"""`tenon engine` as its users have it: real processes around scripted models, from start to end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenon_engine import runtime
from tenon_engine.runtime import Address
from tenon_engine.server.daemon import FIRST_CLIENT_S, Linger

pytestmark = pytest.mark.skipif(os.name == "nt", reason="unix sockets and signals")

PATIENCE_S = 40  # never used up, but on a busy machine
ASK = {"segments": ["x = ", {}, "\n"]}

# Counts loads: every process that makes a scripted model writes a line.
COUNT_LOADS = """
import os
from tenon_engine.models.scripted import ScriptedModel
made = ScriptedModel.__init__
def counted(self, path):
    made(self, path)
    with open(f"{path}.loads", "a") as loads:
        loads.write(f"{os.getpid()}\\n")
ScriptedModel.__init__ = counted
"""

# A step that cannot be stopped.
BLOCK = """
import time
from tenon_engine.models.scripted import ScriptedModel
propose = ScriptedModel.propose
def blocking(*arguments):
    yield from propose(*arguments)
    time.sleep(600)
ScriptedModel.propose = blocking
"""

CLIENT = """
import http.client, socket, sys
from tenon_engine import runtime
address = runtime.start(sys.argv[1], linger_s=0)
client = http.client.HTTPConnection("localhost")
client.sock = socket.socket(socket.AF_UNIX)
client.sock.connect(address.socket)
client.request("GET", "/v1/events")
client.getresponse().readline()
print(address.pid, flush=True)
sys.stdin.read()
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A user's runtime folder, and a script to answer from."""

    folder: Path
    script: Path

    @property
    def model(self) -> str:
        return f"scripted:{self.script}"

    @property
    def files(self) -> runtime.Files:
        return runtime.files_of(self.model)

    def write(self, *entries: dict[str, object]) -> None:
        self.script.write_text(json.dumps(entries), encoding="utf-8")

    def loads(self) -> list[str]:
        return Path(f"{self.script}.loads").read_text().split()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="tenon-") as folder:  # short: a socket's path is
        monkeypatch.setenv(runtime.FOLDER_VARIABLE, folder)
        place = Place(Path(folder), tmp_path / "script.json")
        place.write({"raw": "1"})
        yield place
        while left := runtime.running():  # one that is stopped may make room for one that waited
            runtime.stop(left[0])


def tenon(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenon_engine", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


@contextlib.contextmanager
def running(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """`tenon …` in the foreground; `first_line` of its output is there when it has begun."""
    command = [sys.executable, "-m", "tenon_engine", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def customised(folder: Path, code: str) -> dict[str, str]:
    """An environment in which Python begins with `code`."""
    (folder / "sitecustomize.py").write_text(code)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def started(place: Place, **options: Any) -> Address:
    return runtime.start(place.model, linger_s=None, **options)


def client(address: Address, token: str | None = None) -> httpx.Client:
    given = token or address.token
    headers = {"Authorization": f"Bearer {given}"} if given else {}
    transport = httpx.HTTPTransport(uds=address.socket) if address.socket else None
    return httpx.Client(
        transport=transport, base_url=address.url or "http://localhost", headers=headers, timeout=PATIENCE_S
    )


def fill(address: Address) -> str:
    with client(address) as http:
        answer = http.post("/v1/infill", json=ASK)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["holes"][0]["candidates"][0]["text"]
        return text


def is_gone(place: Place) -> bool:
    return not runtime.is_alive(place.files, patience_s=PATIENCE_S)


@contextlib.contextmanager
def watching(http: httpx.Client) -> Iterator[None]:
    """An event stream, as every editor has one open."""
    with http.stream("GET", "/v1/events") as events:
        lines = events.iter_lines()  # kept: the end of this iterator would close the stream
        next(lines)
        yield


def wait_for_call(place: Place) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not Path(f"{place.script}.calls.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2 and done.stdout == "", done
    *_, line = done.stderr.splitlines()
    assert line.startswith("tenon: ") and "Traceback" not in done.stderr
    return line.removeprefix("tenon: ")


def test_an_engine_is_started_seen_used_and_stopped(place: Place) -> None:
    done = tenon("engine", "start", "--model", place.model)
    address = runtime.find(place.model)
    assert address is not None
    assert done.stdout.startswith(
        f"{place.model}: unix:{place.files.socket} (process {address.pid}, version "
    )
    assert fill(address) == "1"
    (seen,) = json.loads(tenon("engine", "status", "--json").stdout)
    assert seen["model"] == place.model and seen["process"] == address.pid and seen["state"] == "ready"
    assert f"(process {address.pid}, " in tenon("engine", "status").stdout
    assert tenon("engine", "stop").stdout == f"{place.model}: stopped (process {address.pid})\n"
    assert runtime.running() == []
    assert sorted(path.suffix for path in place.folder.iterdir()) == [".lock", ".log"]


def test_nothing_to_stop_and_nothing_to_see_is_said(place: Place) -> None:
    assert tenon("engine", "stop").stdout == tenon("engine", "status").stdout == "no engine is running\n"
    assert tenon("engine", "status", "--json").stdout == "[]\n"


def test_starting_again_finds_the_same_engine(place: Place) -> None:
    assert started(place) == started(place)


def test_two_starts_at_once_load_once(place: Place, tmp_path: Path) -> None:
    environment = customised(tmp_path, COUNT_LOADS)
    command = [sys.executable, "-m", "tenon_engine", "engine", "start", "--model", place.model]
    starts = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    first, second = (process.communicate(timeout=60)[0] for process in starts)
    assert first == second != ""
    (address,) = runtime.running()
    assert fill(address) == "1"
    assert place.loads() == [str(address.pid)]


def test_stop_can_mean_one_model_alone(place: Place, tmp_path: Path) -> None:
    other = Place(place.folder, tmp_path / "other.json")
    other.write({"raw": "2"})
    kept, ended = started(place), started(other)
    assert tenon("engine", "stop", "--model", other.model).stdout.endswith(f"(process {ended.pid})\n")
    assert runtime.running() == [kept]


def test_a_killed_engine_is_followed_by_another(place: Place) -> None:
    killed = started(place)
    os.kill(killed.pid, signal.SIGKILL)
    assert is_gone(place)
    assert place.files.socket.exists()  # as it left it
    following = started(place)
    assert following.pid != killed.pid
    assert fill(following) == "1"


def test_a_foreign_process_on_the_socket_is_refused_and_left_alone(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(place.files.socket))
        foreign.listen()
        said = complaint(tenon("engine", "start", "--model", place.model))
        assert said == f"{place.files.socket} is in use by another process"
    assert place.files.socket.exists()


def test_a_second_one_in_the_foreground_is_refused(place: Place) -> None:
    address = started(place)
    said = complaint(tenon("engine", "run", "--model", place.model))
    assert said == f"an engine for {place.model} is running already: {address} (process {address.pid})"


def test_the_folder_of_whoever_starts_it_is_neither_used_nor_imported_from(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "torch", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    address = runtime.start("scripted:script.json", linger_s=None)
    assert address.model == place.model
    assert fill(address) == "1"
    if Path("/proc").exists():
        assert Path(f"/proc/{address.pid}/cwd").readlink() == place.folder


def test_its_files_are_the_users_alone(place: Place) -> None:
    started(place)
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in place.folder.iterdir()}
    assert modes == dict.fromkeys([".json", ".lock", ".log", ".sock"], 0o600)


def test_where_a_sockets_path_is_too_long_loopback_and_a_token_serve(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runtime.FOLDER_VARIABLE, str(place.folder / ("long" * 25)))
    address = started(place)
    assert address.socket is None and address.url is not None and address.url.startswith("http://127.0.0.1:")
    assert address.token is not None
    assert fill(address) == "1"
    with client(address, token="another") as stranger:
        assert stranger.post("/v1/infill", json=ASK).status_code == 401
    shown = tenon("engine", "status", "--json").stdout + tenon("engine", "status").stdout
    assert address.url in shown and address.token not in shown
    runtime.stop(address)


def test_it_ends_with_its_last_client_where_it_was_started_for_one(place: Place) -> None:
    address = runtime.start(place.model, linger_s=0)
    with client(address) as http, watching(http):
        with watching(http):
            pass
        assert json.loads(tenon("engine", "status", "--json").stdout)[0]["linger_s"] == 0
    assert is_gone(place)
    assert not place.files.socket.exists()


def test_a_killed_client_leaves_no_orphan(place: Place) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", CLIENT, place.model]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        pid = int(first_line(parent))
        assert f"(process {pid}, " in tenon("engine", "status").stdout
        parent.kill()
    assert is_gone(place)


def test_an_engine_that_cannot_be_found_any_more_ends(place: Place) -> None:
    with running("engine", "run", "--model", place.model) as process:
        first_line(process)
        shutil.rmtree(place.folder)  # as logging out does
        assert process.wait(PATIENCE_S) == 0


def test_starting_an_engine_that_an_editor_started_says_how_long_it_lives(place: Place) -> None:
    runtime.start(place.model, linger_s=60)
    assert tenon("engine", "start", "--model", place.model).stdout.endswith(
        ", ends 60 s after its last editor)\n"
    )


@pytest.mark.parametrize("reason", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_whatever_is_under_way(place: Place, reason: signal.Signals) -> None:
    place.write({"raw": "", "hang": True})
    with running("engine", "run", "--model", place.model) as process:
        first_line(process)
        address = runtime.find(place.model)
        assert address is not None
        with client(address) as http, watching(http), ThreadPoolExecutor() as threads:
            answer = threads.submit(http.post, "/v1/infill", json=ASK)
            wait_for_call(place)
            process.send_signal(reason)
            assert answer.result().json()["stopped"] == "cancelled"
            assert process.wait(2) == 0
        assert process.stderr is not None and "Traceback" not in process.stderr.read()
    assert not place.files.record.exists() and not place.files.socket.exists()


def test_a_step_that_cannot_be_stopped_does_not_delay_the_end(place: Place, tmp_path: Path) -> None:
    environment = customised(tmp_path, BLOCK)
    with running("engine", "run", "--model", place.model, env=environment) as process:
        first_line(process)
        address = runtime.find(place.model)
        assert address is not None
        with client(address) as http, ThreadPoolExecutor() as threads:
            threads.submit(http.post, "/v1/infill", json=ASK)
            wait_for_call(place)
            process.terminate()
            assert process.wait(2) == 0
    assert not place.files.record.exists() and not place.files.socket.exists()


def test_a_place_of_ones_own_is_served_to_who_has_the_token(place: Place, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-long-secret\n")
    arguments = ["--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token")]
    with running("engine", "run", "--model", place.model, *arguments) as process:
        model, url, *_ = first_line(process).replace(": http", " http").split()
        assert model == place.model
        address = Address(model=model, version="", pid=0, started=0, url=url, token="a-long-secret")
        assert fill(address) == "1"
        with client(address, token="another") as stranger:
            assert stranger.post("/v1/infill", json=ASK).status_code == 401
        assert runtime.running() == []  # editors do not find it


def test_a_socket_of_ones_own_is_made_and_removed(place: Place) -> None:
    path = place.folder / "own.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with running("engine", "run", "--model", place.model, "--listen", f"unix:{path}") as process:
        assert f" unix:{path} " in first_line(process)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert fill(Address(model=place.model, version="", pid=0, started=0, socket=str(path))) == "1"
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert not path.exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_with_a_certificate_it_speaks_tls(place: Place, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-long-secret\n")
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    command += ["-keyout", str(key), "-out", str(chain)]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    arguments = ["--listen", "127.0.0.1:0", "--token-file", tmp_path / "token", "--cert", chain, "--key", key]
    with running("engine", "run", "--model", place.model, *map(str, arguments)) as process:
        url = first_line(process).replace(": https", " https").split()[1]
        trusting = httpx.Client(verify=ssl.create_default_context(cafile=str(chain)))
        assert trusting.get(f"{url}/health").status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")


def listen(place: str) -> Sequence[str]:
    return ["--listen", place]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "tenon-9000b"], "there is no model 'tenon-9000b'; supported: tenon-0.5b, scripted:FILE"),
        (
            ["--model", "tenon-9000b", *listen("unix:{folder}/s")],
            "there is no model 'tenon-9000b'; supported: ",
        ),
        (listen("nonsense"), "--listen must be HOST:PORT or unix:PATH, not 'nonsense'"),
        (listen("localhost:65536"), "--listen must be HOST:PORT or unix:PATH"),
        (
            listen("127.0.0.1:0"),
            "whoever reaches a HOST:PORT could use the engine: --token-file FILE is needed",
        ),
        (
            [*listen("127.0.0.1:0"), "--token-file", "{folder}/none"],
            "the token file {folder}/none cannot be read",
        ),
        ([*listen("127.0.0.1:0"), "--token-file", "{folder}"], "the token file {folder} cannot be read"),
        (
            [*listen("127.0.0.1:0"), "--token-file", "{folder}/empty"],
            "the token file {folder}/empty must hold",
        ),
        (
            [*listen("no.such.host.invalid:1"), "--token-file", "{folder}/token"],
            "no.such.host.invalid:1 cannot be",
        ),
        ([*listen("{port}"), "--token-file", "{folder}/token"], "{port} is in use by another process"),
        (listen("unix:{folder}/token"), "{folder}/token is there already, and no socket"),
        (listen("unix:{folder}/none/s"), "{folder}/none/s cannot be listened on: No such file or directory"),
        (listen("unix:{folder}/" + "s" * 100), "is too long for a unix socket: at most 100 bytes"),
        (["--token-file", "{folder}/token"], "--token-file, --cert and --key go with --listen HOST:PORT"),
        ([*listen("127.0.0.1:0"), "--key", "x"], "--cert and --key go together"),
        (
            [*listen("127.0.0.1:0"), "--linger-seconds", "1"],
            "--linger-seconds is for an engine that editors find",
        ),
        (["--linger-seconds", "-1"], "must be a number of seconds, not '-1'"),
        (["--idle-minutes", "many"], "must be a whole number from 0, not 'many'"),
        (
            [
                *listen("127.0.0.1:0"),
                "--token-file",
                "{folder}/token",
                "--cert",
                "{folder}/token",
                "--key",
                "no",
            ],
            "no cannot be read: No such file",
        ),
        (
            [
                *[*listen("127.0.0.1:0"), "--token-file", "{folder}/token"],
                *["--cert", "{folder}/token", "--key", "{folder}/token"],
            ],
            "{folder}/token and {folder}/token are no certificate and its unencrypted key",
        ),
    ],
)
def test_what_cannot_be_served_is_one_sentence(arguments: list[str], sentence: str, place: Place) -> None:
    (place.folder / "empty").write_text(" \n")
    (place.folder / "token").write_text("a-long-secret")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"folder": place.folder, "port": f"127.0.0.1:{taken.getsockname()[1]}"}
        filled = [argument.format(**names) for argument in arguments]
        model = [] if "--model" in arguments else ["--model", place.model]
        assert sentence.format(**names) in complaint(tenon("engine", "run", *model, *filled))


def test_help_loads_neither_torch_nor_the_http_stack() -> None:
    code = (
        "import sys\nfrom tenon_engine.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(bool({'torch', 'uvicorn', 'starlette', 'pydantic', 'httpx'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_an_engine_waits_for_its_first_client_and_lingers_after_its_last() -> None:
    now = 0.0
    linger = Linger(120.0, clock=lambda: now)
    now = 119.0
    assert not linger.is_over(0, 0)
    assert not linger.is_over(1, 1)
    now = 238.0
    assert not linger.is_over(0, 1)
    now = 239.0
    assert linger.is_over(0, 1)


def test_a_client_that_came_and_went_between_two_looks_was_there() -> None:
    now = 0.0
    linger = Linger(0.0, clock=lambda: now)
    assert not linger.is_over(0, 0)
    assert linger.is_over(0, 1)


def test_a_first_client_has_its_time_where_nothing_lingers() -> None:
    now = 0.0
    linger = Linger(0.0, clock=lambda: now)
    now = FIRST_CLIENT_S - 1
    assert not linger.is_over(0, 0)
    assert not linger.is_over(1, 1)
    assert linger.is_over(0, 1)


def test_starting_an_engine_whose_model_cannot_be_loaded_fails_and_leaves_none(tmp_path: Path) -> None:
    environment = os.environ | {
        "TENON_RUNTIME": str(tmp_path / "run"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "tenon_engine", "engine", "start", "--model", "scripted:/nowhere/x.json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "/nowhere/x.json" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((tmp_path / "run").glob("engine-*.json"))
