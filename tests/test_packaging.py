"""The systemd unit and the container file, as far as they can be tried without systemd and without a container."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="units and containers are for Linux")

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "packaging" / "tenon-engine.service"
CONTAINER = ROOT / "packaging" / "Containerfile"
IGNORED = ROOT / "packaging" / "Containerfile.dockerignore"
TOKEN = "a-token-of-the-team"
INSTRUCTIONS = {
    "FROM",
    "ARG",
    "RUN",
    "COPY",
    "ENV",
    "USER",
    "WORKDIR",
    "VOLUME",
    "EXPOSE",
    "ENTRYPOINT",
    "CMD",
}


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    if (verifier := shutil.which("systemd-analyze")) is None:
        pytest.skip("asks systemd-analyze")
    program = shlex.split(_unit()["Service"]["ExecStart"][0])[0]
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace(program, "/bin/true"), encoding="utf-8")
    verified = subprocess.run([verifier, "verify", "--man=no", copy], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_unit_hands_over_every_secret_that_its_command_names() -> None:
    service = _unit()["Service"]
    handed = {credential.partition(":")[0] for credential in service["LoadCredential"]}
    assert set(re.findall(r"%d/(\S+)", service["ExecStart"][0])) == handed
    assert service["DynamicUser"] == ["yes"]


def test_the_command_of_the_unit_serves_with_tls_who_has_the_token(tmp_path: Path) -> None:
    (command,) = _unit()["Service"]["ExecStart"]
    _make_certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    trusted.verify_flags |= ssl.VERIFY_X509_STRICT  # what newer Pythons do unasked
    with _serving(shlex.split(command.replace("%d", str(tmp_path))), tmp_path) as url:
        assert url.startswith("https://")
        _assert_serves(url, trusted)


def test_the_command_of_the_container_serves_who_has_the_token(tmp_path: Path) -> None:
    final = _stages()[-1]
    words = [*json.loads(final["ENTRYPOINT"][0]), *json.loads(final["CMD"][0])]
    given = words[words.index("--token-file") + 1]
    with _serving([str(tmp_path / "token") if word == given else word for word in words], tmp_path) as url:
        _assert_serves(url, ssl.create_default_context())


def test_the_container_file_has_known_instructions_and_does_not_run_as_root() -> None:
    stages = _stages()
    assert set().union(*stages) <= INSTRUCTIONS
    assert all(":" in stage["FROM"][0].split()[0] for stage in stages), "a base without a version"
    (user,) = stages[-1]["USER"]
    assert int(user) > 0
    assert any(f"--uid {user} " in command for command in stages[-1]["RUN"])
    port = re.search(r":(\d+)", stages[-1]["CMD"][0])
    assert port is not None
    assert [port[1]] == stages[-1]["EXPOSE"]


def test_the_commands_in_the_container_file_are_a_shells() -> None:
    for stage in _stages():
        for command in stage.get("RUN", []):
            assert subprocess.run(["sh", "-n", "-c", command]).returncode == 0, command


def test_what_the_container_file_copies_is_there_and_not_ignored() -> None:
    kept = {line[1:] for line in IGNORED.read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    first = _stages()[0]
    sources = {source for copied in first["COPY"] for source in copied.split()[:-1]}
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


def _unit() -> dict[str, dict[str, list[str]]]:
    """The values of each key of each section: some keys stand there several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in filter(None, UNIT.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            keys = sections.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            key, _, value = line.partition("=")
            keys.setdefault(key, []).append(value)
    return sections


def _stages() -> list[dict[str, list[str]]]:
    """What stands behind each instruction, stage by stage."""
    text = re.sub(r"^\s*#.*\n", "", CONTAINER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    stages: list[dict[str, list[str]]] = []
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append({})
        stages[-1].setdefault(name, []).append(rest.strip())
    return stages


@contextlib.contextmanager
def _serving(words: list[str], folder: Path) -> Iterator[str]:
    """Run that command, at a port that is free, with a token and a scripted model from `folder`; where it answers."""
    (folder / "token").write_text(f"{TOKEN}\n", encoding="ascii")
    (folder / "script.json").write_text(json.dumps({"raw": "1 + 2"}), encoding="utf-8")
    words = [re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", word) for word in words[1:]]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("engine", "lsp")),
        "TENON_MODEL": f"scripted:{folder / 'script.json'}",
    }
    command = [sys.executable, "-m", "tenon_engine", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = re.search(r"https?://\S+", process.stdout.readline())
            assert told is not None
            yield told[0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def _assert_serves(url: str, trusted: ssl.SSLContext) -> None:
    with httpx.Client(base_url=url, verify=trusted, timeout=30) as client:
        question = {"segments": ["x = ", {}, "\n"]}
        assert client.get("/health").status_code == 200
        assert client.post("/v1/infill", json=question).status_code == 401
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        answer = client.post("/v1/infill", json=question).json()
        assert answer["holes"][0]["candidates"][0]["text"] == "1 + 2"


def _make_certificate(folder: Path) -> None:
    """By the command of the deployment page, for this machine's own address."""
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with openssl")
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    found = re.search(r"^openssl req (?:.*\\\n)*.*$", page, flags=re.MULTILINE)
    assert found is not None
    command = re.sub(r"IP:[0-9.]+", "IP:127.0.0.1", found[0]).replace("/etc/tenon", str(folder))
    subprocess.run(shlex.split(command.replace("\\\n", " ")), check=True, capture_output=True)
