"""The rest of the service with real clients: WebSockets, ports, shadows, snapshots, ranges, logins, quotas."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.support.serving import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("faces")
    (home / "server.yaml").write_text(
        json.dumps(
            {
                "tenants": {
                    "small": {"quotas": {"sessions": 1, "executions": 1, "requests_per_second": 3, "processes": 50}}
                },
                "presets": {"tidy": {"env": {"TIDY": "yes"}, "metadata": {"from": "preset"}}},
            }
        )
    )
    with running_server(home, "--config", str(home / "server.yaml")) as running:
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


def _run(client: httpx.Client, session: str, **asked: Any) -> dict[str, Any]:
    return dict(client.post(f"{session}/executions", json=asked).raise_for_status().json()["result"])


def test_a_terminal_over_a_websocket_has_its_size_its_input_and_its_signals(
    server: RunningServer, session: str
) -> None:
    url = server.url.replace("http", "ws", 1) + f"{session}/executions/socket"
    with connect(url, additional_headers={"Authorization": f"Bearer {server.token}"}) as socket:
        socket.send(json.dumps({"command": "sh -i", "terminal": {"rows": 33, "columns": 101}}))
        assert json.loads(socket.recv(10))["event"] == "started"
        socket.send(b"stty size; stty -echo\n")
        said = _until(socket, b"33 101")
        socket.send(json.dumps({"type": "resize", "rows": 44, "columns": 55}))
        socket.send(b"stty size\n")
        said += _until(socket, b"44 55")
        socket.send(b"sleep 600\n")
        time.sleep(0.3)
        socket.send(b"\x03")
        socket.send(b"exit 7\n")
        ended = _last(socket)

    assert ended["event"] == "execution" and ended["data"]["result"]["exit_code"] == 7


def _until(socket: Any, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        message = socket.recv(20)
        assert isinstance(message, bytes), message
        said += message[1:]
    return said


def _last(socket: Any) -> dict[str, Any]:
    while True:
        message = socket.recv(20)
        if isinstance(message, str):
            return dict(json.loads(message))


def test_whoever_closes_the_socket_ends_what_it_started_and_who_looks_on_does_not(
    server: RunningServer, client: httpx.Client, session: str
) -> None:
    url = server.url.replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {server.token}"}
    with connect(f"{url}{session}/executions/socket", additional_headers=headers) as socket:
        socket.send(json.dumps({"command": "echo up; sleep 600"}))
        one = json.loads(socket.recv(10))["data"]["id"]
        with connect(f"{url}/v1/executions/{one}/socket", additional_headers=headers) as looking:
            looking.recv(10)
        assert client.get(f"/v1/executions/{one}").json()["state"] == "running"
    deadline = time.monotonic() + 20
    while client.get(f"/v1/executions/{one}").json()["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_file_of_any_size_is_read_whole_or_in_part(client: httpx.Client, session: str) -> None:
    _run(client, session, command="head -c 20000000 /dev/zero | tr '\\0' a > big; printf end >> big")
    whole = client.get(f"{session}/files", params={"path": "big"})
    part = client.get(f"{session}/files", params={"path": "big"}, headers={"Range": "bytes=19999999-20000001"})
    tail = client.get(f"{session}/files", params={"path": "big"}, headers={"Range": "bytes=-3"})
    beyond = client.get(f"{session}/files", params={"path": "big"}, headers={"Range": "bytes=20000003-"})

    assert len(whole.content) == 20_000_003 and whole.content.endswith(b"aend")
    assert (part.status_code, part.content) == (206, b"aen")
    assert part.headers["content-range"] == "bytes 19999999-20000001/20000003"
    assert tail.content == b"end" and (beyond.status_code, beyond.json()["code"]) == (416, "range_not_satisfiable")


def test_changes_of_files_are_watched(client: httpx.Client, session: str) -> None:
    seen: list[str] = []
    with client.stream("GET", f"{session}/files/watch") as events:
        for line in events.iter_lines():
            if line == "event: watching":
                _run(client, session, command="touch made")
            if line.startswith("event: created"):
                seen.append(line)
                break

    assert seen


def test_snapshots_are_restored_and_forked(client: httpx.Client, session: str) -> None:
    _run(client, session, command="echo one > f")
    client.post(f"{session}/snapshots", json={"name": "first"}).raise_for_status()
    _run(client, session, command="echo two > f")
    forked = client.post(f"{session}/fork", json={"metadata": {"of": "fork"}}).raise_for_status().json()
    other = f"/v1/sessions/{forked['id']}"
    client.post(f"{session}/restore", json={"name": "first"}).raise_for_status()

    assert _run(client, session, command="cat f")["stdout"] == "one\n"
    assert _run(client, other, command="cat f")["stdout"] == "two\n" and forked["metadata"] == {"of": "fork"}
    assert [each["name"] for each in client.get("/v1/snapshots").json()["items"]] == ["first"]
    assert client.delete("/v1/snapshots/first").status_code == 204
    client.delete(other)


def test_changes_in_a_shadow_are_looked_at_and_committed_by_path_and_by_hunk(
    server: RunningServer, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("".join(f"line {n}\n" for n in range(40)))
    with server.owner() as owner:
        asked = {"workspace": str(project), "shadow": True}
        made = owner.post("/v1/sessions", json=asked).raise_for_status().json()
        session = f"/v1/sessions/{made['id']}"
        _run(owner, session, command="sed -i 's/line 3$/LINE 3/; s/line 35$/LINE 35/' a.txt; echo new > b.txt")
        changes = owner.get(f"{session}/changes").raise_for_status().json()
        hunks = owner.get(f"{session}/hunks", params={"path": "a.txt"}).raise_for_status().json()
        patch = owner.get(f"{session}/patch").text
        stale = owner.post(f"{session}/commit", json={"digest": "0"})
        done = owner.post(
            f"{session}/commit",
            json={
                "digest": changes["digest"],
                "paths": [],
                "hunks": [{"path": "a.txt", "mark": hunks["mark"], "numbers": [0]}],
            },
        ).raise_for_status()
        after = _run(owner, session, command="cat b.txt")
        owner.delete(session)

    text = (project / "a.txt").read_text()
    assert {each["path"] for each in changes["items"]} == {"a.txt", "b.txt"} and "+LINE 35" in patch
    assert len(hunks["hunks"]) == 2 and stale.status_code == 400
    assert done.json()["applied"] == ["a.txt"] and "LINE 3\n" in text and "line 35" in text
    assert not (project / "b.txt").exists() and after["stdout"] == "new\n"


def test_a_server_inside_is_reached_by_token_and_by_an_origin_of_its_own(
    server: RunningServer, client: httpx.Client
) -> None:
    made = client.post("/v1/sessions", json={"network": {"allow": [], "publish": [8000]}}).raise_for_status().json()
    session = f"/v1/sessions/{made['id']}"
    begun = client.post(
        f"{session}/executions",
        json={"command": "echo '<b>inside</b>' > index.html; exec python3 -m http.server 8000", "background": True},
    ).raise_for_status()
    deadline = time.monotonic() + 20
    while (through := client.get(f"{session}/ports/8000/http/index.html")).status_code != 200:
        assert time.monotonic() < deadline, through.text
        time.sleep(0.1)
    link = client.post(f"{session}/ports/8000/open").raise_for_status().json()["url"]
    label = link.split("//")[1].split("/")[0]
    with httpx.Client(base_url=server.url) as browser:  # names below localhost lead to loopback in browsers
        host = {"Host": label}
        before = browser.get("/", headers=host)
        entered = browser.get("/.ringfence/enter?ticket=" + link.split("ticket=")[1], headers=host)
        cookie = {"Cookie": entered.headers["set-cookie"].split(";")[0]}
        shown = browser.get("/index.html", headers=host | cookie)
        again = browser.get("/.ringfence/enter?ticket=" + link.split("ticket=")[1], headers=host)
        elsewhere = browser.get("/v1/me", headers=cookie)
    unpublished = client.get(f"{session}/ports/9/http/")
    client.delete(f"/v1/executions/{begun.json()['id']}")
    client.delete(session)

    assert "inside" in through.text and through.headers["content-security-policy"] == "sandbox"
    assert before.status_code == 401 and entered.status_code == 303 and "HttpOnly" in entered.headers["set-cookie"]
    assert "inside" in shown.text and again.status_code == 401 and elsewhere.status_code == 401
    assert unpublished.status_code == 404


def test_a_browser_logs_in_with_a_cookie_and_changes_nothing_without_the_csrf_token(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url) as browser:
        bad = browser.post("/v1/login", json={"token": "rf_000000000000_" + "x" * 43})
        logged = browser.post("/v1/login", json={"token": server.token}).raise_for_status()
        seen = browser.get("/v1/me").raise_for_status().json()
        refused = browser.post("/v1/sessions")
        made = browser.post("/v1/sessions", headers={"Ringfence-CSRF": seen["csrf_token"]})
        browser.delete(f"/v1/sessions/{made.json()['id']}", headers={"Ringfence-CSRF": seen["csrf_token"]})
        browser.post("/v1/logout", headers={"Ringfence-CSRF": seen["csrf_token"]})
        after = browser.get("/v1/me")

    cookie = logged.headers["set-cookie"]
    assert bad.status_code == 401 and "HttpOnly" in cookie and "SameSite=strict" in cookie and "Domain" not in cookie
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_token_missing")
    assert made.status_code == 201 and after.status_code == 401


def test_a_tenant_has_no_more_than_its_quotas(server: RunningServer) -> None:
    with server.client(server.new_token("small", "run", "view", tenant="small")) as small:
        first = small.post("/v1/sessions", json={"id": "first", "limits": {"processes": 400}})
        second = small.post("/v1/sessions")
        limit = small.post("/v1/sessions/first/executions", json={"command": "ulimit -u"}).json()
        rates = [small.get("/v1/me").status_code for _ in range(12)]
        time.sleep(2)
        small.delete("/v1/sessions/first")

    assert first.status_code == 201 and (second.status_code, second.json()["fields"]["quota"]) == (429, "sessions")
    assert limit["result"]["ok"] and 429 in rates and rates[0] in (200, 429)


def test_a_preset_gives_what_was_not_asked_for(client: httpx.Client) -> None:
    made = client.post("/v1/sessions", json={"preset": "tidy"}).raise_for_status().json()
    said = _run(client, f"/v1/sessions/{made['id']}", command="echo $TIDY")
    client.delete(f"/v1/sessions/{made['id']}")

    assert said["stdout"] == "yes\n" and made["metadata"] == {"from": "preset"}


def test_what_would_be_decided_and_what_was_is_told(client: httpx.Client, session: str) -> None:
    policy = "policies: {tools: {shell_exec: {denied_commands: [curl]}}}"
    denied = client.post("/v1/check", json={"command": "curl x", "policy": policy}).raise_for_status().json()
    fine = client.post("/v1/check", json={"session_id": session.split("/")[-1], "command": "ls"}).json()
    host = client.post("/v1/check", json={"host": "example.com"}).raise_for_status().json()
    ran = _run(client, session, command="echo recorded")
    found = client.get("/v1/audit", params={"text": "recorded", "limit": 1}).raise_for_status().json()
    shown = client.get(f"/v1/audit/runs/{ran['run_id']}").raise_for_status().json()
    lines = client.get("/v1/audit/export").text.splitlines()
    whole = client.get("/v1/audit/verify").raise_for_status().json()
    bad = client.post("/v1/policies/validate", json={"text": "policies: {defualt: {}}"}).json()
    good = client.post("/v1/policies/explain", json={"text": policy}).raise_for_status().json()

    assert denied["verdict"] == "deny" and denied["votes"][0]["rule"] and fine["verdict"] == "allow"
    assert host["verdict"] == "deny" and found["items"][0]["run"] == ran["run_id"] == shown["items"][0]["run"]
    assert all(json.loads(line)["org_id"] == "default" for line in lines) and whole["is_whole"]
    assert not bad["is_valid"] and bad["faults"] and good["terms"]["usable"]


def test_metrics_and_the_pool_are_for_who_operates(server: RunningServer, client: httpx.Client, session: str) -> None:
    _run(client, session, command="true")
    metrics = client.get("/metrics")
    pool = client.get("/v1/pool").raise_for_status().json()

    assert "sandbox_executions_total" in metrics.text and pool["sessions"] >= 1


def test_sessions_are_listed_in_pages_and_end_when_their_time_is_over(client: httpx.Client) -> None:
    made = [client.post("/v1/sessions", json={"id": f"page-{n}", "ttl_seconds": 2}).json()["id"] for n in range(3)]
    first = client.get("/v1/sessions", params={"limit": 2}).json()
    rest = client.get("/v1/sessions", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    deadline = time.monotonic() + 20
    while client.get("/v1/sessions").json()["items"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    assert [each["id"] for each in first["items"] + rest["items"]] == made and rest["next_cursor"] is None


def test_serve_check_says_what_is_wrong(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(json.dumps({"tenants": {"x": {"policy": "/none/such.yaml"}}}))
    wrong = server.command("serve", "--check", "--config", str(tmp_path / "server.yaml"))

    assert wrong.returncode == 1
    assert "FAULT: state: another server" in wrong.stderr and "FAULT: tenant x" in wrong.stderr


def test_off_loopback_without_tls_it_does_not_start(server: RunningServer) -> None:
    refused = server.command("serve", "--listen", "0.0.0.0:0")

    assert refused.returncode == 125 and "is not loopback, and there is no TLS" in refused.stderr
