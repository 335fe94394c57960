"""Questions over the server: who hears them, who may answer, what an answer covers, and what silence means."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from websockets.sync.client import connect

from tests.support.serving import RunningServer, running_server

pytestmark = pytest.mark.req("E6")

POLICY = """
policies:
  default:
    approvals: {{ask_for: {{patterns: [touch]}}, timeout: {seconds}, remember: session}}
"""


class _Hook(BaseHTTPRequestHandler):
    heard: ClassVar[list[tuple[dict[str, str], bytes]]] = []
    fail_first = 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(500 if len(type(self).heard) <= type(self).fail_first else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def hook() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hook: str) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("approvals")
    (home / "policy.yaml").write_text(POLICY.format(seconds="20s"))
    (home / "quick.yaml").write_text(POLICY.format(seconds="1s"))
    (home / "server.yaml").write_text(
        json.dumps(
            {
                "tenants": {
                    "default": {"policy": str(home / "policy.yaml")},
                    "quick": {"policy": str(home / "quick.yaml")},
                    "other": {"policy": str(home / "policy.yaml")},
                },
                "webhooks": [{"url": hook, "secret": "env:HOOK_SECRET"}],
            }
        )
    )
    with running_server(home, "--config", str(home / "server.yaml"), environ={"HOOK_SECRET": "shared"}) as running:
        yield running


@pytest.fixture
def agent(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client(server.new_token("agent", "run", "view")) as client:
        yield client


@pytest.fixture
def person(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client(server.new_token("anna", "view", "approve")) as client:
        yield client


@pytest.fixture
def session(agent: httpx.Client) -> Iterator[str]:
    made = agent.post("/v1/sessions").raise_for_status().json()
    yield f"/v1/sessions/{made['id']}"
    agent.delete(f"/v1/sessions/{made['id']}")


@pytest.fixture
def later() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def _run(client: httpx.Client, session: str, command: str) -> dict[str, Any]:
    return dict(client.post(f"{session}/executions", json={"command": command}).raise_for_status().json()["result"])


def _asked(person: httpx.Client, command: str) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for question in person.get("/v1/questions").raise_for_status().json()["items"]:
            if question["command"] == command:
                return dict(question)
        time.sleep(0.05)
    raise AssertionError("nobody was asked")


def _answer(client: httpx.Client, question: dict[str, Any], choice: str, **more: str) -> httpx.Response:
    body = {"choice": choice, "request_hash": question["request_hash"], **more}
    return client.post(f"/v1/questions/{question['id']}/answer", json=body)


def test_a_yes_lets_exactly_that_run_and_a_second_answer_is_too_late(
    agent: httpx.Client, person: httpx.Client, session: str, later: ThreadPoolExecutor
) -> None:
    running = later.submit(_run, agent, session, "touch yes")
    question = _asked(person, "touch yes")
    given, second = _answer(person, question, "yes"), _answer(person, question, "no")

    assert running.result(30)["ok"]
    assert given.status_code == 200 and (second.status_code, second.json()["code"]) == (409, "question_not_open")
    kept = person.get(f"/v1/questions/{question['id']}").json()
    assert (kept["state"], kept["choice"], kept["by"]) == ("answered", "yes", "anna")


def test_a_no_refuses_and_its_comment_reaches_the_agent(
    agent: httpx.Client, person: httpx.Client, session: str, later: ThreadPoolExecutor
) -> None:
    running = later.submit(_run, agent, session, "touch no")
    _answer(person, _asked(person, "touch no"), "no", comment="use the other directory").raise_for_status()

    result = running.result(30)
    assert result["ending"]["kind"] == "refused" and "use the other directory" in result["error"]


def test_an_agent_cannot_answer_itself_nor_can_another_tenant_see_it(
    server: RunningServer, person: httpx.Client, later: ThreadPoolExecutor
) -> None:
    with (
        server.client(server.new_token("both", "run", "view", "approve")) as both,
        server.client(server.new_token("stranger", "view", "approve", tenant="other")) as stranger,
    ):
        made = both.post("/v1/sessions").raise_for_status().json()
        session = f"/v1/sessions/{made['id']}"
        running = later.submit(_run, both, session, "touch self")
        question = _asked(person, "touch self")
        own, others = _answer(both, question, "yes"), _answer(stranger, question, "yes")
        changed = _answer(person, {**question, "request_hash": "0" * 64}, "yes")
        _answer(person, question, "no").raise_for_status()

        assert running.result(30)["ending"]["kind"] == "refused"
        assert (own.status_code, own.json()["code"]) == (403, "not_permitted")
        assert others.status_code == 404 and stranger.get("/v1/questions?state=all").json()["items"] == []
        assert (changed.status_code, changed.json()["code"]) == (400, "invalid_argument")
        both.delete(session)


def test_silence_is_a_refusal(server: RunningServer) -> None:
    with server.client(server.new_token("agent", "run", "view", tenant="quick")) as quick:
        made = quick.post("/v1/sessions").raise_for_status().json()
        result = _run(quick, f"/v1/sessions/{made['id']}", "touch silence")
        quick.delete(f"/v1/sessions/{made['id']}")

    assert result["ending"]["kind"] == "refused" and "nobody" in result["error"]


def test_yes_for_the_session_is_asked_once(
    agent: httpx.Client, person: httpx.Client, session: str, later: ThreadPoolExecutor
) -> None:
    running = later.submit(_run, agent, session, "touch often")
    _answer(person, _asked(person, "touch often"), "yes_for_session").raise_for_status()

    assert running.result(30)["ok"] and _run(agent, session, "touch often")["ok"]


def test_who_connects_late_sees_what_is_open_and_can_answer_on_the_socket(
    server: RunningServer, agent: httpx.Client, person: httpx.Client, session: str, later: ThreadPoolExecutor
) -> None:
    running: Future[dict[str, Any]] = later.submit(_run, agent, session, "touch socket")
    question = _asked(person, "touch socket")
    token = str(person.headers["authorization"])
    url = server.url.replace("http", "ws", 1) + "/v1/events/socket"
    with connect(url, additional_headers={"Authorization": token}) as socket:
        first = json.loads(socket.recv(10))
        socket.send(json.dumps({"id": question["id"], "choice": "yes", "request_hash": question["request_hash"]}))
        told = [json.loads(socket.recv(10)) for _ in range(2)]

    assert first["event"] == "question.asked" and first["data"]["id"] == question["id"]
    assert {each["event"] for each in told} >= {"reply"} and running.result(30)["ok"]


def test_a_webhook_is_signed_sent_again_and_tells_neither_command_nor_answer(
    agent: httpx.Client, person: httpx.Client, session: str, later: ThreadPoolExecutor
) -> None:
    running = later.submit(_run, agent, session, "touch hook-secret")
    question = _asked(person, "touch hook-secret")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        heard = [each for each in _Hook.heard if json.loads(each[1])["id"] == question["id"]]
        if heard:
            break
        time.sleep(0.05)
    _answer(person, question, "no")
    running.result(30)

    headers, body = heard[-1]
    at, _, digest = headers["ringfence-signature"].removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(b"shared", at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert b"hook-secret" not in body and b"rf_" not in body
    assert len(_Hook.heard) > _Hook.fail_first, "the first one was answered with 500, and sent again"


def test_a_restart_in_the_middle_of_a_question_is_a_refusal_that_is_kept(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.format(seconds="60s"))
    with running_server(tmp_path, environ={"RINGFENCE_POLICY": str(tmp_path / "policy.yaml")}) as server:
        with server.owner() as owner, ThreadPoolExecutor() as pool:
            owner.post("/v1/sessions", json={"id": "one"}).raise_for_status()
            running = pool.submit(_run, owner, "/v1/sessions/one", "touch restart")
            question = _asked(owner, "touch restart")
            server.stop(9)
            assert running.exception(30) is not None
        server.start()
        with server.owner() as owner:
            kept = owner.get(f"/v1/questions/{question['id']}").json()
            late = _answer(owner, question, "yes")
            lost = owner.post("/v1/sessions/one/executions", json={"command": "true"})

            assert (kept["state"], kept["choice"]) == ("answered", "no") and "restarted" in kept["how"]
            assert late.status_code == 409
            assert (lost.status_code, lost.json()["code"]) == (410, "session_lost")
            forked = owner.post("/v1/sessions/one/fork", json={"id": "two"})
            assert forked.status_code == 201
