"""The service with a real server process and real clients: sessions, executions, files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.serving import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def session(client: httpx.Client) -> Iterator[str]:
    made = client.post("/v1/sessions", json={"metadata": {"of": "a test"}})
    assert made.status_code == 201, made.text
    yield f"/v1/sessions/{made.json()['id']}"
    client.delete(f"/v1/sessions/{made.json()['id']}")


def _events(text: str) -> list[tuple[str, dict[str, object]]]:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    lines = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [(line["event"], json.loads(line["data"])) for line in lines]


def test_a_command_runs_in_a_session_and_its_result_comes_back(client: httpx.Client, session: str) -> None:
    done = client.post(f"{session}/executions", json={"command": "echo out; echo err >&2; exit 3"})

    assert done.status_code == 200
    told = done.json()
    assert told["state"] == "ended" and told["result"]["exit_code"] == 3
    assert (told["result"]["stdout"], told["result"]["stderr"]) == ("out\n", "err\n")


def test_an_interpreter_keeps_its_state_and_argv_needs_no_shell(client: httpx.Client, session: str) -> None:
    client.post(f"{session}/executions", json={"code": "x = 6 * 7"})
    shown = client.post(f"{session}/executions", json={"code": "x"}).json()["result"]
    words = client.post(f"{session}/executions", json={"argv": ["printf", "%s|", "a b", "$HOME"]}).json()["result"]

    assert shown["results"][0]["forms"]["text/plain"] == "42"
    assert words["stdout"] == "a b|$HOME|"


def test_output_is_streamed_as_events_and_as_frames(client: httpx.Client, session: str) -> None:
    asked = {"command": "echo one; echo two >&2; printf '\\377'"}
    events = client.post(f"{session}/executions", json=asked, headers={"Accept": "text/event-stream"})
    frames = client.post(f"{session}/executions", json=asked, headers={"Accept": "application/x-ringfence-frames"})

    told = _events(events.text)
    said = "".join(str(data.get("text", "")) for kind, data in told if kind == "output" and data["stream"] == "stdout")
    assert (told[-1][0] == "execution" and said == "one\n") or any("base64" in data for _, data in told)
    kinds, rest = [], frames.content
    while rest:
        kinds.append(rest[0])
        size = int.from_bytes(rest[1:5], "big")
        last, rest = rest[5 : 5 + size], rest[5 + size :]
    assert kinds[-1] == 5 and {1, 2} <= set(kinds)
    assert json.loads(last)["result"]["exit_code"] == 0


def test_files_are_written_read_listed_moved_and_removed(client: httpx.Client, session: str) -> None:
    files = f"{session}/files"
    written = client.put(files, params={"path": "a/b.txt", "parents": True}, content=b"x" * 100_000)
    moved = client.post(f"{files}/move", json={"source": "a/b.txt", "target": "c.txt"})
    listed = client.get(f"{files}/list").json()["items"]

    assert written.json()["size_bytes"] == 100_000 and moved.status_code == 200
    assert {item["path"] for item in listed} == {"./a", "./c.txt"}
    assert client.get(files, params={"path": "c.txt"}).content == b"x" * 100_000
    assert client.delete(files, params={"path": "c.txt"}).status_code == 204
    gone = client.get(files, params={"path": "c.txt"})
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert gone.headers["content-type"] == "application/problem+json"


def test_what_is_in_the_background_goes_on_takes_input_and_is_ended(client: httpx.Client, session: str) -> None:
    begun = client.post(f"{session}/executions", json={"command": "cat", "background": True, "interactive": True})
    assert begun.status_code == 202
    one = f"/v1/executions/{begun.json()['id']}"

    client.post(f"{one}/stdin", content=b"hello\n")
    client.post(f"{one}/stdin", params={"close": True})
    ended = client.get(f"{one}/wait").json()
    again = client.post(f"{session}/executions", json={"command": "sleep 600", "background": True}).json()
    killed = client.delete(f"/v1/executions/{again['id']}").json()

    assert ended["result"]["stdout"] == "hello\n"
    assert killed["state"] == "ended" and killed["result"]["ending"]["kind"] == "signalled"


def test_without_a_session_nothing_is_shared(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:  # its own: the pool keeps boxes until the end
        first = client.post("/v1/executions", json={"command": "echo kept > f; cat f"}).json()["result"]
        second = client.post("/v1/executions", json={"command": "cat f"}).json()["result"]

    assert first["stdout"] == "kept\n" and second["exit_code"] != 0


def test_the_owner_needs_no_token_on_the_socket_and_everybody_else_does(server: RunningServer) -> None:
    with server.owner() as owner:
        assert owner.get("/v1/me").json()["token"] == "socket"
    nobody = httpx.get(f"{server.url}/v1/me")
    assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthenticated")
    assert (server.socket.stat().st_mode & 0o777) == 0o600


def test_the_document_describes_every_route(client: httpx.Client) -> None:
    from ringfence.server.table import TABLE

    told = client.get("/openapi.json").json()

    described = {method["operationId"] for path in told["paths"].values() for method in path.values()}
    assert described == {row.name for row in TABLE if row.method != "WEBSOCKET"}


def test_a_second_server_on_the_same_state_refuses(server: RunningServer) -> None:
    second = server.command("serve")

    assert second.returncode == 125 and "another server uses the state directory" in second.stderr


def test_a_server_that_is_told_to_end_lets_work_end_tells_who_listens_and_leaves_no_socket(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with server.client() as client, server.client() as other, ThreadPoolExecutor() as pool:
            client.post("/v1/sessions", json={"id": "one"})
            asked = {"command": "echo begun > f; sleep 1.5; echo ended"}
            running = pool.submit(client.post, "/v1/sessions/one/executions", json=asked)
            listening = pool.submit(other.get, "/v1/events")
            while client.get("/v1/sessions/one/files", params={"path": "f"}).status_code != 200:
                time.sleep(0.05)
            assert server.stop() == 0
            assert running.result(20).json()["result"]["stdout"] == "ended\n"
            assert listening.result(20).status_code == 200
        assert not server.socket.exists()
