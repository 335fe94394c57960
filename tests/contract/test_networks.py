"""One suite for every wall that can have a network: all of it comes to whoever serves it, and nothing of it leaves.

The other end is an accept loop that says where a connection was meant to go. That nothing but captured ports leads
anywhere has its twin in `test_a_box_without_a_network_is_as_before`, and in that the captured ones do.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.confinement.choose import confiners
from ringfence.confinement.linux import building, bwrap, unshare
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.native.engine import NativeEngine
from ringfence.errors import InitializationFailed
from ringfence.values.grant import Grant
from ringfence.values.network import PROXY_PORT
from ringfence.values.outcome import Result
from ringfence.values.request import Request
from ringfence.values.violation import Operation, Severity, Violation, ViolationType
from tests.support.networks import ANSWER, Accepting, a_network

WALLS = ["bwrap", "unshare", "gvisor"]
BUILDING = ["bwrap", "unshare"]
ROOT = os.geteuid() == 0
PRELUDE = """
import errno, os, socket, struct, time
def reach(host, port, kind=socket.SOCK_STREAM):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as end:
        end.settimeout(5)
        end.connect((host, port))
        if kind == socket.SOCK_DGRAM:
            end.send(b"hello")
        return end.recv(100).decode(errors="replace")
def attempt(work, *arguments):
    try:
        return work(*arguments)
    except OSError as fault:
        return errno.errorcode.get(fault.errno, str(fault))
"""


class Bench:
    def __init__(self, wall: str, root: Path) -> None:
        self.wall = wall
        self.workspace = root / "work"
        self.home = root / "home"
        self.workspace.mkdir(parents=True)
        self.home.mkdir()
        self.provider = Accepting()

    def use(self, work: Callable[[HelperBox], Awaitable[Any]], **grant: Any) -> Any:
        async def main() -> Any:
            engine = NativeEngine(
                confiners(), {"PATH": "/usr/bin:/bin"}, str(self.home), only=self.wall, network=self.provider
            )
            async with asyncio.timeout(60):
                box = await engine.open(Grant(workspace=self.workspace, **({"network": a_network()} | grant)))
                try:
                    return await work(box)
                finally:
                    await box.close()

        return asyncio.run(main())

    def run(self, command: str, **grant: Any) -> Result:
        result = self.use(lambda box: box.run(Request(command=command)), **grant)
        assert isinstance(result, Result)
        return result

    def python(self, code: str, **grant: Any) -> Any:
        """What the code leaves in `said`, run by a Python inside."""
        (self.workspace / "inside.py").write_text(f"{PRELUDE}\n{code}\nimport json; print(json.dumps(said))\n")
        result = self.run("python3 inside.py", **grant)
        assert result.ok, result.stderr
        return json.loads(result.stdout)


@pytest.fixture(params=WALLS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


@pytest.fixture(params=BUILDING)
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Behind a wall of the machine's own kernel."""
    return _bench(request.param, tmp_path)


def _bench(wall: str, root: Path) -> Bench:
    (confiner,) = (confiner for confiner in confiners() if confiner.name == wall)
    if not confiner.probe().usable:
        pytest.skip(f"{wall}: {confiner.probe().missing}")
    return Bench(wall, root)


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_a_connection_to_any_address_arrives_with_where_it_was_meant_to_go(bench: Bench) -> None:
    hosts = [
        "1.1.1.1",
        "10.0.0.5",
        "192.168.1.1",
        "169.254.169.254",
        "240.0.0.1",
        "127.0.0.1",
        "2606:4700::1111",
        "::1",
    ]

    said = bench.python(f"said = [reach(host, port) for host in {hosts} for port in (80, 443, 5432, {PROXY_PORT})]",
                        network=a_network(443, 5432))  # fmt: skip

    assert said == [f"{host} {port}" for host in hosts for port in (80, 443, 5432, PROXY_PORT)]


