"""Callers of the server who want more than their token gives: each attempt, and beside it what shows that it is meant.

One server; each attack has a tenant of its own where it needs one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.serving import RunningServer, running_server

ASKS = """
policies:
  default:
    approvals: {ask_for: {patterns: [touch]}, timeout: 20s}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("hostile")
    (home / "asks.yaml").write_text(ASKS)
    (home / "reads.yaml").write_text(f"policies: {{default: {{filesystem: {{read: ['{home}/outside']}}}}}}\n")
    for name in ("outside/inner", "shared/below"):
        (home / name).mkdir(parents=True)
    (home / "outside" / "kept.txt").write_text("of the machine")
    (home / "outside" / "inner" / "kept.txt").write_text("of the machine")
    tenants = {
        "default": {"policy": str(home / "asks.yaml")},
        "bare": {},
        "asks": {"policy": str(home / "asks.yaml")},
        "reads": {"policy": str(home / "reads.yaml")},
        "offline": {"policy": str(home / "asks.yaml"), "may_ask_network": False},
        "env": {"policy": str(home / "env.yaml")},
        "shared": {"workspaces": [str(home / "shared")]},
        "one": {"quotas": {"executions": 1}},
    }
    (home / "server.yaml").write_text(json.dumps({"tenants": tenants}))
    (home / "env.yaml").write_text("policies: {default: {denied_paths: ['/a/${HOOK_SECRET}']}}\n")
    with running_server(
        home, "--config", str(home / "server.yaml"), environ={"HOOK_SECRET": "of-the-server"}
    ) as running:
        yield running


def _made(client: httpx.Client, **asked: Any) -> str:
    made = client.post("/v1/sessions", json=asked)
    assert made.status_code == 201, made.text
    return f"/v1/sessions/{made.json()['id']}"


def _said(client: httpx.Client, session: str, command: str) -> str:
    answer = client.post(f"{session}/executions", json={"command": command})
    return str(answer.json()["result"]["stdout"]) if answer.status_code == 200 else answer.text


# --- what a session brings along --------------------------------------------------------------------------------------

OPENING = (
    "filesystem: {{read: ['{outside}']}}",
    "filesystem: {{write: ['{outside}']}}",
    "filesystem_access: read_outside",
    "mode: permissive",
    "engine: subprocess",
    "network: {{reach: [22]}}",
    "network: {{private: [10.0.0.0/8]}}",
    "network: {{publish: ['8000:18000']}}",
)


@pytest.mark.parametrize("tenant", ["bare", "asks"])
@pytest.mark.parametrize("where", ["default: {{{}}}", "tools: {{shell_exec: {{{}}}}}"])
def test_the_policy_of_a_session_opens_nothing_of_the_machine(server: RunningServer, tenant: str, where: str) -> None:
    with server.client(server.new_token("agent", "run", "view", tenant=tenant)) as agent:
        for opening in OPENING:
            said = where.format(opening.format(outside=server.home / "outside"))
            made = agent.post("/v1/sessions", json={"policy": f"policies: {{{said}}}\n"})
            assert (made.status_code, made.json().get("code")) == (403, "not_permitted"), (opening, made.text)


def test_a_session_without_network_is_not_given_one_by_its_own_policy(server: RunningServer) -> None:
    policy = "policies: {default: {network: {allow: [example.com]}}}\n"
    with (
        server.client(server.new_token("agent", "run", "view", tenant="offline")) as agent,
        server.client(server.new_token("agent", "run", "view", tenant="asks")) as other,
    ):
        refused = agent.post("/v1/sessions", json={"policy": policy})
        assert (refused.status_code, refused.json().get("code")) == (403, "not_permitted"), refused.text
        other.delete(_made(other, policy=policy))


def test_the_owner_may_open_paths_and_others_narrow_what_the_operator_opened(server: RunningServer) -> None:
    inner = server.home / "outside" / "inner"
    policy = f"policies: {{default: {{filesystem: {{read: ['{inner}']}}}}}}\n"
    show = f"cat {inner}/kept.txt; cat {inner.parent}/kept.txt"
    with server.owner() as owner, server.client(server.new_token("agent", "run", "view", tenant="reads")) as agent:
        for client in (owner, agent):
            session = _made(client, policy=policy)
            assert _said(client, session, show) == "of the machine"
            client.delete(session)


def test_the_policy_of_a_session_learns_nothing_of_the_servers_environment(server: RunningServer) -> None:
    policy = "policies: {default: {denied_paths: ['/a/${HOOK_SECRET}']}}\n"
    with (
        server.client(server.new_token("agent", "run", "view", tenant="bare")) as agent,
        server.client(server.new_token("agent", "run", "view", tenant="env")) as operated,
    ):
        refused = [
            agent.post("/v1/check", json={"path": "/a/of-the-server", "policy": policy}),
            agent.post("/v1/sessions", json={"policy": policy}),
            agent.post("/v1/policies/explain", json={"tool": "shell_exec", "text": policy}),
        ]
        session = _made(operated)  # whose policy is the operator's own
        shown = operated.get(f"{session}/state").text
        operated.delete(session)
    assert [each.status_code for each in refused] == [422, 422, 422]
    assert not any("of-the-server" in each.text for each in refused) and "of-the-server" in shown


