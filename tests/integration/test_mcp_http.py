"""MCP over streamable HTTP on `ringfence serve`, by the official SDK's own client, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from ringfence.server.store import Store
from ringfence.server.tenants import Scope
from ringfence.server.tokens import Tokens
from tests.support.mcp_client import ERAS, Answer, accept, said, values
from tests.support.serving import RunningServer, running_server

pytestmark = pytest.mark.req("A6", "X3")

CONFIG = """
tenants:
  one:
    policy: {policy}
  two: {{}}
"""
POLICY = """
policies:
  default:
    approvals:
      ask_for:
        patterns: [touch]
"""


TOKENS: dict[str, str] = {}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    top = tmp_path_factory.mktemp("mcp-http")
    (top / "policy.yaml").write_text(POLICY)
    (top / "server.yaml").write_text(CONFIG.format(policy=top / "policy.yaml"))
    with running_server(top, "--config", str(top / "server.yaml")) as made:
        yield made
    TOKENS.clear()


@pytest.fixture
def server(running: RunningServer) -> Iterator[RunningServer]:
    """One for all tests, in which each ends the sessions that it made."""
    yield running
    for token in (running.token, *TOKENS.values()):
        with running.client(token) as client:
            for session in client.get("/v1/sessions").json()["items"]:
                client.delete(f"/v1/sessions/{session['id']}")


@asynccontextmanager
async def connected(
    server: RunningServer, era: str, token: str | None = None, *, answer: Answer | None = None
) -> AsyncIterator[Client]:
    async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert answer is not None
        return answer(params.message)

    headers = {"Authorization": f"Bearer {token or server.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=era, elicitation_callback=elicit if answer is not None else None) as client:
            yield client


def token_of(server: RunningServer, tenant: str, *more: Scope) -> str:
    key = " ".join((tenant, *more))
    if key not in TOKENS:
        store = Store(server.state)
        try:
            TOKENS[key], _ = Tokens(store).create(tenant=tenant, name=key, scopes=(Scope.RUN, Scope.VIEW, *more))
        finally:
            store.close()
    return TOKENS[key]


def approver(server: RunningServer) -> str:
    return token_of(server, "one", Scope.APPROVE)


@pytest.mark.parametrize("era", ERAS)
def test_the_same_tools_in_both_eras(server: RunningServer, era: str) -> None:
    async def talk() -> None:
        async with connected(server, era) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"bash", "run_code", "read_file", "search_files"} <= names and len(names) <= 8
            done = await client.call_tool("bash", {"command": "echo hello; pwd"})
            assert not done.is_error and values(done)["exit_code"] == 0 and "hello" in said(done)
            kept = await client.call_tool("run_code", {"code": "x = 6 * 7", "sandbox": values(done)["sandbox"]})
            again = await client.call_tool("run_code", {"code": "x", "sandbox": values(kept)["sandbox"]})
            assert "42" in said(again)
            wrong = await client.call_tool("bash", {"command": "true", "sandbox": "of-nobody"})
            assert wrong.is_error and "no sandbox" in said(wrong)

    asyncio.run(talk())


def test_a_sandbox_is_a_session_of_the_server(server: RunningServer) -> None:
    async def talk() -> str:
        async with connected(server, ERAS[1]) as client:
            done = await client.call_tool("bash", {"command": "echo kept > file", "sandbox": "new"})
            return str(values(done)["sandbox"])

    ident = asyncio.run(talk())
    with server.client() as client:
        sessions = client.get("/v1/sessions").json()["items"]
        assert ident in [session["id"] for session in sessions]
        assert client.get(f"/v1/sessions/{ident}/files", params={"path": "file"}).text == "kept\n"


@pytest.mark.parametrize("era", ERAS)
def test_a_form_of_the_client_is_asked_where_its_token_may_approve(server: RunningServer, era: str) -> None:
    token = approver(server)
    asked: list[str] = []

    def yes(message: str) -> types.ElicitResult:
        asked.append(message)
        return accept()(message)

    async def talk() -> None:
        async with connected(server, era, token, answer=yes) as client:
            done = await client.call_tool("bash", {"command": "touch made && ls", "sandbox": "new"})
            assert not done.is_error and "made" in said(done), said(done)

    asyncio.run(talk())
    assert len(asked) == 1 and "touch made" in asked[0]


def test_a_token_that_may_not_approve_does_not_fill_in_the_form_itself(server: RunningServer) -> None:
    era = ERAS[-1]
    asked: list[str] = []

    def yes(message: str) -> types.ElicitResult:
        asked.append(message)
        return accept()(message)

    async def talk() -> None:
        async with connected(server, era, approver(server), answer=yes) as client:
            theirs = values(await client.call_tool("bash", {"command": "true", "sandbox": "new"}))["sandbox"]
        async with connected(server, era, token_of(server, "one"), answer=yes) as client:
            for sandbox in ("new", theirs):
                call = {"command": "touch mine && ls", "sandbox": sandbox}
                waits = await client.call_tool("bash", call)
                assert waits.is_error and "exactly the same call again" in said(waits), said(waits)

    asyncio.run(talk())
    assert not asked
    with server.client(token_of(server, "one", Scope.APPROVE, Scope.AUDIT)) as person:
        for question in person.get("/v1/questions").json()["items"]:
            given = {"choice": "no", "request_hash": question["request_hash"]}
            person.post(f"/v1/questions/{question['id']}/answer", json=given)


@pytest.mark.parametrize("era", ERAS)
def test_other_tenants_find_nothing(server: RunningServer, era: str) -> None:
    one, two = token_of(server, "one"), token_of(server, "two")

    async def talk() -> None:
        async with connected(server, era, one) as mine, connected(server, era, two) as other:
            done = await mine.call_tool("bash", {"command": "echo secret > file", "sandbox": "new"})
            ident = values(done)["sandbox"]
            seen = await mine.call_tool("read_file", {"path": "file", "sandbox": ident})
            assert "secret" in said(seen)
            stolen = await other.call_tool("read_file", {"path": "file", "sandbox": ident})
            assert stolen.is_error and "secret" not in said(stolen) and "no sandbox" in said(stolen)

    asyncio.run(talk())


def test_without_a_good_token_there_is_no_answer(server: RunningServer) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for header in ({}, {"Authorization": "Bearer rf_wrong"}):
        answer = httpx.post(f"{server.url}/mcp", json=hello, headers=header)
        assert answer.status_code == 401 and "resource_metadata" not in answer.headers["www-authenticate"]
    by_page = {"Authorization": f"Bearer {server.token}", "Origin": "https://evil.example"}
    assert httpx.post(f"{server.url}/mcp", json=hello, headers=by_page).status_code == 403
    by_name = {"Authorization": f"Bearer {server.token}", "Host": "evil.example"}
    assert httpx.post(f"{server.url}/mcp", json=hello, headers=by_name).status_code == 421


def test_a_session_of_the_handshake_era_is_of_its_token_alone(server: RunningServer) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    accepts = {"Accept": "application/json, text/event-stream"}

    def post(token: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        known = {"Authorization": f"Bearer {token}", **accepts, **headers}
        return httpx.post(f"{server.url}/mcp", json=body, headers=known, timeout=30)

    one, two = token_of(server, "one"), token_of(server, "two")
    ident = post(one, begin).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}

    assert post(one, ping, **{"Mcp-Session-Id": ident}).status_code == 200
    assert post(two, ping, **{"Mcp-Session-Id": ident}).status_code == 404


@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_is_given_up_is_killed(server: RunningServer, era: str, tmp_path: Path) -> None:
    async def talk() -> None:
        async with connected(server, era) as client:
            made = await client.call_tool("bash", {"command": "true", "sandbox": "new"})
            ident = values(made)["sandbox"]
            command = "echo $$ > pid; sleep 60; touch survived"
            with pytest.raises(Exception, match=r"(?i)time"):
                await client.call_tool("bash", {"command": command, "sandbox": ident}, read_timeout_seconds=2)
            until = time.monotonic() + 15
            while True:
                left = await client.call_tool("bash", {"command": "pgrep -c sleep", "sandbox": ident})
                if "0" in said(left).split():
                    break
                assert time.monotonic() < until, said(left)
                await asyncio.sleep(0.2)

    asyncio.run(talk())


@pytest.mark.parametrize("era", ERAS)
def test_a_client_without_forms_comes_back_for_what_a_person_answers_elsewhere(server: RunningServer, era: str) -> None:
    token = token_of(server, "one")
    call = {"command": "touch approved && ls", "sandbox": "new"}

    async def talk() -> None:
        async with connected(server, era, token) as client:
            waits = await client.call_tool("bash", call)
            assert waits.is_error and "exactly the same call again" in said(waits), said(waits)
            with server.client(approver(server)) as person:
                (question,) = [
                    each for each in person.get("/v1/questions").json()["items"] if not each.get("answered_at")
                ]
                assert question["id"] in said(waits)
                given = {"choice": "yes", "request_hash": question["request_hash"]}
                answered = person.post(f"/v1/questions/{question['id']}/answer", json=given)
                assert answered.status_code == 200, answered.text
            done = await client.call_tool("bash", call)
            assert not done.is_error and "approved" in said(done)

    asyncio.run(talk())
