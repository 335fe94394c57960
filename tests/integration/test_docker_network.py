"""A box in a container has a network by its own loopback: the proxy's port, names, and ports that are published.

With runc its listeners are passed out; with gVisor, out of which no descriptor passes, its connections are carried.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.settings import DockerSettings
from ringfence.errors import InitializationFailed
from ringfence.values.grant import Grant
from ringfence.values.network import PROXY_PORT, Inspection, NetworkGrant, NetworkRule
from ringfence.values.request import Request
from tests.support import docker
from tests.support.networks import ANSWER, Accepting, a_network

INSIDE = """
import errno, json, os, socket
def reach(host, port):
    with socket.socket() as end:
        end.settimeout(5)
        try:
            end.connect((host, port))
            return end.recv(100).decode()
        except OSError as fault:
            return errno.errorcode.get(fault.errno, str(fault))
said = [reach("127.0.0.1", PORT), reach("127.64.1.2", 443), reach("1.1.1.1", 443), reach("127.0.0.1", 8080)]
said.append(reach("127.64.255.255", 80))
said.append(socket.getaddrinfo("example.com", 80, type=socket.SOCK_STREAM)[0][4][0])
said.append(os.environ["https_proxy"])
status = open("/proc/self/status").read()
said.append([line.split()[1].strip("0") for line in status.splitlines() if line.startswith(("CapEff", "CapBnd"))])
print(json.dumps(said))
"""


@pytest.fixture(params=["runc", "gvisor"])
def settings(request: pytest.FixtureRequest) -> DockerSettings:
    return docker.settings() if request.param == "runc" else docker.gvisor_settings()


def use(
    settings: DockerSettings,
    workspace: Path,
    provider: Accepting,
    work: Callable[[HelperBox], Awaitable[Any]],
    **grant: Any,
) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            box = await DockerEngine(settings, provider).open(Grant(workspace=workspace, **grant))
            try:
                return await work(box)
            finally:
                await box.close()

    return asyncio.run(main())


def test_what_is_meant_for_the_loopback_comes_out_and_nothing_else(settings: DockerSettings, tmp_path: Path) -> None:
    provider = Accepting(variables=(("GH_TOKEN", "stands for it"),))
    (tmp_path / "inside.py").write_text(INSIDE.replace("PORT", str(PROXY_PORT), 1))

    result = use(
        settings,
        tmp_path,
        provider,
        lambda box: box.run(Request(command="python3 inside.py; echo $GH_TOKEN")),
        network=a_network(443),
    )

    said, token = result.stdout.splitlines()
    assert json.loads(said) == [
        f"127.0.0.1 {PROXY_PORT}",
        "127.64.1.2 443",
        "ENETUNREACH" if settings.runtime != "runsc" else "EHOSTUNREACH",
        "ECONNREFUSED",
        "127.64.255.255 80",
        ANSWER,
        f"http://127.0.0.1:{PROXY_PORT}",
        ["", ""],
    ]
    assert token == "stands for it"
    assert {server for _, server in provider.attached[0].asked} == {"127.0.0.53"}


def test_a_published_port_reaches_a_server_in_a_container(settings: DockerSettings, tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 5173)) as server:\n"
        "    print('up', flush=True)\n"
        "    server.accept()[0].sendall(b'from the container')\n"
    )

    async def work(box: HelperBox) -> bytes:
        server = await box.start(Request(command="python3 serve.py"))
        while b"up" not in server.read()[0]:
            await asyncio.sleep(0.05)
        ((_, outside),) = box.published
        reader, writer = await asyncio.open_connection("127.0.0.1", outside)
        heard = await reader.read()
        writer.close()
        return heard

    assert use(settings, tmp_path, Accepting(), work, network=a_network(publish=((5173, 0),))) == b"from the container"


def test_clients_are_told_whom_to_trust_where_connections_are_looked_into(
    settings: DockerSettings, tmp_path: Path
) -> None:
    provider = Accepting(authority=b"-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    network = NetworkGrant(rules=(NetworkRule(host="example.com", inspection=Inspection.ALWAYS),))

    shown = use(
        settings,
        tmp_path,
        provider,
        lambda box: box.run(Request(command='tail -n 2 "$SSL_CERT_FILE"')),
        network=network,
    )

    assert shown.stdout.startswith("ours\n")


def test_a_container_without_a_network_has_nothing_of_it(settings: DockerSettings, tmp_path: Path) -> None:
    result = use(settings, tmp_path, Accepting(), lambda box: box.run(Request(command="env; cat /etc/resolv.conf")))

    assert "proxy" not in result.stdout.lower()
    assert "127.0.0.53" not in result.stdout


def test_a_network_that_nobody_serves_is_an_error(tmp_path: Path) -> None:
    settings = docker.settings()

    async def main() -> None:
        await DockerEngine(settings).open(Grant(workspace=tmp_path, network=a_network()))

    with pytest.raises(InitializationFailed, match="nobody here who would serve it"):
        asyncio.run(main())