def test_no_session_puts_a_link_in_the_place_of_anothers_workspace(server: RunningServer) -> None:
    below, around = server.home / "shared" / "below", server.home / "shared"
    with server.client(server.new_token("agent", "run", "view", tenant="shared")) as agent:
        for first, second in ((below, around), (around, below)):
            session = _made(agent, workspace=str(first))
            refused = agent.post("/v1/sessions", json={"workspace": str(second)})
            assert (refused.status_code, refused.json()["code"]) == (403, "path_access_denied"), refused.text
            agent.delete(session)
            agent.delete(_made(agent, workspace=str(second)))


def test_a_link_in_the_place_of_a_workspace_is_not_followed_by_snapshots(server: RunningServer) -> None:
    place = server.home / "shared" / "swapped"
    place.mkdir()
    with server.client(server.new_token("agent", "run", "view", tenant="shared")) as agent:
        session = _made(agent, workspace=str(place))
        agent.post(f"{session}/snapshots", json={"name": "before"}).raise_for_status()
        place.rmdir()
        place.symlink_to(server.home / "outside")
        answers = [
            agent.post(f"{session}/snapshots", json={"name": "after"}),
            agent.post(f"{session}/restore", json={"name": "before"}),
            agent.post(f"{session}/fork", json={}),
        ]
        place.unlink()
        agent.delete(session)
    assert {(each.status_code, each.json()["code"]) for each in answers} == {(403, "path_access_denied")}
    assert (server.home / "outside" / "kept.txt").exists()


# --- who asks does not answer -----------------------------------------------------------------------------------------


def _question(client: httpx.Client, command: str) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for question in client.get("/v1/questions").raise_for_status().json()["items"]:
            if question["command"] == command:
                return dict(question)
        time.sleep(0.05)
    raise AssertionError("nobody was asked")


def _answer(client: httpx.Client, question: dict[str, Any], choice: str, **headers: str) -> httpx.Response:
    body = {"choice": choice, "request_hash": question["request_hash"]}
    return client.post(f"/v1/questions/{question['id']}/answer", json=body, headers=headers)


def _log_in(client: httpx.Client, **given: str) -> str:
    """The CSRF token; the cookie is the client's."""
    answer = client.post("/v1/login", json=given)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["csrf_token"])


def test_who_asks_does_not_answer_by_logging_in_and_who_has_the_printed_address_does(server: RunningServer) -> None:
    code = re.findall(r"#code=(\S+)", server.said())[-1]
    both = server.new_token("both", "run", "view", "approve")
    with (
        server.client(both) as agent,
        httpx.Client(base_url=server.url) as cookie,
        httpx.Client(base_url=server.url) as browser,
        ThreadPoolExecutor(1) as later,
    ):
        session = _made(agent)
        running = later.submit(_said, agent, session, "touch self")
        question = _question(agent, "touch self")
        refused = _answer(cookie, question, "yes", **{"Ringfence-CSRF": _log_in(cookie, token=both)})
        given = _answer(browser, question, "yes", **{"Ringfence-CSRF": _log_in(browser, code=code)})
        running.result(30)
        agent.delete(session)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
    assert given.status_code == 200


