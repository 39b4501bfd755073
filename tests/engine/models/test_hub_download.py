"""Checkpoints from a hub: what is fetched and what never is, and what is said when it cannot be.

The hub is a server of the test; fetching runs in processes of its own, as the hub's client reads its settings when it
is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from safetensors.torch import load_file
from tests.engine.models import tiny
from tests.engine.models.test_hub_loading import split

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NO_HUB = "http://127.0.0.1:9"  # the discard port: refused at once
CHILD = """
import sys
from tenon_engine.errors import EngineError
from tenon_engine.models.hub.checkpoint import find

stages = []
def progress(stage, done_bytes, total_bytes):
    stages.append((stage, done_bytes, total_bytes))

try:
    found = find(sys.argv[1], offline=sys.argv[2] == "offline", with_code=sys.argv[2] == "code", progress=progress)
except EngineError as error:
    sys.exit(f"{type(error).__name__}: {error}")
assert stages == sorted(stages), stages
assert all(stage == "fetch" and done <= total for stage, done, total in stages)
assert not stages or stages[-1][1] == stages[-1][2], stages[-1]
print(found.folder, found.architecture, len(stages))
"""


class Hub:
    """A hub with one repository, `owner/name`, whose files are those of a folder."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.code = ""  # the hub's word for a refusal, in place of an answer
        self.sizes: dict[str, int] = {}  # claimed in place of the true ones
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, with_body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, with_body=False)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler, *, with_body: bool) -> None:
        path = unquote(urlsplit(request.path).path)
        name = path.rpartition("/")[2]
        headers = {"X-Repo-Commit": COMMIT}
        if self.code:
            status, body, headers["X-Error-Code"] = (
                (401 if self.code == "GatedRepo" else 404),
                b"{}",
                self.code,
            )
        elif path.startswith("/api/models/owner/name/revision/"):
            siblings = [
                {"rfilename": n, "size": self.sizes.get(n, len(data))} for n, data in self.files.items()
            ]
            siblings.append({"rfilename": "original/model.safetensors", "size": 1})
            status, body = 200, json.dumps({"id": "owner/name", "sha": COMMIT, "siblings": siblings}).encode()
        elif path.startswith("/owner/name/resolve/") and name in self.files:
            status, body = 200, self.files[name]
            headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()}"'
            self.fetched += [name] * with_body
        else:
            status, body, headers["X-Error-Code"] = 404, b"{}", "RepoNotFound"
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(key, value)
        request.end_headers()
        if with_body:
            request.wfile.write(body)

    def find(
        self, how: str = "", *, name: str = "owner/name", url: str = ""
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TENON_"))
        }
        environment |= {"HF_ENDPOINT": url or self.url, "HF_HOME": str(self.cache), "no_proxy": "127.0.0.1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        return subprocess.run(
            [sys.executable, "-c", CHILD, name, how],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def refusal(self, how: str = "", *, name: str = "owner/name", url: str = "") -> str:
        """The one line a failed look-up ends in."""
        done = self.find(how, name=name, url=url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llada(tmp_path_factory.mktemp("hub") / "llada")


@pytest.fixture
def hub(original: Path, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(Path(shutil.copytree(original, tmp_path / "repository")), tmp_path / "cache")
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def test_what_a_model_needs_is_fetched_once_and_nothing_that_could_run(hub: Hub, tmp_path: Path) -> None:
    split(hub.folder)
    hub.files |= {path.name: path.read_bytes() for path in hub.folder.iterdir()}
    never = (
        "pytorch_model.bin",
        "modeling_llada.py",
        "adapter.safetensors",
        "README.md",
        "model.safetensors",
    )
    hub.files |= dict.fromkeys(never, b"print()")
    done = hub.find()
    assert done.returncode == 0, done.stderr
    folder, architecture, told = done.stdout.split()
    assert architecture == "LLaDAModelLM"
    assert int(told) > 0
    assert sorted(hub.fetched) == sorted(set(hub.files) - set(never))
    assert {path.name for path in Path(folder).iterdir()} == set(hub.fetched)
    hub.fetched.clear()
    assert hub.find("offline", url=NO_HUB).stdout.split()[:2] == [folder, architecture]
    assert hub.find().returncode == 0
    assert hub.fetched == []


def test_code_is_fetched_when_the_user_trusts_the_model(hub: Hub) -> None:
    hub.files["modeling_llada.py"] = b"print()"
    assert hub.find().returncode == 0
    assert "modeling_llada.py" not in hub.fetched
    assert hub.find("code").returncode == 0
    assert "modeling_llada.py" in hub.fetched


def test_what_another_program_left_out_is_fetched(hub: Hub) -> None:
    folder = Path(hub.find().stdout.split()[0])
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).unlink()
        assert "is not on this machine and TENON_OFFLINE" in hub.refusal("offline")
        assert hub.find().returncode == 0
    assert (
        load_file(folder / "model.safetensors").keys() == load_file(hub.folder / "model.safetensors").keys()
    )


def test_a_revision_is_a_part_of_the_name(hub: Hub) -> None:
    assert hub.find(name="owner/name@v1").returncode == 0
    assert hub.find("offline", name="owner/name@v1", url=NO_HUB).returncode == 0
    assert "owner/name@v2 is not on this machine" in hub.refusal("offline", name="owner/name@v2")


def test_another_architecture_is_refused_before_its_weights_come(hub: Hub) -> None:
    hub.files["config.json"] = b'{"architectures": ["LlamaForCausalLM"]}'
    assert hub.refusal().startswith(
        "UnknownModelError: owner/name is a LlamaForCausalLM, which is not supported"
    )
    assert hub.fetched == ["config.json"]


def test_weights_that_could_run_code_are_not_fetched(hub: Hub) -> None:
    hub.files["pytorch_model.bin"] = hub.files.pop("model.safetensors")
    assert "owner/name has its weights in .bin files only" in hub.refusal()
    assert hub.fetched == ["config.json"]


def test_a_repository_without_config_is_refused(hub: Hub) -> None:
    del hub.files["config.json"]
    assert "has no config.json" in hub.refusal()


def test_weights_that_the_disk_has_no_room_for_are_refused_with_the_numbers(hub: Hub) -> None:
    hub.sizes["model.safetensors"] = 10**18
    said = hub.refusal()
    assert said.startswith("StorageError: owner/name needs 1000000000.0 GB more")
    assert "HF_HOME" in said
    assert hub.fetched == ["config.json"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("GatedRepo", "WeightsMissingError: owner/name is gated: accept its terms"),
        (
            "RepoNotFound",
            "UnknownModelError: there is no folder owner/name, and no such model on the Hugging Face hub",
        ),
        ("RevisionNotFound", "UnknownModelError: owner/name has no revision main"),
    ],
)
def test_a_refusal_of_the_hub_is_one_sentence(hub: Hub, code: str, said: str) -> None:
    hub.code = code
    assert hub.refusal().startswith(said)


def test_without_a_network_that_is_said(hub: Hub) -> None:
    said = hub.refusal(url=NO_HUB)
    assert said.startswith("WeightsMissingError: owner/name is not on this machine as a whole")
    assert "cannot be asked" in said


def test_a_file_that_is_cut_off_on_the_hub_itself_is_named(hub: Hub) -> None:
    whole = hub.files["model.safetensors"]
    hub.files["model.safetensors"] = whole[:5000]
    assert "model.safetensors is damaged or was cut off" in hub.refusal()
