"""What callers send that makes no sense, or means harm: a clear status and code, and the server goes on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.serving import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("bad")) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def session(client: httpx.Client) -> Iterator[str]:
    made = client.post("/v1/sessions").raise_for_status().json()
    yield f"/v1/sessions/{made['id']}"
    client.delete(f"/v1/sessions/{made['id']}")


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_request"),
        (b"\xff\xfe", 400, "malformed_request"),
        (b"[" * 100_000, 400, "malformed_request"),
        (b'{"ttl_seconds": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "malformed_request"),
        (b'{"ttl_secondz": 5}', 400, "malformed_request"),
        (b'{"ttl_seconds": -1}', 400, "malformed_request"),
        (b'{"ttl_seconds": 1e400}', 400, "malformed_request"),
        (b'{"id": "../../etc"}', 400, "malformed_request"),
        (b'{"workspace": "/etc"}', 403, "path_access_denied"),
        (b'{"workspace": "relative"}', 400, "invalid_argument"),
        (b'{"secrets": ["GH_TOKEN"]}', 403, "not_permitted"),
        (b'{"network": ["not a host!"]}', 400, "invalid_argument"),
        (b'{"env": {"A=B": "x"}}', 400, "invalid_argument"),
        (b'{"preset": "nope"}', 404, "not_found"),
        (b'{"role": "root"}', 403, "not_permitted"),
        (b'{"policy": "policies: ["}', 422, "invalid_config"),
        (b'{"limits": {"memory_bytes": 0}}', 400, "malformed_request"),
    ],
)
def test_a_session_that_makes_no_sense_is_refused_with_its_reason(
    client: httpx.Client, body: bytes, status: int, code: str
) -> None:
    answer = client.post("/v1/sessions", content=body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json" and answer.json()["request_id"]
    assert client.get("/v1/sessions").json()["items"] == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 400),
        ({"command": "a", "code": "b"}, 400),
        ({"argv": []}, 400),
        ({"command": "x\0y"}, 403),
        ({"command": "cat", "stdin_base64": "!!"}, 400),
        ({"code": "1", "language": "cobol"}, 400),
        ({"code": "1", "interactive": True}, 400),
        ({"argv": ["/none/such"]}, 422),
        ({"command": "true", "cwd": "/none/such"}, 404),
        ({"command": "true", "env": {"": "x"}}, 400),
        ({"command": "true", "files": {"../x": {"text": "y"}}}, 403),
        ({"command": "true", "files": {"x": {}}}, 400),
    ],
)
def test_an_execution_that_makes_no_sense_is_refused(
    client: httpx.Client, session: str, asked: dict[str, object], status: int
) -> None:
    answer = client.post(f"{session}/executions", json=asked)

    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "../../../../etc/shadow", "/proc/1/environ", "/root/.ssh/id_rsa", "a\0b"]
)
def test_paths_out_of_the_workspace_lead_where_a_command_of_the_box_could_go(
    client: httpx.Client, session: str, path: str
) -> None:
    answer = client.get(f"{session}/files", params={"path": path})

    assert answer.status_code in (400, 403, 404, 409) and "root:" not in answer.text


def test_bodies_that_are_too_large_or_of_another_type_are_refused(client: httpx.Client, session: str) -> None:
    large = client.post(f"{session}/executions", content=b" " * (33 * 1024 * 1024), headers=JSON)
    typed = client.post(f"{session}/executions", content=b'{"command": "true"}', headers={"Content-Type": "text/plain"})
    unwanted = client.request("GET", session, content=b"x")
    twice = client.get(f"{session}/files?path=a&path=b")

    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
    assert (typed.status_code, typed.json()["code"]) == (415, "unsupported_media_type")
    assert unwanted.status_code == 400 and twice.status_code == 400


def test_a_gigabyte_is_refused_by_its_length_alone(server: RunningServer) -> None:
    with _raw(server) as raw:
        raw.sendall(_head(server, "POST", "/v1/sessions", **JSON, **{"Content-Length": str(1 << 30)}))
        answer = raw.recv(4096)

    assert b" 413 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_other_names_and_other_sites_are_refused_whatever_token_they_have(
    client: httpx.Client, headers: dict[str, str], status: int
) -> None:
    assert client.get("/v1/me", headers=headers).status_code == status
    assert client.get("/v1/me").status_code == 200
    assert client.get("/v1/me", headers={"Origin": str(client.base_url).rstrip("/")}).status_code == 200


def test_answers_carry_the_security_headers_and_no_cors(client: httpx.Client) -> None:
    answer = client.get("/v1/me")

    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_bad_tokens_are_limited_and_good_ones_never_appear_in_the_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_server(tmp_path_factory.mktemp("attempts")) as server:
        with httpx.Client(base_url=server.url) as guessing:
            guesses = [{"Authorization": f"Bearer rf_{n:012x}_{'x' * 43}"} for n in range(25)]
            statuses = [guessing.get("/v1/me", headers=guess).status_code for guess in guesses]
        with server.owner() as owner:  # elsewhere nobody is barred
            assert owner.get("/v1/me").status_code == 200
        log = server.said()

        assert statuses[:20] == [401] * 20 and statuses[-1] == 429
        assert server.token not in log and "Bearer" not in log
        entry = json.loads(next(line for line in log.splitlines() if '"/v1/me"' in line))
        assert entry["status"] == 401 and entry["request_id"]


def test_the_same_key_does_it_once_and_another_request_with_it_is_refused(client: httpx.Client, session: str) -> None:
    key = {"Idempotency-Key": "k-1"}
    asked = {"command": "echo x >> log; cat log"}
    first = client.post(f"{session}/executions", json=asked, headers=key)
    again = client.post(f"{session}/executions", json=asked, headers=key)
    other = client.post(f"{session}/executions", json={"command": "true"}, headers=key)
    twin = client.post(f"{session}/executions", json=asked)

    assert first.json() == again.json() and again.headers["ringfence-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert twin.json()["result"]["stdout"] == "x\nx\n", "without a key it is done again"


def test_a_deadline_ends_what_runs_and_a_caller_who_goes_away_does_too(
    server: RunningServer, client: httpx.Client, session: str
) -> None:
    late = client.post(f"{session}/executions", json={"command": "sleep 600"}, headers={"Ringfence-Deadline": "0.5"})
    with pytest.raises(httpx.ReadTimeout):
        client.post(f"{session}/executions", json={"command": "sleep 601"}, timeout=0.5)

    assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        states = {each["shown"]: each["state"] for each in client.get("/v1/executions").json()["items"]}
        if states["sleep 601"] == "ended":
            break
        time.sleep(0.05)
    assert states["sleep 600"] == "ended" and states["sleep 601"] == "ended"


def test_an_archive_that_is_cut_off_changes_nothing(client: httpx.Client, session: str) -> None:
    client.put(f"{session}/files", params={"path": "a/x.txt", "parents": True}, content=b"x" * 50_000)
    whole = client.get(f"{session}/archive", params={"path": "a"}).content
    cut = client.put(f"{session}/archive", params={"path": "b"}, content=whole[: len(whole) // 2])
    there = client.get(f"{session}/files/stat", params={"path": "b/x.txt"})
    twin = client.put(f"{session}/archive", params={"path": "b"}, content=whole)

    assert cut.status_code == 400 and there.status_code == 404
    assert twin.json()["files"] == 1, twin.text


def test_frames_of_a_websocket_out_of_order_or_too_long_end_it_and_nothing_else(
    server: RunningServer, client: httpx.Client, session: str
) -> None:
    url = server.url.replace("http", "ws", 1) + f"{session}/executions/socket"
    headers = {"Authorization": f"Bearer {server.token}"}
    for message in (b"bytes first", "no json", "{}" * 10, "[" * 50_000, "x" * (2 * 1024 * 1024)):
        with connect(url, additional_headers=headers) as talking:
            talking.send(message)
            with pytest.raises(ConnectionClosed):
                for _ in range(3):
                    talking.recv(10)
    with connect(url, additional_headers=headers) as talking:
        talking.send(json.dumps({"command": "cat", "interactive": True}))
        talking.recv(10)
        talking.send(json.dumps({"type": "explode"}))
        with pytest.raises(ConnectionClosed):
            for _ in range(3):
                talking.recv(10)

    assert client.post(f"{session}/executions", json={"command": "echo fine"}).json()["result"]["stdout"] == "fine\n"


def test_a_client_that_never_reads_stops_the_command_and_not_the_server(
    server: RunningServer, client: httpx.Client, session: str
) -> None:
    body = json.dumps({"command": "yes | head -c 100000000; echo done >&2"}).encode()
    with _raw(server) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(
            _head(
                server,
                "POST",
                f"{session}/executions",
                **JSON,
                **{"Content-Length": str(len(body)), "Accept": "application/x-ringfence-frames"},
            )
            + body
        )
        raw.recv(1024)
        time.sleep(1)
        running = [each for each in client.get("/v1/executions").json()["items"] if each["shown"].startswith("yes")]
        assert running[0]["state"] == "running", "it waits for its reader"
        assert client.get("/healthz").elapsed.total_seconds() < 5
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:  # the reader is gone: the command is ended
        if client.get(f"/v1/executions/{running[0]['id']}").json()["state"] == "ended":
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_idle_connections_do_not_keep_others_out(server: RunningServer, client: httpx.Client) -> None:
    idle = [_raw(server) for _ in range(1000)]
    try:
        assert client.get("/v1/me").status_code == 200
    finally:
        for each in idle:
            each.close()


def _raw(server: RunningServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _head(server: RunningServer, method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {server.token}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
