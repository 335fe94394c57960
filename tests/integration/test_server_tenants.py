"""Two tenants on one server: every route, with the ids of the other one. A route without a line here fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ringfence.server.endpoint import Endpoint
from ringfence.server.table import TABLE
from ringfence.server.tenants import Scope
from tests.support.serving import RunningServer, running_server

SECRET = "only-of-tenant-a"


@dataclass(frozen=True)
class Victim:
    """What the first tenant has."""

    session: str
    execution: str
    question: str
    snapshot: str
    token: str
    run: str


@dataclass(frozen=True)
class World:
    server: RunningServer
    victim: Victim
    a: httpx.Client
    b: httpx.Client


@contextmanager
def two_tenants(home: Path) -> Iterator[World]:
    """For one test at a time: what the first tenant runs would be left behind by each of several."""
    (home / "server.yaml").write_text(json.dumps({"tenants": {"a": {}, "b": {}}}))
    with running_server(home, "--config", str(home / "server.yaml")) as server:
        scopes = [str(scope) for scope in Scope]
        with (
            server.client(server.new_token("of a", *scopes, tenant="a")) as a,
            server.client(server.new_token("of b", *scopes, tenant="b")) as b,
        ):
            made = a.post(
                "/v1/sessions",
                json={"id": "shared-name", "metadata": {"x": SECRET}, "shadow": True},
            ).raise_for_status()
            session = made.json()["id"]
            a.put(f"/v1/sessions/{session}/files", params={"path": "secret"}, content=SECRET).raise_for_status()
            done = a.post(
                f"/v1/sessions/{session}/executions", json={"command": f"echo {SECRET}; sleep 600", "background": True}
            ).raise_for_status()
            ran = a.post(f"/v1/sessions/{session}/executions", json={"command": f"echo {SECRET}"}).raise_for_status()
            plain = a.post("/v1/sessions", json={"id": "plain"}).raise_for_status().json()["id"]
            a.post(f"/v1/sessions/{plain}/snapshots", json={"name": "saved"}).raise_for_status()
            token = a.get("/v1/tokens").json()["items"][0]["id"]
            victim = Victim(session, done.json()["id"], "0" * 32, "saved", token, ran.json()["result"]["run_id"])
            try:
                yield World(server, victim, a, b)
            finally:
                a.delete(f"/v1/executions/{victim.execution}")  # else the server waits for it at its end


NOT_FOUND = {404}
OWN = {200}
"""Answers, but of the caller's own tenant: what it gives is looked at."""