def test_names_are_asked_of_any_server_and_answered_from_it(bench: Bench) -> None:
    said = bench.python(
        "from_libc = socket.getaddrinfo('example.com', 80, type=socket.SOCK_STREAM)[0][4]\n"
        "import socket as s\n"
        "name = b'\\x07example\\x03com\\0'\n"
        "question = bytes.fromhex('abcd01000001000000000000') + name + bytes.fromhex('00010001')\n"
        "def ask(server):\n"
        "    with s.socket(s.AF_INET6 if ':' in server else s.AF_INET, s.SOCK_DGRAM) as end:\n"
        "        end.settimeout(5)\n"
        "        end.sendto(question, (server, 53))\n"
        "        answer, sender = end.recvfrom(512)\n"
        "        return [answer[:2].hex(), answer[-4:].hex(), sender[0]]\n"
        "said = [from_libc, *map(ask, ('8.8.8.8', '127.0.0.53', '2001:4860:4860::8888'))]"
    )

    bits = socket.inet_aton(ANSWER).hex()
    servers = ("8.8.8.8", "127.0.0.53", "2001:4860:4860::8888")
    assert said == [[ANSWER, 80], *(["abcd", bits, server] for server in servers)]
    (attached,) = bench.provider.attached
    assert {server for _, server in attached.asked} == set(servers)


def test_names_are_found_for_programs_that_ask_for_families_of_this_machine(bench: Bench) -> None:
    said = bench.python(
        "ask = lambda host, family: socket.getaddrinfo(host, 80, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)\n"
        "asked = [ask('example.com', 0), ask('192.0.2.1', socket.AF_INET), ask('localhost', 0)]\n"
        "said = [answers[0][4][0] for answers in asked]"
    )

    assert said[:2] == [ANSWER, "192.0.2.1"]
    assert said[2] in ("127.0.0.1", "::1")


def test_two_hundred_connections_at_once_are_not_mixed_up(bench: Bench) -> None:
    said = bench.python(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "hosts = [f'203.0.{n // 100}.{n % 100}' for n in range(200)]\n"
        "with ThreadPoolExecutor(40) as pool: said = list(zip(hosts, pool.map(lambda host: reach(host, 443), hosts)))"
    )

    assert len(said) == 200
    assert all(heard == f"{host} 443" for host, heard in said)


# --- what does not ----------------------------------------------------------------------------------------------------


def test_a_port_that_nobody_serves_is_refused_at_once(bench: Bench) -> None:
    said = bench.python(
        "began = time.monotonic()\n"
        "hosts = ('8.8.8.8', '10.1.2.3', '2001:db8::1')\n"
        "said = [attempt(reach, host, port) for host in hosts for port in (22, 25, 8080)]\n"
        "said.append(time.monotonic() - began < 2)"
    )

    assert said == ["ECONNREFUSED"] * 9 + [True]


def test_datagrams_to_other_ports_are_refused_so_that_clients_fall_back(bench: Bench) -> None:
    said = bench.python("said = [attempt(reach, '1.1.1.1', port, socket.SOCK_DGRAM) for port in (443, 123)]")

    assert said == ["ECONNREFUSED", "ECONNREFUSED"]


def test_there_are_no_raw_sockets_and_nobody_answers_a_ping(bench: Bench) -> None:
    said = bench.python(
        "def make(family, kind, protocol):\n"
        "    with socket.socket(family, kind, protocol) as end: return 'made'\n"
        "kinds = ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 3), (2, 2, 1), (10, 2, 58))\n"
        "said = [attempt(make, *each) for each in kinds]"
    )

    assert "made" not in said[:4]
    if bench.wall != "gvisor":  # its own picture of such a socket leads nowhere: see the next test
        assert said[4:] == ["EACCES", "EACCES"]


def test_the_host_s_own_servers_are_not_reached(bench: Bench) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
    ):
        name = f"\0ringfence-test-{os.getpid()}"
        named.bind(name)
        named.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.socket(socket.AF_UNIX) as client:
            client.connect(name)  # both are there, for whoever is on the host
        said = bench.python(
            f"said = [attempt(reach, host, {port}) for host in ('127.0.0.1', '0.0.0.0', '::1', '198.18.0.1')]\n"
            "def knock():\n"
            f"    with socket.socket(socket.AF_UNIX) as end: end.connect({name!r}); return 'open'\n"
            "said.append(attempt(knock))"
        )

    assert said == ["ECONNREFUSED"] * 5


def test_servers_inside_are_reached_inside(bench: Bench) -> None:
    said = bench.python(
        "server = socket.create_server(('127.0.0.1', 8000))\n"
        "client = socket.create_connection(('127.0.0.1', 8000))\n"
        "server.accept()[0].sendall(b'mine')\n"
        "said = client.recv(10).decode()"
    )

    assert said == "mine"