def test_who_runs_makes_no_second_token_that_approves(server: RunningServer) -> None:
    with (
        server.client(server.new_token("agent", "run", "view", "approve", "tokens")) as agent,
        server.client(server.new_token("lead", "view", "approve", "tokens")) as lead,
    ):
        asked = {"name": "other", "scopes": ["view", "approve"]}
        refused, made = agent.post("/v1/tokens", json=asked), lead.post("/v1/tokens", json=asked)
        plain = agent.post("/v1/tokens", json={"name": "other", "scopes": ["run"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
    assert (made.status_code, plain.status_code) == (201, 201)


LIVE = {"command": "cat", "interactive": True, "background": True}


def _refused_to_write(server: RunningServer, token: str, execution: str) -> tuple[int, str]:
    """By the request and by the socket."""
    with server.client(token) as client:
        sent = client.post(f"/v1/executions/{execution}/stdin", content=b"from somebody else\n")
    with _connected(server, f"/v1/executions/{execution}/socket", token) as socket:
        socket.recv(10)
        socket.send(b"from somebody else\n")
        told = socket.recv(10)
    return sent.status_code, json.loads(told)["event"] if isinstance(told, str) else "output"


def _connected(server: RunningServer, path: str, token: str) -> ClientConnection:
    return connect(server.url.replace("http", "ws", 1) + path, additional_headers={"Authorization": f"Bearer {token}"})


def test_nobody_else_types_where_only_a_person_does(server: RunningServer) -> None:
    agent = server.new_token("agent", "run", "view")
    with server.client(server.new_token("anna", "run", "view", "approve")) as person:
        session = _made(person)
        found = []
        for typed in (True, False):
            made = person.post(f"{session}/executions", json={**LIVE, "typed_by_person": typed}).raise_for_status()
            found.append(_refused_to_write(server, agent, made.json()["id"]))
        person.delete(session)
    assert found == [(403, "fault"), (200, "output")]


def test_who_writes_to_what_runs_is_one_of_those_who_ask(server: RunningServer) -> None:
    with (
        server.client(server.new_token("first", "run", "view")) as first,
        server.client(server.new_token("both", "run", "view", "approve")) as both,
        server.client(server.new_token("anna", "view", "approve")) as person,
        ThreadPoolExecutor(1) as later,
    ):
        session = _made(first)
        live = first.post(f"{session}/executions", json=LIVE).raise_for_status().json()["id"]
        both.post(f"/v1/executions/{live}/stdin", content=b"x\n").raise_for_status()
        running = later.submit(_said, first, session, "touch written")
        question = _question(person, "touch written")
        refused, given = _answer(both, question, "yes"), _answer(person, question, "yes")
        running.result(30)
        first.delete(session)
    assert (refused.status_code, given.status_code) == (403, 200)


def test_a_revoked_token_says_nothing_more_on_sockets_that_are_open(server: RunningServer) -> None:
    anna, told = server.new_token("anna", "run", "view", "approve"), []
    with (
        server.client(server.new_token("agent", "run", "view")) as agent,
        server.client(server.new_token("ben", "view", "approve", "tokens")) as person,
        ThreadPoolExecutor(1) as later,
    ):
        session = _made(agent)
        live = agent.post(f"{session}/executions", json=LIVE).raise_for_status().json()["id"]
        with (
            _connected(server, "/v1/events/socket", anna) as events,
            _connected(server, f"/v1/executions/{live}/socket", anna) as attached,
        ):
            attached.recv(10)
            attached.send(b"before\n")
            assert attached.recv(10) == b"\x01before\n"
            assert person.delete(f"/v1/tokens/{anna.split('_')[1]}").status_code == 200
            running = later.submit(_said, agent, session, "touch revoked")
            question = _question(person, "touch revoked")
            given = {"id": question["id"], "choice": "yes", "request_hash": question["request_hash"]}
            with suppress(ConnectionClosed):
                events.send(json.dumps(given))
            with pytest.raises(ConnectionClosed):
                while True:
                    told.append(json.loads(events.recv(10))["event"])
            attached.send(b"after\n")
            fault = json.loads(attached.recv(10))
        assert _answer(person, question, "no").status_code == 200
        running.result(30)
        agent.delete(session)
    assert "question.asked" not in told and "question.answered" not in told
    assert (fault["event"], fault["data"]["code"]) == ("fault", "unauthenticated")


# --- how much ---------------------------------------------------------------------------------------------------------


def test_executions_that_are_being_started_count_as_running(server: RunningServer) -> None:
    with server.client(server.new_token("agent", "run", "view", tenant="one")) as agent, ThreadPoolExecutor(4) as many:
        session = _made(agent)

        def start(_: int) -> int:
            return agent.post(f"{session}/executions", json=LIVE).status_code

        found = sorted(many.map(start, range(4)))
        agent.delete(session)
        again = _made(agent)
        assert agent.post(f"{again}/executions", json=LIVE).status_code == 202
        agent.delete(again)
    assert found == [202, 429, 429, 429]


# --- ports ------------------------------------------------------------------------------------------------------------

SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    do_POST = do_GET
HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


def test_a_link_to_a_port_gives_no_more_than_its_token_and_ends_with_it(server: RunningServer) -> None:
    with (
        server.client(server.new_token("agent", "run", "view", tenant="bare")) as agent,
        server.client(server.new_token("lead", "view", "tokens", tenant="bare")) as lead,
    ):
        session = _made(agent, network={"allow": [], "publish": [8000]})
        agent.put(f"{session}/files", params={"path": "serve.py"}, content=SERVER).raise_for_status()
        agent.post(f"{session}/executions", json={"command": "python3 serve.py", "background": True}).raise_for_status()
        deadline = time.monotonic() + 20
        while agent.get(f"{session}/ports/8000/http/").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        found = {}
        for scopes in (("view",), ("view", "run")):
            token = server.new_token("looks", *scopes, tenant="bare")
            with server.client(token) as client, httpx.Client(base_url=server.url) as browser:
                link = client.post(f"{session}/ports/8000/open").raise_for_status().json()["url"]
                host = {"Host": link.split("//")[1].split("/")[0]}
                entered = browser.get("/.ringfence/enter?" + link.split("?")[1], headers=host)
                inside = {**host, "Cookie": entered.headers["set-cookie"].split(";")[0]}
                before = [browser.request(method, "/", headers=inside).status_code for method in ("GET", "POST")]
                lead.delete(f"/v1/tokens/{token.split('_')[1]}").raise_for_status()
                found[scopes] = [*before, browser.get("/", headers=inside).status_code]
        agent.delete(session)
    assert found == {("view",): [200, 403, 401], ("view", "run"): [200, 200, 401]}