# By name: what is sent, and which status says that nothing of the other tenant was touched.
LINES: dict[str, tuple[dict[str, Any], set[int]]] = {
    "healthz": ({}, OWN),
    "readyz": ({}, OWN),
    "openapi": ({}, OWN),
    "me": ({}, OWN),
    "create_session": ({"json": {"preset": "none-such"}}, NOT_FOUND),
    "list_sessions": ({}, OWN),
    "get_session": ({}, NOT_FOUND),
    "extend_session": ({"json": {"ttl_seconds": 1}}, NOT_FOUND),
    "end_session": ({}, NOT_FOUND),
    "interrupt_context": ({}, NOT_FOUND),
    "restart_context": ({}, NOT_FOUND),
    "save_snapshot": ({"json": {"name": "mine"}}, NOT_FOUND),
    "restore_snapshot": ({"json": {"name": "saved"}}, NOT_FOUND),
    "fork_session": ({}, NOT_FOUND),
    "list_snapshots": ({}, OWN),
    "delete_snapshot": ({}, NOT_FOUND),
    "run": ({"json": {}}, {400}),
    "run_in_session": ({"json": {"command": "cat secret"}}, NOT_FOUND),
    "list_executions": ({}, OWN),
    "list_executions_of_session": ({}, NOT_FOUND),
    "get_execution": ({}, NOT_FOUND),
    "wait_execution": ({}, NOT_FOUND),
    "stream_execution": ({}, NOT_FOUND),
    "write_stdin": ({"content": b"x"}, NOT_FOUND),
    "signal_execution": ({"json": {"signal": "SIGKILL"}}, NOT_FOUND),
    "resize_terminal": ({"json": {"rows": 1, "columns": 1}}, NOT_FOUND),
    "end_execution": ({}, NOT_FOUND),
    "talk_execution": ({}, NOT_FOUND),
    "attach_execution": ({}, NOT_FOUND),
    "read_file": ({"params": {"path": "secret"}}, NOT_FOUND),
    "write_file": ({"params": {"path": "secret"}, "content": b"x"}, NOT_FOUND),
    "remove_file": ({"params": {"path": "secret"}}, NOT_FOUND),
    "stat_file": ({"params": {"path": "secret"}}, NOT_FOUND),
    "list_files": ({}, NOT_FOUND),
    "real_path": ({"params": {"path": "secret"}}, NOT_FOUND),
    "move_file": ({"json": {"source": "secret", "target": "x"}}, NOT_FOUND),
    "make_directory": ({"json": {"path": "x"}}, NOT_FOUND),
    "watch_files": ({}, NOT_FOUND),
    "download_archive": ({}, NOT_FOUND),
    "upload_archive": ({"content": b""}, NOT_FOUND),
    "list_changes": ({}, NOT_FOUND),
    "get_patch": ({}, NOT_FOUND),
    "get_hunks": ({"params": {"path": "secret"}}, NOT_FOUND),
    "commit_changes": ({"json": {"digest": "0"}}, NOT_FOUND),
    "open_port": ({}, NOT_FOUND),
    "port_get": ({}, NOT_FOUND),
    "port_post": ({}, NOT_FOUND),
    "port_put": ({}, NOT_FOUND),
    "port_patch": ({}, NOT_FOUND),
    "port_delete": ({}, NOT_FOUND),
    "list_questions": ({"params": {"state": "all"}}, OWN),
    "get_question": ({}, NOT_FOUND),
    "answer_question": ({"json": {"choice": "yes", "request_hash": "0"}}, NOT_FOUND),
    "stream_events": ({}, OWN),
    "talk_events": ({}, OWN),
    "check": ({"json": {"session_id": "shared-name", "command": "ls"}}, NOT_FOUND),
    "list_violations": ({}, OWN),
    "list_policies": ({}, OWN),
    "validate_policy": ({"json": {"text": "policies: {}"}}, OWN),
    "explain_policy": ({}, {200, 422}),
    "search_audit": ({}, OWN),
    "export_audit": ({}, OWN),
    "verify_audit": ({}, OWN),
    "show_audit": ({}, NOT_FOUND),
    "create_token": ({"json": {"name": "x", "scopes": ["view"]}}, {201}),
    "list_tokens": ({}, OWN),
    "revoke_token": ({}, NOT_FOUND),
    "login": ({"json": {"token": "rf_000000000000_" + "x" * 43}}, {401}),
    "logout": ({}, {204}),
    "get_session_state": ({}, NOT_FOUND),
    "check_in_session": ({"json": {"path": "secret"}}, NOT_FOUND),
    "decide_in_session": ({"json": {"command": "ls"}}, NOT_FOUND),
    "open_box": ({}, NOT_FOUND),
    "warm_box": ({}, NOT_FOUND),
    "list_processes": ({}, NOT_FOUND),
    "run_fed_in_session": ({"content": b""}, NOT_FOUND),
    "replay_policy": ({"json": {"text": "policies: {}"}}, OWN),
    "get_pool": ({}, OWN),
    "metrics": ({}, OWN),
}


def test_every_route_has_a_line() -> None:
    assert set(LINES) == {row.name for row in TABLE}