def test_a_captured_port_cannot_be_taken_inside(bench: Bench) -> None:
    said = bench.python(
        "def take(address):\n"
        "    with socket.socket() as end:\n"
        "        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "        end.bind(address); end.listen(); return 'taken'\n"
        "said = [attempt(take, (host, port)) for host in ('127.0.0.1', '', '1.1.1.1') for port in (5432, 5433)]",
        network=a_network(443, 5432),
    )

    assert said == ["EADDRINUSE", "taken"] * 3


def test_nothing_of_the_network_can_be_changed_inside(bench: Bench) -> None:
    said = bench.python(
        "def ask(kind, flags, body):\n"
        "    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as end:\n"
        "        end.settimeout(5)\n"
        "        end.send(struct.pack('=IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body)\n"
        "        return errno.errorcode.get(-struct.unpack_from('=i', end.recv(4096), 16)[0], 'done')\n"
        "attribute = lambda kind, value: struct.pack('=HH', 4 + len(value), kind) + value\n"
        "both = b''.join(attribute(kind, socket.inet_aton('192.0.2.9')) for kind in (1, 2))\n"
        "link = attribute(4, struct.pack('=I', 1))\n"
        "said = [\n"
        "    attempt(ask, 16, 0, struct.pack('=BBHiII', 0, 0, 0, 1, 0, 1)),\n"  # lo down
        "    attempt(ask, 20, 0x600, struct.pack('=BBBBI', 2, 32, 0, 0, 1) + both),\n"
        "    attempt(ask, 25, 0, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 255, 4, 254, 2, 0)),\n"  # the route of all
        "    attempt(ask, 24, 0x600, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 4, 253, 1, 0) + link),\n"
        "]\n"
        "for name in ('ip_unprivileged_port_start', 'ping_group_range', 'conf/lo/forwarding', '../core/somaxconn'):\n"
        "    said.append(attempt(lambda: open(f'/proc/sys/net/ipv4/{name}', 'w').write('0')))\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "status = dict(line.split(':\\t', 1) for line in lines if ':\\t' in line)\n"
        "said.append([status[name].strip('0') for name in ('CapPrm', 'CapEff', 'CapBnd')])\n"
        "said.append(reach('9.9.9.9', 443))"
    )

    *refused, capabilities, still = said
    if bench.wall != "gvisor":  # it answers by its own picture of the network, which is nobody's
        assert set(refused[:4]) == {"EPERM"}
    assert set(refused[4:]) <= {"EROFS", "EACCES", "EPERM", "ENOENT"}
    assert capabilities == ["", "", ""]
    assert still == "9.9.9.9 443"


def test_no_process_of_ours_is_seen_inside(plain: Bench) -> None:
    result = plain.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -d /proc/[0-9]* | wc -l; readlink /proc/1/exe")

    assert "launch" not in result.stdout
    assert int(result.stdout.split()[-1]) <= 8  # PID 1, and the few of this command


# --- the socket maker -------------------------------------------------------------------------------------------------


def _socket_makers(parent: int) -> list[int]:
    """Processes below `parent` that hold a network and are in no other namespace of a box's."""
    own = os.readlink("/proc/self/ns/pid")
    found = []
    for pid in _below(parent):
        status = _status(pid)
        if (
            status.get("Name") == "ringfence-box"
            and status.get("Seccomp") == "2"
            and status.get("NSpid", "").count("\t") == 0
        ):
            found.append(pid)
    assert own
    return found


def _below(parent: int) -> list[int]:
    try:
        children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []
    return children + [each for child in children for each in _below(child)]


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_socket_maker_can_do_nothing_but_make_sockets(plain: Bench) -> None:
    async def look(box: HelperBox) -> dict[str, str]:
        (maker,) = _socket_makers(os.getpid())
        return _status(maker) | {"fds": str(len(os.listdir(f"/proc/{maker}/fd"))) if ROOT else "1"}

    status = plain.use(look)

    assert (status["NoNewPrivs"], status["Seccomp"], status["fds"]) == ("1", "2", "1")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 1 << 10  # low ports, of this network
    assert status["Uid"].split()[0] != "0"
    assert status["Groups"] == "" or not ROOT


def test_the_socket_maker_ends_with_the_box(bench: Bench) -> None:
    async def look(box: HelperBox) -> list[int]:
        return _socket_makers(os.getpid())

    found = bench.use(look)

    assert len(found) == 1
    assert not _status(found[0])


