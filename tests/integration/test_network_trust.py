"""Programs in a box trust who looks into their connections, without a variable or an option; and nobody else does.

A real server with a certificate of an authority that was made for the test; real clients, by name, through the box's
own routes. Each client is also run where nothing is looked into, and then refuses the same certificate.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ringfence.confinement.choose import confiners
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.sockets import Client
from ringfence.engines.native.engine import NativeEngine
from ringfence.values.grant import Grant
from ringfence.values.hosts import canonical_host
from ringfence.values.network import Inspection, NetworkGrant, NetworkRule
from ringfence.values.outcome import Result
from ringfence.values.request import Request
from tests.support.networks import Accepting

HOST = "trust.example"
URL = f"https://{HOST}/"
JAVA = """
public class Get { public static void main(String[] a) throws Exception {
    System.out.write(new java.net.URL(a[0]).openStream().readAllBytes()); System.out.flush(); } }
"""
CLIENTS: Final = {
    "curl": f"curl -sS {URL}",
    "wget": f"wget -qO- {URL}",
    "git": f"git -c http.followRedirects=false ls-remote {URL}x.git",
    "python3": f"python3 -c \"import urllib.request as u; print(u.urlopen('{URL}').read().decode())\"",
    "java": f"java Get.java {URL}",
}
"""Those that read a file of the system's. Node carries its roots in itself, and needs a variable."""
NODE = f"node -e \"fetch('{URL}').then(r => r.text()).then(console.log)\""
WITHOUT_VARIABLES = "env -i PATH=/usr/bin:/bin HOME=/tmp "


class TrustBench:
    def __init__(self, root: Path) -> None:
        self.workspace = root / "work"
        self.home = root / "home"
        self.workspace.mkdir()
        self.home.mkdir()
        (self.workspace / "Get.java").write_text(JAVA)
        self.authority = Authority.make()

    async def _serve(self, client: Client) -> None:
        """A web server that says hello, or an advertisement of git's."""
        context = self.authority.context_for(canonical_host(HOST))
        context.set_alpn_protocols(["http/1.1"])
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, client.socket.dup(), ssl=context)
        except OSError:
            return  # the client does not trust it
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            body = b"hello from outside\n"
            kind = b"text/plain"
            if b"info/refs" in head:
                refs = b"%s refs/heads/main\0 \n" % (b"1" * 40)
                body = b"001e# service=git-upload-pack\n0000%04x%s0000" % (len(refs) + 4, refs)
                kind = b"application/x-git-upload-pack-advertisement"
            answer = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            writer.write(answer % (kind, len(body)) + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # it goes away in the middle
        finally:
            writer.close()

    def run(self, *commands: str, inspects: bool = True) -> list[Result]:
        inspection = Inspection.ALWAYS if inspects else Inspection.NEVER
        network = NetworkGrant(rules=(NetworkRule(host=HOST, inspection=inspection),))
        provider = Accepting(self._serve, authority=self.authority.certificate_pem)

        async def main() -> list[Result]:
            environ = {"PATH": "/usr/bin:/bin"}
            engine = NativeEngine(confiners(), environ, str(self.home), network=provider)
            async with asyncio.timeout(90):
                box = await engine.open(Grant(workspace=self.workspace, network=network))
                try:
                    return [await box.run(Request(command=command)) for command in commands]
                finally:
                    await box.close()

        return asyncio.run(main())


@pytest.fixture
def bench(tmp_path: Path) -> TrustBench:
    return TrustBench(tmp_path)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_any_variable_trusts_us_where_connections_are_looked_into(
    bench: TrustBench, client: str
) -> None:
    if shutil.which(client, path="/usr/bin:/bin") is None:
        pytest.skip(f"{client} is not installed")

    (trusting,) = bench.run(WITHOUT_VARIABLES + CLIENTS[client])
    (refusing,) = bench.run(WITHOUT_VARIABLES + CLIENTS[client], inspects=False)

    assert trusting.ok, trusting.stderr
    assert "hello from outside" in trusting.stdout or "refs/heads/main" in trusting.stdout
    assert not refusing.ok


@pytest.mark.parametrize("java", sorted(map(str, Path("/usr/lib/jvm").glob("*/bin/java"))))
def test_java_finds_as_many_authorities_with_its_usual_password_as_without(bench: TrustBench, java: str) -> None:
    (bench.workspace / "Count.java").write_text(
        "import java.io.*; import java.security.*;\n"
        "public class Count { public static void main(String[] a) throws Exception {\n"
        '    String file = System.getProperty("java.home") + "/lib/security/cacerts";\n'
        '    for (char[] word : new char[][] {null, "changeit".toCharArray()}) {\n'
        "        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());\n"
        "        store.load(new FileInputStream(file), word); System.out.println(store.size()); } } }\n"
    )

    counted, system = bench.run(f"{java} Count.java", "grep -c BEGIN.CERTIFICATE $SSL_CERT_FILE")

    assert counted.ok, counted.stderr
    first, second = map(int, counted.stdout.split())
    assert first == second == int(system.stdout)


def test_node_trusts_us_by_its_variable(bench: TrustBench) -> None:
    if shutil.which("node", path="/usr/bin:/bin") is None:
        pytest.skip("node is not installed")
    direct = "env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u NODE_USE_ENV_PROXY "

    (trusting,) = bench.run(direct + NODE)
    (refusing,) = bench.run(direct + NODE, inspects=False)

    assert "hello from outside" in trusting.stdout, trusting.stderr
    assert not refusing.ok


def test_a_virtual_environment_s_own_list_of_authorities_is_covered(bench: TrustBench) -> None:
    environment = bench.workspace / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    certifi = packages / "certifi" / "cacert.pem"
    certifi.parent.mkdir()
    certifi.write_text("its own\n")

    show, change = bench.run(f"cat {certifi}", f"echo more >> {certifi}")

    assert show.stdout.strip().endswith(bench.authority.certificate_pem.decode().strip())
    assert not change.ok
    assert certifi.read_text() == "its own\n"
    (same,) = bench.run(f"cat {certifi}", inspects=False)
    assert same.stdout == "its own\n"


def test_what_the_system_trusts_stays_trusted(bench: TrustBench) -> None:
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    if not system.exists():
        pytest.skip("this system keeps its authorities elsewhere")

    first, second = bench.run(f"cat {system}", "cat $SSL_CERT_FILE")

    assert first.stdout == second.stdout
    assert first.stdout.startswith(system.read_text())
    assert first.stdout.endswith(bench.authority.certificate_pem.decode())
    assert not os.path.exists("/etc/ringfence")  # nothing of it on the host
