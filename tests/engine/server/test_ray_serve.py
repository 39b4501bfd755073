"""The engine on a real Ray cluster of this machine: two replicas, each a process with a scripted model."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import logging
import os
import random
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

pytest.importorskip(
    "ray.serve", reason="needs Ray Serve: pip install 'tenon-ls[cluster]'", exc_type=ImportError
)

import click
import ray
from ray import serve
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.config import AutoscalingContext
from ray.serve.schema import ServeDeploySchema

from tenon_engine.config import EngineConfig
from tenon_engine.models import registry
from tenon_engine.server import ray_serve
from tenon_engine.server.app import build_app
from tenon_engine.worker import Worker

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
LOOPBACK = "127.0.0.1"
APPLICATION = "tenon"
SESSION = "X-Session-Id"
TOKEN = "a-token-of-the-team"
QUESTION = {"segments": ["x = ", {}, "\n"]}
ANSWER = "1 + 2"
PORTS = range(20_000, 32_000)  # between those of Ray's workers and those that a system gives away
OBJECT_STORE_BYTES = 80 << 20
LOAD_THREADS, LOAD_FILLS = 12, 25
FILLS_BEFORE_THE_KILL = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """Ray with our application on it; `client` has the token, `script` is what both models read."""

    client: httpx.Client
    port: int
    script: Path

    def answers(self, *, delay_ms: int = 0, hang: bool = False) -> None:
        """Let the models answer so from now on."""
        whole = self.script.with_suffix(".new")
        whole.write_text(json.dumps({"raw": ANSWER, "delay_ms": delay_ms, "hang": hang}), encoding="utf-8")
        whole.replace(self.script)

    def metrics(self, session: str | None = None) -> dict[str, float]:
        """Of the replica that a request of the session, or any, meets."""
        response = self.client.get("/metrics", headers={SESSION: session} if session else {})
        lines = [line for line in response.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def replica(self, session: str | None = None) -> float:
        """Which replica that is: when its counters were made."""
        return self.metrics(session)["tenon_tokens_created"]

    def fills_done(self, session: str) -> float:
        return self.metrics(session).get('tenon_fills_total{outcome="done"}', 0.0)

    def pids(self) -> list[int]:
        """The processes of the replicas."""
        actors = ray.util.list_named_actors(all_namespaces=True)
        names = [actor for actor in actors if actor["name"].startswith("SERVE_REPLICA")]
        found = [ray.get_actor(actor["name"], namespace=actor["namespace"]) for actor in names]
        return [ray.get(actor.__ray_call__.remote(lambda _: os.getpid())) for actor in found]

    def running(self) -> int:
        """How many replicas Ray knows to be well."""
        states = serve.status().applications[APPLICATION].deployments[ray_serve.NAME].replica_states
        return sum(count for state, count in states.items() if state == "RUNNING")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(
        prefix="tn", ignore_cleanup_errors=True
    ) as name:  # sockets want a short path
        folder = Path(name)
        script, token = folder / "script.json", folder / "token"
        token.write_text(f"{TOKEN}\n", encoding="ascii")
        with pytest.MonkeyPatch.context() as patch, httpx.Client(timeout=30) as client:
            patch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / part) for part in ("engine", "lsp")))
            patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
            patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray makes one in the home folder
            cluster = Cluster(client, _free_port(), script)
            client.base_url, client.headers["Authorization"] = (
                f"http://{LOOPBACK}:{cluster.port}",
                f"Bearer {TOKEN}",
            )
            cluster.answers()
            _start(cluster, folder)
            try:
                arguments = {
                    "token_file": str(token),
                    "model": f"scripted:{script}",
                    "replicas": "2",
                    "cpus": "0.1",
                }
                serve.run(ray_serve.app(arguments), name=APPLICATION)
                yield cluster
            finally:
                ray.shutdown()


def test_the_native_route_answers(cluster: Cluster) -> None:
    assert _text(cluster.client.post("/v1/infill", json=QUESTION)) == ANSWER


def test_a_stream_arrives_line_by_line(cluster: Cluster) -> None:
    with cluster.client.stream(
        "POST", "/v1/infill", json=QUESTION | {"stream": True, "steps": True}
    ) as response:
        lines = [json.loads(line) for line in response.iter_lines()]
    assert [next(iter(line)) for line in lines] == ["step", "step", "step", "result"]


def test_the_routes_of_other_clients_answer(cluster: Cluster) -> None:
    llama = cluster.client.post("/infill", json={"input_prefix": "x = ", "input_suffix": "\n"})
    openai = cluster.client.post("/v1/completions", json={"model": "any", "prompt": "x = ", "suffix": "\n"})
    assert (llama.json()["content"], openai.json()["choices"][0]["text"]) == (ANSWER, ANSWER)


def test_who_has_no_token_learns_the_health_alone(cluster: Cluster) -> None:
    bare = f"http://{LOOPBACK}:{cluster.port}"
    assert httpx.get(f"{bare}/health").json() == {"status": "ok", "state": "ready"}
    assert httpx.post(f"{bare}/v1/infill", json=QUESTION).status_code == 401


def test_requests_of_a_session_meet_one_replica(cluster: Cluster) -> None:
    for session in ("client/a.py", "client/b.py", "client/c.py", "other/a.py"):
        before = cluster.fills_done(session)
        for _ in range(10):
            cluster.client.post("/v1/infill", json=QUESTION, headers={SESSION: session})
        assert cluster.fills_done(session) - before == 10
        assert len({cluster.replica(session) for _ in range(10)}) == 1


def test_requests_without_a_session_meet_any_replica(cluster: Cluster) -> None:
    assert len({cluster.replica() for _ in range(60)}) == 2


def test_a_client_that_leaves_has_its_fill_cancelled(cluster: Cluster) -> None:
    cluster.answers(hang=True)
    session = "client/left.py"

    def open_fills() -> float:
        return cluster.metrics(session)["tenon_open_fills"]

    content = json.dumps(QUESTION).encode()
    head = [
        "POST /v1/infill HTTP/1.1",
        f"Host: {LOOPBACK}",
        f"Authorization: Bearer {TOKEN}",
        f"{SESSION}: {session}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    with socket.create_connection((LOOPBACK, cluster.port)) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + content)
        _wait_until(lambda: open_fills() == 1)
    _wait_until(lambda: open_fills() == 0)
    cluster.answers()


def test_a_replica_killed_under_load_loses_no_request_that_is_retried(cluster: Cluster) -> None:
    cluster.answers(delay_ms=10)
    victim, survivor = cluster.pids()
    answered = threading.Semaphore(0)

    def work(number: int) -> list[str]:
        texts = []
        for _ in range(LOAD_FILLS):
            texts.append(_insist(cluster.client, f"client/{number}.py"))
            answered.release()
        return texts

    with concurrent.futures.ThreadPoolExecutor(LOAD_THREADS) as pool:
        working = [pool.submit(work, number) for number in range(LOAD_THREADS)]
        for _ in range(FILLS_BEFORE_THE_KILL):
            answered.acquire()
        os.kill(victim, signal.SIGKILL)
        texts = [text for each in working for text in each.result()]
    assert texts == [ANSWER] * LOAD_THREADS * LOAD_FILLS
    _wait_until(lambda: len(set(cluster.pids()) - {victim}) == 2 and cluster.running() == 2)
    assert survivor in cluster.pids()


def test_an_event_stream_ends_after_its_time_and_not_in_the_middle_of_a_line(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"raw": ANSWER}), encoding="utf-8")
    worker = Worker(lambda _: registry.load_engine(EngineConfig(model=f"scripted:{script}")))
    traffic = ray_serve.Traffic(build_app(worker, models=["scripted"]), events_s=0.05)

    async def watch() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(traffic), base_url="http://localhost"
        ) as client:
            return await client.get("/v1/events")

    lines = anyio.run(watch).text.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["idle"]


def test_as_many_replicas_are_wanted_as_the_fills_need() -> None:
    assert ray_serve.replicas_wanted(_context(fills=[6.0, 10.0])) == (4.0, {})
    assert ray_serve.replicas_wanted(_context(fills=[])) == (0.0, {})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "token_file"),
        ({"token_file": "token", "replicas": "many"}, "replicas"),
        ({"token_file": "token", "replicas": "0"}, "replicas"),
        ({"token_file": "token", "replica": "2"}, "replica"),
        ({"token_file": "token", "replicas": "3", "max_replicas": "2"}, "max_replicas"),
    ],
)
def test_wrong_arguments_are_one_line_that_names_them(arguments: dict[str, str], complaint: str) -> None:
    with pytest.raises(click.ClickException) as refused:
        ray_serve.app(arguments)
    assert complaint in refused.value.message
    assert "\n" not in refused.value.message


def test_the_cluster_of_the_deployment_page_is_one() -> None:
    yaml = pytest.importorskip("yaml")
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    for block in page.split("```yaml\n")[1:]:
        schema = ServeDeploySchema.model_validate(yaml.safe_load(block.partition("```")[0]))
        (application,) = schema.applications
        assert application.import_path == f"{ray_serve.__name__}:{ray_serve.app.__name__}"
        assert isinstance(ray_serve.app(application.args), serve.Application)


def _start(cluster: Cluster, folder: Path) -> None:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(folder),
    )
    serve.start(http_options={"host": LOOPBACK, "port": cluster.port})


def _free_port() -> int:
    """One that no process gets by chance, as those of Ray, which start meanwhile, could."""
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.create_server((LOOPBACK, port)):
            return port
    raise AssertionError("no port is free")


def _insist(client: httpx.Client, session: str) -> str:
    """A fill, asked for again when the answer is that there is none now."""
    while True:
        try:
            response = client.post("/v1/infill", json=QUESTION, headers={SESSION: session})
        except httpx.TransportError:
            continue
        if response.status_code == 200:
            return _text(response)
        assert response.status_code in (500, 503)
        time.sleep(0.02)


def _text(response: httpx.Response) -> str:
    text: str = response.json()["holes"][0]["candidates"][0]["text"]
    return text


def _wait_until(is_so: Callable[[], bool]) -> None:
    """Until something is so that nobody tells; the time limit of the test is the limit."""
    while not is_so():
        time.sleep(0.05)


def _context(*, fills: list[float]) -> AutoscalingContext:
    deployment = DeploymentID(ray_serve.NAME, APPLICATION)
    replicas = [ReplicaID(str(number), deployment) for number in range(len(fills))]
    counted = {ray_serve.FILLS: dict(zip(replicas, fills, strict=True))} if fills else {}
    rest: dict[str, Any] = {"policy_state": {}, "last_scale_up_time": None, "last_scale_down_time": None}
    return AutoscalingContext(
        deployment_id=deployment,
        deployment_name=ray_serve.NAME,
        app_name=APPLICATION,
        current_num_replicas=len(fills),
        target_num_replicas=len(fills),
        running_replicas=replicas,
        total_num_requests=1000.0,
        total_queued_requests=0.0,
        aggregated_metrics=counted,
        raw_metrics=None,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=9,
        current_time=None,
        config=None,
        **rest,
    )