def test_the_socket_maker_makes_listeners_later_and_keeps_no_copy(bench: Bench) -> None:
    async def work(box: HelperBox) -> list[str]:
        attached = bench.provider.attached[-1]
        command = "python3 -c \"import socket; print(socket.create_connection(('1.2.3.4', 6000), 5).getsockname()[0])\""
        heard = [(await box.run(Request(command=command))).stderr.rpartition(" ")[2].strip()]
        with await attached.maker.listen(6000):
            heard.append((await box.run(Request(command=command))).stdout.strip())
        heard.append((await box.run(Request(command=command))).stderr.rpartition(" ")[2].strip())
        return heard

    assert bench.use(work) == ["refused", "198.18.0.1", "refused"]


def test_nothing_outlives_a_manager_that_is_killed(plain: Bench, tmp_path: Path) -> None:
    script = tmp_path / "manager.py"
    script.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from ringfence.confinement.choose import confiners\n"
        "from ringfence.engines.native.engine import NativeEngine\n"
        "from ringfence.values.grant import Grant\n"
        "from ringfence.values.request import Request\n"
        "from tests.support.networks import Accepting, a_network\n"
        "async def main():\n"
        "    wall, workspace, home = sys.argv[1:]\n"
        "    engine = NativeEngine(confiners(), {'PATH': '/usr/bin:/bin'}, home, only=wall, network=Accepting())\n"
        "    box = await engine.open(Grant(workspace=Path(workspace), network=a_network()))\n"
        "    await box.start(Request(command='sleep 1000'))\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    line = [sys.executable, str(script), plain.wall, str(plain.workspace), str(plain.home)]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": "."}
    ) as manager:
        assert manager.stdout is not None
        assert manager.stdout.readline() == b"ready\n"
        below = _below(manager.pid)
        network = os.stat(f"/proc/{_socket_makers(manager.pid)[0]}/ns/net").st_ino if ROOT else 0
        assert len(below) >= 4  # guardian, maker, wall, PID 1
        manager.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 10
    while any(_status(pid).get("State", "Z")[0] != "Z" for pid in below) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert [pid for pid in below if _status(pid).get("State", "Z")[0] != "Z"] == []
    if ROOT:
        assert network not in _networks()


def _networks() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add(os.stat(entry / "ns" / "net").st_ino)
            except OSError:
                continue
    return found


# --- fail closed ------------------------------------------------------------------------------------------------------


def test_a_plan_that_captures_nothing_builds_no_box(plain: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bwrap, unshare):
        monkeypatch.setattr(module, "capture", lambda descriptors, stand_in: ())

    with pytest.raises(InitializationFailed, match="captured no network"):
        plain.run("true")


def test_pid_1_ends_if_its_network_is_the_host_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _bench("bwrap", tmp_path)
    monkeypatch.setattr(bwrap, "capture", lambda descriptors, stand_in: ())
    step = building.LaunchPlan.step
    monkeypatch.setattr(
        building.LaunchPlan, "step", lambda self, *words: step(self, *(word for word in words if word != "captured"))
    )

    with pytest.raises(InitializationFailed, match="would have the host's network"):
        bench.run("true")


def test_a_network_that_nobody_serves_is_an_error(plain: Bench) -> None:
    async def main() -> None:
        await NativeEngine(confiners(), {"PATH": "/usr/bin:/bin"}, str(plain.home), only=plain.wall).open(
            Grant(workspace=plain.workspace, network=a_network())
        )

    with pytest.raises(InitializationFailed, match="nobody here who would serve it"):
        asyncio.run(main())


@pytest.mark.skipif(ROOT, reason="the landlock wall cannot be used by root")
def test_the_landlock_wall_says_that_it_cannot(tmp_path: Path) -> None:
    bench = _bench("landlock", tmp_path)

    with pytest.raises(InitializationFailed, match="no network of its own") as refused:
        bench.run("true")

    assert "bwrap" in refused.value.hint


def test_a_provider_that_fails_leaves_no_box(plain: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: object) -> None:
        raise InitializationFailed("the proxy does not start")

    monkeypatch.setattr(plain.provider, "attach", fail)

    with pytest.raises(InitializationFailed, match="does not start"):
        plain.run("true")  # that nothing is left, the fixture of every test sees


def test_a_box_without_a_network_is_as_before(bench: Bench) -> None:
    said = bench.python(
        "said = [attempt(reach, '1.1.1.1', 443), open('/etc/resolv.conf').read()]\n"
        "said += [sorted(os.environ), os.path.exists('/etc/ringfence')]",
        network=None,
    )

    assert said[0] in ("ENETUNREACH", "EHOSTUNREACH")  # the latter is gVisor's
    assert said[1] == "# there is no network in here\n"
    assert not [name for name in said[2] if "proxy" in name.lower() or "CERT" in name or "CA_BUNDLE" in name]
    assert said[3] is False
    assert bench.provider.attached == []


