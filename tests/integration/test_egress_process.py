"""The proxy as a process: what it may not do itself, who notices when it or the manager dies, and bounded noise."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringfence.egress.base import NetworkAnswer, NetworkQuestion, SecretValue
from ringfence.egress.service import EgressService
from ringfence.errors import InitializationFailed, InvalidConfig
from ringfence.values.network import NetworkDoor, NetworkGrant, NetworkRule, SecretGrant
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict
from tests.support.egress import http_server, in_loop, local_listeners


class Recorder:
    """Whoever runs the proxy."""

    def __init__(self) -> None:
        self.events: list[NetworkEvent] = []
        self.questions: list[NetworkQuestion] = []
        self.granted = False

    def began(self, event: NetworkEvent) -> None: ...

    def ended(self) -> None: ...

    def happened(self, event: NetworkEvent) -> None:
        self.events.append(event)

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer:
        self.questions.append(question)
        return NetworkAnswer(self.granted, "test")

    async def secret(self, box: str, secret: SecretGrant) -> SecretValue:
        raise OSError("there is none")


@asynccontextmanager
async def service() -> AsyncIterator[tuple[EgressService, Recorder]]:
    recorder = Recorder()
    made = EgressService(recorder)
    try:
        yield made, recorder
    finally:
        await made.close()


@asynccontextmanager
async def a_server() -> AsyncIterator[int]:
    made = await asyncio.start_server(http_server, "127.0.0.1", 0)
    try:
        yield made.sockets[0].getsockname()[1]
    finally:
        made.close()


async def said(address: tuple[str, int] | socket.socket, *words: bytes, seconds: float = 10) -> bytes:
    """What is answered to these bytes."""
    if isinstance(address, socket.socket):
        reader, writer = await asyncio.open_connection(sock=address)
    else:
        reader, writer = await asyncio.open_connection(*address)
    got = b""
    try:
        async with asyncio.timeout(seconds):
            for word in words:
                writer.write(word)
                got += await reader.read(65536)
    except OSError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return got


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


def pid_of(made: EgressService) -> int:
    assert made._running is not None
    return made._running.process.pid


def reached(port: int) -> bytes:
    return f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


GET = b"GET /x HTTP/1.1\r\nHost: here\r\n\r\n"


@in_loop
async def test_a_port_of_the_host_is_reached_and_no_other() -> None:
    async with a_server() as port, a_server() as other, service() as (made, recorder):
        listeners = local_listeners(80)
        at = listeners.proxy.getsockname()
        attachment = await made.attach("box", NetworkGrant(reach=(port,)), listeners)
        assert b"GET here /x" in await said(at, reached(port), GET)
        assert b" 403 " in await said(at, reached(other))
        await until(lambda: len(recorder.events) == 2)
        await attachment.close()
        with pytest.raises(OSError):
            await asyncio.open_connection(*at)
    assert {(event.port, event.verdict) for event in recorder.events} == {(port, Verdict.ALLOW), (other, Verdict.DENY)}


@in_loop
async def test_tools_speak_for_a_box_without_listeners() -> None:
    async with a_server() as port, service() as (made, recorder):
        await made.attach("tool", NetworkGrant(reach=(port,)), None)
        assert b"GET here /x" in await said(await made.connect("tool"), reached(port), GET)
        assert await said(await made.connect("nobody"), reached(port)) == b""
        await until(lambda: bool(recorder.events))
    assert [event.door for event in recorder.events] == [NetworkDoor.TOOL]


@in_loop
async def test_a_grant_that_cannot_be_held_is_refused_and_its_listeners_closed() -> None:
    async with service() as (made, _):
        listeners = local_listeners()
        with pytest.raises(InvalidConfig):
            await made.attach("box", NetworkGrant(rules=(NetworkRule(host="*"),)), listeners)
        assert listeners.proxy.fileno() == -1
        await made.attach("box", NetworkGrant(), None)
        with pytest.raises(InitializationFailed):
            await made.attach("box", NetworkGrant(), None)


@in_loop
async def test_a_question_goes_to_the_manager_and_back() -> None:
    async with service() as (made, recorder):
        listeners = local_listeners()
        at = listeners.proxy.getsockname()
        await made.attach("box", NetworkGrant(ask_unlisted=True), listeners)
        assert b" 403 " in await said(at, b"CONNECT nowhere.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        recorder.granted = True
        assert b" 502 " in await said(at, b"CONNECT other.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [question.host for question in recorder.questions] == ["nowhere.invalid", "other.invalid"]
    assert recorder.questions[0].line == "--allow nowhere.invalid:443"


@in_loop
async def test_a_box_whose_proxy_is_killed_has_no_network_and_the_next_one_has() -> None:
    async with a_server() as port, service() as (made, _):
        listeners = local_listeners()
        at = listeners.proxy.getsockname()
        attachment = await made.attach("first", NetworkGrant(reach=(port,)), listeners)
        open_before = await asyncio.open_connection(*at)
        os.kill(pid_of(made), signal.SIGKILL)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(open_before[0].read(), 5) == b""
        open_before[1].close()
        with pytest.raises(OSError):
            await asyncio.open_connection(*at)
        again = local_listeners()
        new = again.proxy.getsockname()
        await made.attach("second", NetworkGrant(reach=(port,)), again)
        assert not attachment.is_served
        await attachment.close()
        assert b"GET here /x" in await said(new, reached(port), GET)


_MANAGER = """
import asyncio, sys
from ringfence.egress.service import EgressService
from ringfence.values.network import NetworkGrant
async def main():
    made = EgressService(None)
    await made.attach("box", NetworkGrant(), None)
    print(made._running.process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_the_proxy_ends_with_the_manager_however_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", _MANAGER], stdout=subprocess.PIPE) as manager:
        assert manager.stdout is not None
        proxy = int(manager.stdout.readline())
        assert Path(f"/proc/{proxy}").exists()
        manager.kill()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _is_alive(proxy):
        time.sleep(0.02)
    assert not _is_alive(proxy)


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@in_loop
async def test_a_hundred_boxes_fit_into_sixty_megabytes() -> None:
    async with a_server() as port, service() as (made, _):
        for number in range(100):
            listeners = local_listeners(22, 80, 443)
            at = listeners.proxy.getsockname()
            await made.attach(f"box-{number}", NetworkGrant(reach=(port,)), listeners)
            await said(at, reached(port), GET)
        status = Path(f"/proc/{pid_of(made)}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        print(f"{resident / 1e6:.1f} MB resident")
        assert resident < 60e6


@in_loop
async def test_noise_of_one_box_is_counted_and_does_not_keep_the_others_waiting() -> None:
    async with a_server() as port, service() as (made, recorder):
        loud, quiet = local_listeners(), local_listeners()
        loud_at, quiet_at = loud.dns_udp.getsockname(), quiet.proxy.getsockname()
        await made.attach("loud", NetworkGrant(), loud)
        await made.attach("quiet", NetworkGrant(reach=(port,)), quiet)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as shouting:
            for number in range(6000):  # while the manager does not listen
                name = f"n{number}".encode()
                query = b"\0\1\1\0\0\1\0\0\0\0\0\0" + bytes((len(name),)) + name + b"\4evil\0\0\1\0\1"
                shouting.sendto(query, loud_at)
        time.sleep(1)  # the loop stands still: the proxy has to drop, not to wait
        began = time.monotonic()
        assert b"GET here /x" in await said(quiet_at, reached(port), GET)
        assert time.monotonic() - began < 3
        await asyncio.sleep(0.5)
        loud_events = [event for event in recorder.events if event.box == "loud"]
        assert any(event.box == "quiet" for event in recorder.events)
        assert 0 < len(loud_events) <= 6000


# --- its own wall -----------------------------------------------------------------------------------------------------

_ATTEMPTS = """
import ctypes, json, os, socket, subprocess, sys, threading
from ringfence.egress import confine
if sys.argv[1] == "confined":
    confine.confine()
libc = ctypes.CDLL(None, use_errno=True)
def tried(act):
    try:
        return "done" if act() is not False else "refused"
    except Exception as fault:
        return "refused"
def call(name, *args):
    return getattr(libc, name)(*args) >= 0
def child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def thread():
    made = threading.Thread(target=lambda: None); made.start(); made.join()
print(json.dumps({
    "fork": tried(child),
    "exec": tried(lambda: os.posix_spawn("/bin/true", ["true"], {})),
    "read a file": tried(lambda: open(sys.argv[2]).read()),
    "write a file": tried(lambda: open(sys.argv[3], "w").write("x")),
    "raw packets": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    "a namespace": tried(lambda: call("unshare", 0x10000000)),
    "signal another": tried(lambda: os.kill(os.getppid(), 0)),
    "a thread": tried(thread),
    "a connection": tried(lambda: socket.create_server(("127.0.0.1", 0)).close()),
    "a look-up": tried(lambda: socket.getaddrinfo("localhost", 80)),
    "be traced": tried(lambda: call("ptrace", 0, 0, 0, 0)),
}))
"""
_NEEDED = {"a thread", "a connection", "a look-up"}


def _attempts(how: str, directory: Path) -> dict[str, str]:
    directory.chmod(0o777)
    (directory / "file").write_text("secret")
    argv = (sys.executable, "-c", _ATTEMPTS, how, directory / "file", directory / f"new-{how}")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return dict(json.loads(done.stdout))


def test_what_the_proxy_does_not_need_is_refused_to_it(tmp_path: Path) -> None:
    confined = _attempts("confined", tmp_path)
    assert {name for name, what in confined.items() if what == "done"} == _NEEDED


def test_the_same_attempts_succeed_without_the_wall(tmp_path: Path) -> None:
    free = _attempts("free", tmp_path)
    ours = {"fork", "exec", "read a file", "write a file", "signal another", "be traced"} | _NEEDED
    assert {name for name, what in free.items() if what == "done"} >= ours


@in_loop
async def test_the_process_is_behind_its_wall_and_knows_nothing_of_our_environment() -> None:
    os.environ["EGRESS_TEST_CANARY"] = "not-for-the-proxy"
    try:
        async with service() as (made, _):
            await made.authority()
            pid = pid_of(made)
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
            )
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
            assert int(status["CapEff"], 16) == 0
            if os.geteuid() == 0:
                assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
                assert b"CANARY" not in Path(f"/proc/{pid}/environ").read_bytes()
            else:
                with pytest.raises(PermissionError):  # not dumpable: not even its own user looks into it
                    Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        del os.environ["EGRESS_TEST_CANARY"]


_WITHOUT = """
import sys
from ringfence.egress import confine, process
if sys.argv[2] == "without":
    confine._landlock = lambda libc: False
sys.argv = ["process", sys.argv[1]]
process.main()
"""


def _started(how: str) -> bytes:
    """What the proxy says first, on a kernel that has Landlock or on one that has not."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = (sys.executable, "-I", "-c", _WITHOUT, str(theirs.fileno()), how)
    with ours, subprocess.Popen(argv, pass_fds=(theirs.fileno(),), stderr=subprocess.DEVNULL) as process:
        theirs.close()
        ours.settimeout(30)
        said = ours.recv(65536)
        ours.close()
        process.wait(30)
    return said


def test_a_proxy_without_a_part_of_its_wall_serves_nobody() -> None:
    assert b'"ready"' in _started("with")
    assert b'"ready"' not in (refused := _started("without")) and b"Landlock" in refused


@in_loop
async def test_why_the_proxy_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service() as (made, _):
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(InitializationFailed, match="does not start"):
            await made.authority()
        monkeypatch.undo()
        assert await made.authority()