def test_nothing_of_another_tenant_is_seen_or_changed_on_any_route(tmp_path: Path) -> None:
    wrong: dict[str, str] = {}
    with two_tenants(tmp_path) as world:
        for row in TABLE:
            status, text = _try(world, row)
            if status not in LINES[row.name][1]:
                wrong[row.name] = f"{status}: {text}"
            if SECRET in text or "shared-name" in text.replace("'shared-name'", ""):
                wrong[row.name] = f"shows something of the other: {text}"
            kept = world.a.get(f"/v1/sessions/{world.victim.session}/files", params={"path": "secret"}).text
            state = world.a.get(f"/v1/executions/{world.victim.execution}").json()["state"]
            if (kept, state) != (SECRET, "running"):
                wrong[row.name] = f"changed something of the other: {kept!r}, {state}"
        seen = {row.name: _try(world, row, world.a) for row in TABLE if row.name in _SHOWS}

    assert wrong == {}
    assert all(SECRET in text for _, text in seen.values()), "the owner sees it on the same routes"


_SHOWS = {"get_session", "list_sessions", "get_execution", "read_file", "search_audit", "show_audit"}


def _try(world: World, row: Endpoint, who: httpx.Client | None = None) -> tuple[int, str]:
    caller, victim, sent = who or world.b, world.victim, LINES[row.name][0]
    path = row.path.replace("{path:path}", "x").format(
        session=victim.session,
        execution=victim.execution,
        question=victim.question,
        snapshot=victim.snapshot,
        token=victim.token,
        run=victim.run,
        port="8000",
    )
    if row.method == "WEBSOCKET":
        return _talk(world, path)
    if row.name == "stream_events":
        with caller.stream("GET", path) as answer:
            return answer.status_code, ""
    answer = caller.request(row.method, path, **sent)
    return answer.status_code, answer.text


def test_without_a_good_token_no_route_answers(tmp_path: Path) -> None:
    wrong: dict[str, int] = {}
    with running_server(tmp_path) as server, httpx.Client(base_url=server.url) as nobody:
        for row in TABLE:
            path = row.path.replace("{path:path}", "x").replace("{", "").replace("}", "")
            if row.scope is None:
                continue
            if row.method == "WEBSOCKET":
                with pytest.raises(InvalidStatus) as refused, connect(server.url.replace("http", "ws", 1) + path):
                    pass
                status = refused.value.response.status_code
            else:
                status = nobody.request(row.method, path).status_code
            if status != 401:
                wrong[row.name] = status

    assert wrong == {}


def _talk(world: World, path: str) -> tuple[int, str]:
    url = world.server.url.replace("http", "ws", 1) + path
    try:
        with connect(url, additional_headers={"Authorization": str(world.b.headers["authorization"])}) as socket:
            try:
                return 200, str(socket.recv(0.3))
            except TimeoutError:
                return 200, ""
    except InvalidStatus as refused:
        return refused.response.status_code, (refused.response.body or b"").decode()


def test_a_name_that_another_tenant_uses_is_free_and_scopes_are_held(tmp_path: Path) -> None:
    with two_tenants(tmp_path) as world:
        made = world.b.post("/v1/sessions", json={"id": "shared-name"})
        listed = world.b.get("/v1/sessions/shared-name/files/list").json()["items"]
        ended = world.b.delete("/v1/sessions/shared-name")

        assert made.status_code == 201 and listed == [] and ended.status_code == 204
        assert world.a.get("/v1/sessions/shared-name").json()["metadata"] == {"x": SECRET}

        with world.server.client(world.server.new_token("viewer", "view", "tokens", tenant="a")) as viewer:
            ran = viewer.post("/v1/sessions/plain/executions", json={"command": "true"})
            more = viewer.post("/v1/tokens", json={"name": "x", "scopes": ["run"]})
            less = viewer.post("/v1/tokens", json={"name": "x", "scopes": ["view"]}).json()
            seen = viewer.get("/v1/sessions/plain")

        assert (ran.status_code, ran.json()["fields"]["scope"]) == (403, "run")
        assert more.status_code == 403 and seen.status_code == 200
        with world.server.client(less["token"]) as other:
            assert other.get("/v1/me").status_code == 200
            world.a.delete(f"/v1/tokens/{less['info']['id']}").raise_for_status()
            assert other.get("/v1/me").status_code == 401
