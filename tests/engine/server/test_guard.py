"""Requests that should not be served, and clients that mean no good or know no better."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tenon_engine.server.guard import Limits

Serve = Callable[..., Any]

TOKEN = "a-token-of-ours"
FILL = {"segments": ["x = ", {}, "\n"]}
JSON = {"Content-Type": "application/json"}
SECRET = "the user's own words"


def error(response: httpx.Response) -> tuple[int, str]:
    found = response.json()["error"]
    assert found["message"] and "\n" not in found["message"]
    return response.status_code, found["code"]


def read(connection: socket.socket) -> tuple[int, Any]:
    """The answer on a connection, which must then end."""
    with connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        found = answer.status, json.loads(answer.read())
        assert connection.recv(1) == b""
        return found


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xe9\xff"],
)
def test_without_the_right_token_nothing_is_served(serve: Serve, header: str) -> None:
    rig = serve(token=TOKEN)
    headers = {b"Authorization": header.encode("latin-1")}
    for method, path in (
        ("POST", "/v1/infill"),
        ("GET", "/metrics"),
        ("GET", "/v1/events"),
        ("GET", "/nothing"),
    ):
        response = httpx.request(method, rig.url + path, headers=headers, json=FILL)
        assert error(response) == (401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in response.text
    assert rig.calls() == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_everything_is_served(serve: Serve, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {TOKEN}"}
    assert serve(token=TOKEN).client.post("/v1/infill", json=FILL, headers=headers).status_code == 200


def test_whether_it_is_up_may_be_asked_without_the_token(serve: Serve) -> None:
    assert httpx.get(f"{serve(token=TOKEN).url}/health").status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "127.0.0.2:80", "[::1]:80", "[::1]"]
)
def test_this_machine_may_be_called_by_all_its_names(shared: Any, host: str) -> None:
    assert shared.client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "::"]
)
def test_a_page_that_renamed_this_machine_is_refused(shared: Any, host: str) -> None:
    before = shared.calls()
    response = shared.client.post("/v1/infill", json=FILL, headers={"Host": host})
    assert error(response) == (403, "forbidden_host")
    assert shared.calls() == before


def test_behind_a_token_any_name_will_do(serve: Serve) -> None:
    """A proxy on this machine passes on the name that its clients use."""
    client = serve(token=TOKEN).client
    assert client.post("/v1/infill", json=FILL, headers={"Host": "tenon.example"}).status_code == 200


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no unix sockets")
def test_on_a_unix_socket_any_name_will_do(serve: Serve) -> None:
    with serve().on_unix_socket() as client:
        assert client.post("/v1/infill", json=FILL, headers={"Host": "any"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_what_any_page_could_send_is_refused(shared: Any, kind: str) -> None:
    before = shared.calls()
    response = shared.client.post("/v1/infill", content=json.dumps(FILL), headers={"Content-Type": kind})
    assert error(response) == (415, "unsupported_media_type")
    assert shared.calls() == before


def chunks(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b" " * 100_000


@pytest.mark.parametrize("path", ["/v1/infill", "/infill", "/v1/completions"])
@pytest.mark.parametrize("chunked", [False, True])
def test_ten_megabytes_are_too_much(shared: Any, path: str, chunked: bool) -> None:
    content = chunks(100) if chunked else b" " * 10_000_000
    assert error(shared.client.post(path, content=content, headers=JSON)) == (413, "too_large")
    assert shared.client.post("/v1/infill", json=FILL).status_code == 200


def test_a_large_request_within_the_limit_is_served(serve: Serve) -> None:
    request = {"segments": ["#" * 1_900_000 + "\nx = ", {}, "\n"]}
    assert serve().client.post("/v1/infill", json=request).status_code == 200


@pytest.mark.parametrize("path", ["/infill", "/v1/completions"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"{",
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\udfff"}',
        b"\x00\x01\x02",
        b'{"input_extra": [' + b"1," * 500_000 + b"1]}",
    ],
)
def test_what_is_no_request_is_refused_on_every_route(shared: Any, path: str, content: bytes) -> None:
    assert error(shared.client.post(path, content=content, headers=JSON)) == (400, "bad_request")


def test_a_body_that_drips_is_given_up(serve: Serve) -> None:
    rig = serve(limits=Limits(body_seconds=0.2))
    connection = rig.connect()
    head = b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(head + b'Content-Length: 1000\r\n\r\n{"segm')
    status, answer = read(connection)
    assert (status, answer["error"]["code"]) == (408, "too_slow")


@pytest.mark.parametrize("sent", [b"", b"P", b"POST /v1/infill HTTP/1.1\r\nHost: loc"])
def test_a_head_that_drips_is_given_up(serve: Serve, sent: bytes) -> None:
    rig = serve(head_seconds=0.2)
    connection = rig.connect()
    connection.sendall(sent)
    status, answer = read(connection)
    assert (status, answer["error"]["code"]) == (408, "too_slow")


def test_the_second_head_on_a_connection_has_its_time_too(serve: Serve) -> None:
    rig = serve(head_seconds=0.2)
    connection = rig.connect()
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert answer.read()
    connection.sendall(b"GET /hea")
    status, _ = read(connection)
    assert status == 408


def test_the_time_for_a_head_ends_no_answer(serve: Serve) -> None:
    rig = serve({"raw": "1", "delay_ms": 400}, head_seconds=0.1)
    assert rig.client.post("/v1/infill", json=FILL).status_code == 200


def test_a_refused_body_without_end_is_given_up(serve: Serve) -> None:
    rig = serve(head_seconds=0.2)
    connection = rig.connect()
    connection.sendall(b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n")
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while True:
            connection.sendall(b" " * 1000)


def test_a_thousand_idle_connections_are_in_nobodys_way(serve: Serve) -> None:
    _allow_open_files(3000)
    rig = serve(head_seconds=3.0)
    idle = [rig.connect() for _ in range(1000)]
    assert rig.client.post("/v1/infill", json=FILL).status_code == 200
    assert {read(connection)[0] for connection in idle} == {408}
    assert rig.client.post("/v1/infill", json=FILL).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/infill HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/infill HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(shared: Any, sent: bytes) -> None:
    with shared.connect() as connection:
        connection.sendall(sent)
        assert connection.recv(65536).startswith(b"HTTP/1.1 4")
    assert shared.client.get("/health").status_code == 200


def test_no_log_holds_what_a_user_wrote(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = serve({"raw": SECRET}, {"raw": "", "fail": SECRET}, token=TOKEN)
    client = rig.client
    for request in (FILL, {"segments": [SECRET, {}, ""]}, {SECRET: 1}, {"segments": [SECRET]}):
        client.post("/v1/infill", json=request)
    client.post("/v1/infill", content=SECRET, headers=JSON)
    client.post("/v1/completions", json={"prompt": SECRET, "suffix": SECRET, "model": SECRET})
    client.post("/infill", json={"input_prefix": SECRET, "input_suffix": 1})
    client.get(f"/{SECRET}")
    client.get("/metrics", headers={"Authorization": SECRET})
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert len([message for message in ours if message.startswith("fill ")]) >= 3
    assert not [message for message in ours if SECRET in message or TOKEN in message]


def test_a_fault_of_our_own_is_one_sentence_and_no_traceback(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    rig = serve()

    def broken(*_: object, **__: object) -> None:
        raise KeyError(SECRET)

    rig.worker.submit = broken
    assert error(rig.client.post("/v1/infill", json=FILL)) == (500, "internal_error")
    assert "KeyError" in caplog.text
    assert SECRET not in caplog.text


def _allow_open_files(count: int) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            pytest.skip("this process may not open so many files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
