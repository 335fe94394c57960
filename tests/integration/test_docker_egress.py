"""A box in a container by the whole of Ringfence: names, refusals in the same result, ports, git by SSH.

With runc its listeners are passed out; out of gVisor's own kernel its connections are carried.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import urllib.request

import pytest

from ringfence import Docker, Network, Result, Sandbox
from tests.integration.stage import Place
from tests.integration.test_networks_of_sandboxes import HELLO, get_in_python, port, proxies, world  # fixtures, too
from tests.support import docker
from tests.support.parent_proxy import PASSWORD, parent_proxy
from tests.support.ssh_through_parent import KNOWN, served_by_ssh, set_parent

__all__ = ["port", "world"]
pytestmark = pytest.mark.req("B5", "X4")
QUERY = b"\0\1\1\0\0\1\0\0\0\0\0\0\5want0\4evil\0\0\1\0\1"

DIRECTLY = """
import urllib.request as u
u.install_opener(u.build_opener(u.ProxyHandler({})))
print(u.urlopen("http://api.example.com/", timeout=20).read().decode())
try:
    u.urlopen("http://other.example.com/", timeout=20)
except OSError as fault:
    print("no other:", fault)
"""


@pytest.fixture(params=["runc", "gvisor"])
def container(request: pytest.FixtureRequest) -> Docker:
    """With runc, listeners are passed out of it; out of gVisor's own kernel everything is carried."""
    chosen = docker.settings() if request.param == "runc" else docker.gvisor_settings()
    return Docker(url=chosen.url, image=chosen.image, runtime=chosen.runtime)


def test_a_container_reaches_a_host_by_its_name_without_any_variable(
    place: Place, world: int, container: Docker
) -> None:
    (place.workspace / "directly.py").write_text(DIRECTLY)

    done = place.run("python3 directly.py", network=["api.example.com"], engine=container)

    assert done.stdout.splitlines()[0] == HELLO, done.stderr
    assert "no other:" in done.stdout
    assert [each.target for each in done.violations] == ["other.example.com"]
    assert proxies() == []


LATE = f"python3 -c \"import socket; socket.socket(2, 2).sendto({QUERY!r}, ('127.0.0.53', 53))\""
CONNECTED = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 3128)).sendall({!r})\"".format(
    b"CONNECT no.example:443 HTTP/1.1\r\n\r\n"
)


@pytest.mark.parametrize("last", [LATE, CONNECTED], ids=["look-up", "request"])
def test_what_a_container_asked_for_last_is_in_the_same_result(
    place: Place, world: int, container: Docker, last: str
) -> None:
    """Whoever asked does not wait for an answer, and is gone before anybody outside has heard of it."""

    async def main() -> list[Result]:
        async with Sandbox(place.workspace, network=["api.example.com"], engine=container) as box:
            return [
                await box.shell(last.replace("want0", f"want{turn}") if turn % 2 else "true") for turn in range(6)
            ]  # the same name again would be no news

    for turn, done in enumerate(asyncio.run(main())):
        assert len(done.violations) == turn % 2, (turn, done.stderr, done.violations)


def test_a_container_publishes_and_reaches_ports_and_loses_both_with_its_proxy(
    place: Place, port: int, container: Docker
) -> None:
    get_it = f'python3 -c "{get_in_python(port)}"'

    async def main() -> tuple[Result, bytes, Result, Result]:
        network = Network(reach=[port], publish=[8000])
        async with Sandbox(place.workspace, network=network, engine=container) as box:
            reached = await box.shell(get_it)
            server = await box.start("python3 -m http.server 8000 --bind 127.0.0.1")
            (place.workspace / "page").write_text("from inside")
            published = await asyncio.to_thread(_got, f"{box.published[8000]}/page")
            (proxy,) = proxies()
            os.kill(proxy, 9)
            while proxies():
                await asyncio.sleep(0.02)
            refused = await box.shell(get_it)
            server.kill()
            return reached, published, refused, await box.shell("echo still here")

    reached, published, refused, alive = asyncio.run(main())
    assert reached.stdout.strip() == HELLO, reached.stderr
    assert published == b"from inside"
    assert not refused.ok and "Connection refused" in refused.stderr
    assert refused.usage.wall_seconds < 15
    assert alive.stdout == "still here\n"


def _got(url: str) -> bytes:
    for _ in range(100):
        with contextlib.suppress(OSError):
            return bytes(urllib.request.urlopen(url, timeout=20).read())
        time.sleep(0.1)
    raise AssertionError(f"nobody answers at {url}")


def test_git_by_ssh_from_a_container_through_a_parent_with_a_key_that_is_not_inside(
    place: Place, container: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not docker.has("ssh"):
        pytest.skip("the image has no ssh: its archive was made by an older scripts/docker-engine.sh")

    async def main() -> tuple[Result, Result, list[str]]:
        async with served_by_ssh(place.home) as server:
            with parent_proxy(server.port) as parent:
                set_parent(monkeypatch, parent.port)
                network = Network(allow=[server.rule], secrets=[server.secret])
                async with Sandbox(place.workspace, network=network, engine=container) as box:
                    cloned = await box.shell(f"env; git clone -q git@{KNOWN}:org/first mine && cat mine/README")
                    refused = await box.shell(f"git clone -q git@{KNOWN}:org/second no")
                    return cloned, refused, parent.asked

    cloned, refused, asked = asyncio.run(main())
    assert "hello from outside" in cloned.stdout, cloned.stderr
    assert PASSWORD not in cloned.stdout and "SSH_AUTH_SOCK" not in cloned.stdout
    assert not refused.ok and "Ringfence: " in refused.stderr
    assert set(asked) == {f"{KNOWN}:22"}
