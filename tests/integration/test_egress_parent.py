"""Through the proxy of a company's network: a real second proxy, real boxes, our own proxy process as it is.

Names end in `.invalid`, so that only the parent knows them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence import Network, Result, Sandbox
from ringfence.egress import parents
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.proxy import Proxy
from ringfence.egress.secrets.minting import TokenRequest
from ringfence.egress.secrets.posting import Poster, dial_by
from ringfence.manager.network_pages import network_log
from ringfence.values.hosts import canonical_host
from ringfence.values.network import NetworkGrant, NetworkRule
from ringfence.values.parent_proxy import ParentProxies, ParentProxy
from ringfence.values.verdict import Verdict
from tests.integration.stage import Place
from tests.support.egress import World, in_loop, local_listeners
from tests.support.parent_proxy import AUTHORIZATION, CREDENTIALS, PASSWORD, Parent, parent_proxy
from tests.support.web_server import Reply, WebServer, web_server

pytestmark = pytest.mark.req("B5", "X4", "A6")
HELLO = "hello through the firm"
NAME = "files.corp.invalid"


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        server.replies["/"] = Reply(body=HELLO.encode())
        yield server


@pytest.fixture
def secure() -> Iterator[WebServer]:
    context = Authority.make().context_for(canonical_host(NAME))
    context.set_alpn_protocols(["http/1.1"])
    with web_server(context) as server:
        server.replies["/"] = Reply(body=HELLO.encode())
        yield server


def set_parent(patch: pytest.MonkeyPatch, parent: Parent, *, exempt: str = "", credentials: str = CREDENTIALS) -> None:
    url = f"http://{credentials}@127.0.0.1:{parent.port}" if credentials else f"http://127.0.0.1:{parent.port}"
    for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy", "NO_PROXY"):
        patch.delenv(name, raising=False)
    patch.setenv("HTTPS_PROXY", url)
    patch.setenv("HTTP_PROXY", url)
    patch.setenv("NO_PROXY", exempt)


# --- real boxes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_parent", [True, False])
def test_a_box_goes_out_through_the_parent_and_sees_nothing_of_its_credentials(
    place: Place, web: WebServer, secure: WebServer, monkeypatch: pytest.MonkeyPatch, has_parent: bool
) -> None:
    look = "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"
    with parent_proxy(web.port) as plain, parent_proxy(secure.port) as tls:
        set_parent(monkeypatch, tls)
        monkeypatch.setenv("HTTP_PROXY", f"http://{CREDENTIALS}@127.0.0.1:{plain.port}")
        if not has_parent:
            monkeypatch.delenv("HTTPS_PROXY")
            monkeypatch.delenv("HTTP_PROXY")
        calls = f"curl -sS http://{NAME}/; curl -sSk https://{NAME}/; curl -sSk --noproxy '*' https://{NAME}/; {look}"
        done = place.run(calls, network=Network(allow=[NAME]))

        assert done.stdout.count(HELLO) == (3 if has_parent else 0)
        assert (plain.asked, tls.asked) == (([f"{NAME}:80"], [f"{NAME}:443"] * 2) if has_parent else ([], []))
    secrets = (PASSWORD, CREDENTIALS, AUTHORIZATION.split()[1])
    journal = "".join(path.read_text() for path in place.state.rglob("*") if path.is_file())
    assert not [each for each in secrets if each in done.stdout + done.stderr + journal]
    by = {each.get("parent_proxy") for each in network_log(place.state) if each["verdict"] == "allow"}
    assert by == ({f"127.0.0.1:{each.port}" for each in (plain, tls)} if has_parent else {None})


@pytest.mark.parametrize("exempt", [NAME, ""])
def test_what_is_exempt_is_dialled_directly(
    place: Place, web: WebServer, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    with parent_proxy(web.port) as parent:
        set_parent(monkeypatch, parent, exempt=exempt)
        done = place.run(f"curl -sS http://{NAME}/", network=Network(allow=[NAME]))

        assert (HELLO in done.stdout) is not bool(exempt)  # directly, nobody knows the name
        assert bool(parent.asked) is not bool(exempt)


def test_the_host_that_the_box_may_not_reach_is_not_told_to_the_parent(
    place: Place, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parent_proxy(web.port) as parent:
        set_parent(monkeypatch, parent)
        done = place.run(f"curl -sS http://other.invalid/; curl -sS http://{NAME}/", network=Network(allow=[NAME]))

        assert done.stdout == HELLO or HELLO in done.stdout
        assert parent.asked == [f"{NAME}:80"]
        assert [each.target for each in done.violations] == ["other.invalid:80"]


def test_a_port_of_the_host_is_reached_without_the_parent(
    place: Place, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parent_proxy(web.port) as parent:
        set_parent(monkeypatch, parent)
        done: Result = place.run(f"curl -sS http://127.0.0.1:{web.port}/", network=Network(reach=[web.port]))

        assert (done.stdout, parent.heads) == (HELLO, [])


def test_a_proxy_that_cannot_be_used_opens_no_box_and_the_persons_setting_helps(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ringfence import InvalidConfig

    monkeypatch.setenv("HTTPS_PROXY", "socks5://ann:hunter2@127.0.0.1:1")
    with pytest.raises(InvalidConfig, match="HTTPS_PROXY names a proxy by socks5:") as refused:
        place.run("true", network=Network(allow=[NAME]))
    assert "hunter2" not in str(refused.value)
    assert place.run("true").ok  # without a network there is no question
    (place.home / ".ringfence").mkdir(exist_ok=True)
    (place.home / ".ringfence" / "sandbox.json").write_text('{"network": {"parentProxy": "none"}}')
    assert place.run("true", network=Network(allow=[NAME])).ok


@pytest.mark.parametrize("tool", ["fetch", "http"])
def test_the_tools_go_out_through_the_parent(
    place: Place, web: WebServer, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    with parent_proxy(web.port) as parent:
        set_parent(monkeypatch, parent)
        words = (tool, "--allow", NAME, *(("GET",) if tool == "http" else ()), f"http://{NAME}/")
        done = subprocess.run(
            [sys.executable, "-m", "ringfence.cli.app", *words],
            cwd=place.workspace,
            capture_output=True,
            text=True,
            timeout=60,
        )

        assert HELLO in done.stdout, done.stderr
        assert parent.asked == [f"{NAME}:80"]
        parent.mood = "refuses"
        refused = subprocess.run(
            [sys.executable, "-m", "ringfence.cli.app", *words],
            cwd=place.workspace,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "refuses files.corp.invalid:80 (403 Blocked by? the firm)" in refused.stdout + refused.stderr


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")
def test_git_by_ssh_goes_out_through_the_parent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("asyncssh", reason="the extra `ssh` is not installed")
    from tests.support.ssh_through_parent import KNOWN, served_by_ssh

    async def main() -> tuple[Result, Result, list[str]]:
        async with served_by_ssh(place.home) as server:
            with parent_proxy(server.port) as parent:
                set_parent(monkeypatch, parent)
                network = Network(allow=[server.rule], secrets=[server.secret])
                async with Sandbox(place.workspace, network=network) as box:
                    cloned = await box.shell(f"git clone -q git@{KNOWN}:org/first mine && cat mine/README; env")
                    parent.mood = "refuses"
                    refused = await box.shell(f"git clone -q git@{KNOWN}:org/first again")
                    return cloned, refused, parent.asked

    cloned, refused, asked = asyncio.run(main())
    assert "hello from outside" in cloned.stdout, cloned.stderr
    assert PASSWORD not in cloned.stdout
    assert not refused.ok and "refuses ssh-git.example:22 (403" in refused.stderr
    assert asked == ["ssh-git.example:22"] * 2


# --- what a parent may do ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def through(world: World, parent: Parent, authorization: str) -> AsyncIterator[tuple[str, int]]:
    """The proxy port of a box whose proxy has this parent."""
    made = ParentProxy("127.0.0.1", parent.port, authorization)
    world.servers[parent.port] = parent.port
    proxy = Proxy(replace(world.outside(), parents=lambda: ParentProxies(https=made, http=made)))
    listeners = local_listeners()
    host, port = listeners.proxy.getsockname()
    proxy.attach("box", RULES, listeners)
    try:
        yield host, port
    finally:
        await proxy.close()


async def said(at: tuple[str, int], target: str) -> bytes:
    reader, writer = await asyncio.open_connection(*at)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    got = b""
    try:
        async with asyncio.timeout(20):
            while b"\r\n\r\n" not in got or (b" 200 " in got[:20] and b"220 hello" not in got):
                data = await reader.read(1000)
                if not data:
                    break
                got += data
    finally:
        writer.close()
    return got


RULES = NetworkGrant(
    rules=(
        NetworkRule(host=NAME, ports=(25,), raw=True),
        NetworkRule(host="inside.example", ports=(25,), raw=True),
        NetworkRule(host="opened.example", ports=(25,), raw=True, private=("10.0.0.0/8",)),
        NetworkRule(host="10.0.0.9", ports=(25,), raw=True),
        NetworkRule(host="127.0.0.1", ports=(25,), raw=True),
    )
)


@pytest.mark.parametrize(
    ("mood", "authorization", "told"),
    [
        ("works", AUTHORIZATION, b"HTTP/1.1 200"),
        ("chatty", AUTHORIZATION, b"HTTP/1.1 200"),
        ("works", "", b"wants credentials, and has none (407)"),
        ("works", "Basic d3Jvbmc6", b"wants other credentials than it is given (407)"),
        ("refuses", AUTHORIZATION, b"refuses files.corp.invalid:25 (403 Blocked by? the firm)"),
        ("hangs", AUTHORIZATION, b"does not answer"),
        ("dies", AUTHORIZATION, b"ended the connection: it ended before it answered"),
        ("babbles", AUTHORIZATION, b"does not answer as a proxy does"),
        ("endless", AUTHORIZATION, b"ended the connection: its answer is too long"),
    ],
)
def test_the_client_is_told_what_the_parent_did(
    monkeypatch: pytest.MonkeyPatch, mood: str, authorization: str, told: bytes
) -> None:
    monkeypatch.setattr(parents, "_ANSWER_SECONDS", 1.0 if mood == "hangs" else 15.0)

    @in_loop
    async def main() -> None:
        world = World(names={NAME: [()]})
        with parent_proxy() as parent:
            parent.mood = mood
            async with through(world, parent, authorization) as at:
                answer = await said(at, f"{NAME}:25")
        works = told.startswith(b"HTTP/1.1 200")
        assert told in answer, answer
        assert (b"220 hello" in answer) is works
        assert works or answer.startswith(b"HTTP/1.1 502 ")
        assert not any(AUTHORIZATION in f"{event}" for event in world.events)
        by = [event.parent for event in world.events if event.status != 502]
        assert by == ([f"127.0.0.1:{parent.port}"] if works else [])

    main()


@pytest.mark.parametrize(
    ("host", "answers", "passes"),
    [
        (NAME, (), True),  # only the parent knows it
        ("inside.example", ("10.0.0.7",), False),
        ("inside.example", ("93.184.216.34", "127.0.0.1"), False),
        ("inside.example", ("169.254.169.254",), False),
        ("inside.example", ("93.184.216.34",), True),
        ("opened.example", ("10.0.0.7",), True),
        ("opened.example", ("127.0.0.1",), False),
        ("10.0.0.9", (), True),  # a rule names it outright
        ("10.0.0.8", (), False),
        ("127.0.0.1", (), False),
    ],
)
@in_loop
async def test_a_name_that_is_not_global_here_is_not_led_through_the_parent(
    host: str, answers: tuple[str, ...], passes: bool
) -> None:
    world = World(names={host: [answers]})
    with parent_proxy() as parent:
        async with through(world, parent, AUTHORIZATION) as at:
            answer = await said(at, f"{host}:25")
        assert (b"220 hello" in answer) is passes
        assert parent.asked == ([f"{host}:25"] if passes else [])
    assert passes or [event.verdict for event in world.events] == [Verdict.DENY]


@in_loop
async def test_a_resolver_that_hangs_delays_the_first_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.egress.flow.LOOK_SECONDS", 0.2)

    class Hanging(World):
        async def addresses(self, host):  # type: ignore[no-untyped-def]
            if host.address is None:
                self.looked_up.append(host.text)
                await asyncio.sleep(60)
            return await super().addresses(host)

    world = Hanging()
    with parent_proxy() as parent:
        async with through(world, parent, AUTHORIZATION) as at:
            for _ in range(3):
                assert b"220 hello" in await said(at, f"{NAME}:25")
    assert world.looked_up == [NAME]


def test_tokens_of_signers_are_asked_for_through_the_parent(
    secure: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority.make()
    (tmp_path / "roots.pem").write_bytes(authority.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots.pem"))
    with web_server(authority.context_for(canonical_host(NAME))) as server, parent_proxy(server.port) as parent:
        server.replies["/token"] = Reply(body=json.dumps({"access_token": "t"}).encode())
        made = ParentProxy("127.0.0.1", parent.port, AUTHORIZATION)
        request = TokenRequest(f"https://{NAME}/token", b"a=b", ())

        answer = asyncio.run(Poster(dial_by(ParentProxies(https=made)))(request))
        with pytest.raises(OSError):
            asyncio.run(Poster(dial_by(ParentProxies()))(request))

        assert (answer.status, parent.asked) == (200, [f"{NAME}:443"])