# --- ports that are published -----------------------------------------------------------------------------------------


def test_a_published_port_reaches_a_server_inside(bench: Bench) -> None:
    (bench.workspace / "serve.py").write_text(
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 5173)) as server:\n"
        "    print('up', flush=True)\n"
        "    client = server.accept()[0]\n"
        "    client.sendall(client.recv(100).upper())\n"
        "    client.close()\n"
    )

    async def work(box: HelperBox) -> bytes:
        server = await box.start(Request(command="python3 serve.py"))
        while b"up" not in server.read()[0]:
            await asyncio.sleep(0.05)
        ((inside, outside),) = box.published
        assert inside == 5173
        reader, writer = await asyncio.open_connection("127.0.0.1", outside)
        writer.write(b"hello from outside")
        writer.write_eof()
        heard = await reader.read()
        writer.close()
        await writer.wait_closed()
        return heard

    assert bench.use(work, network=a_network(publish=((5173, 0),))) == b"HELLO FROM OUTSIDE"


def test_a_published_port_without_a_server_ends_the_connection(plain: Bench) -> None:
    async def work(box: HelperBox) -> bytes:
        ((_, outside),) = box.published
        reader, writer = await asyncio.open_connection("127.0.0.1", outside)
        heard = await reader.read()
        writer.close()
        return heard

    assert plain.use(work, network=a_network(publish=((5173, 0),))) == b""


def test_a_port_that_is_taken_outside_is_an_error_and_leaves_nothing(plain: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InitializationFailed, match=f"port {port} of 127.0.0.1"):
            plain.run("true", network=a_network(publish=((5173, port),)))


@pytest.mark.parametrize("port", [PROXY_PORT, 53, 443])
def test_the_proxys_own_ports_are_not_published(plain: Bench, port: int) -> None:
    """Whoever of this machine connects there would speak in the name of the box, with what it may reach."""

    async def work(box: HelperBox) -> bytes:
        ((_, outside),) = box.published
        reader, writer = await asyncio.open_connection("127.0.0.1", outside)
        heard = await asyncio.wait_for(reader.read(100), 10)
        writer.close()
        return heard

    with pytest.raises(InitializationFailed, match=f"port {port} of the box leads to the proxy"):
        plain.use(work, network=a_network(publish=((port, 0),)))
    assert plain.provider.attached == []


# --- what results say -------------------------------------------------------------------------------------------------


def test_what_is_refused_outside_is_in_the_result_of_the_call(bench: Bench) -> None:
    refused = Violation(
        ViolationType.NETWORK, Severity.HIGH, "evil.example: no rule names it", "network.allow", "", Operation.CONNECT
    )

    async def work(box: HelperBox) -> tuple[Result, Result]:
        bench.provider.attached[-1].refused.append(refused)
        return await box.run(Request(command="true")), await box.run(Request(command="true"))

    first, second = bench.use(work)

    assert (first.violations, second.violations) == ((refused,), ())


def test_a_connection_that_leads_out_is_no_violation_and_one_that_does_not_says_why(plain: Bench) -> None:
    fine = plain.run(
        "python3 -c \"import socket as s; s.create_connection(('1.1.1.1', 443), 5); s.getaddrinfo('a.example', 80)\""
    )
    lost = plain.run("python3 -c \"import socket; socket.create_connection(('1.1.1.1', 5432), 5)\"")

    assert fine.ok
    assert fine.violations == ()
    (violation,) = lost.violations
    assert violation.kind is ViolationType.NETWORK
    assert "no rule names port 5432" in violation.what


def test_programs_are_told_of_the_proxy_and_get_what_stands_for_secrets(bench: Bench) -> None:
    bench.provider = Accepting(variables=(("GH_TOKEN", "ghp_x"), ("MINE", "placeholder")))

    said = bench.python("said = dict(os.environ)", env=(("MINE", "the real one"), ("HTTPS_PROXY", "http://other:1")))

    assert said["GH_TOKEN"] == "ghp_x"
    assert said["MINE"] == "placeholder"  # what stands for a secret beats the secret
    assert said["https_proxy"] == f"http://127.0.0.1:{PROXY_PORT}"
    assert said["HTTPS_PROXY"] == "http://other:1"
    assert said["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert "SSL_CERT_FILE" not in said  # nothing is looked into
