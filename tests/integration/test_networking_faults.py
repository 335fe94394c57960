"""What goes wrong around the proxy closes the network of the box that it concerns, and leaves nothing behind."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringfence.audit.journal import Journal
from ringfence.egress.base import NetworkAnswer, NetworkQuestion, SecretValue
from ringfence.egress.service import EgressService
from ringfence.egress.wire import Message, Wire, lane_of
from ringfence.errors import InitializationFailed, InvalidArgument
from ringfence.manager.networking import Networking
from ringfence.manager.secrets import SecretSources
from ringfence.values.network import NetworkGrant, NetworkRule, SecretGrant
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict
from tests.support.egress import EVERYWHERE, World, http_server, in_loop, local_listeners, origin_servers, serving


@contextlib.asynccontextmanager
async def a_server() -> AsyncIterator[int]:
    made = await asyncio.start_server(http_server, "127.0.0.1", 0)
    try:
        yield made.sockets[0].getsockname()[1]
    finally:
        made.close()


async def reached(at: tuple[str, int], port: int) -> bool:
    """Whether the box's network still answers."""
    try:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(100), 10)
        writer.close()
        return answer.startswith(b"HTTP/1.1 200")
    except OSError:
        return False


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_box_whose_requests_cannot_be_written_down_loses_its_network(tmp_path: Path, is_broken: bool) -> None:
    async def main() -> None:
        journal = Journal(tmp_path / "journal")
        journal.prepare()
        networking = Networking(journal, lambda network: SecretSources(()))
        async with a_server() as port:
            listeners = local_listeners()
            at = listeners.proxy.getsockname()
            box = await networking._attach("box", NetworkGrant(reach=(port,)), listeners)
            try:
                assert await reached(at, port)
                if is_broken:
                    (tmp_path / "journal").rename(tmp_path / "elsewhere")
                    (tmp_path / "journal").write_text("a file where a directory was")
                for _ in range(100 if is_broken else 3):
                    if not await reached(at, port):
                        break
                    await asyncio.sleep(0.05)
                assert await reached(at, port) is not is_broken
                assert bool([each for each in box.taken() if "journal" in each.what]) is is_broken
            finally:
                await box.close()
                journal.close()

    asyncio.run(main())


@in_loop
async def test_a_grant_whose_secrets_make_no_sense_leaves_no_listener_and_no_proxy(tmp_path: Path) -> None:
    def sources(network: NetworkGrant) -> SecretSources:
        raise InvalidArgument("no such source", argument="secret")

    networking = Networking(Journal(tmp_path), sources)
    listeners = local_listeners()
    with pytest.raises(InvalidArgument):
        await networking._attach("box", NetworkGrant(), listeners)
    assert all(each.fileno() == -1 for each in listeners)
    assert networking._users == 0


@in_loop
async def test_a_name_that_is_taken_changes_nothing_for_the_box_that_has_it(tmp_path: Path) -> None:
    async with a_server() as port:
        journal = Journal(tmp_path)
        networking = Networking(journal, lambda network: SecretSources(()))
        listeners, others = local_listeners(), local_listeners()
        at = listeners.proxy.getsockname()
        box = await networking._attach("box", NetworkGrant(reach=(port,)), listeners)
        try:
            with pytest.raises(InitializationFailed, match="there is a box box already"):
                await networking._attach("box", NetworkGrant(), others)
            assert all(each.fileno() == -1 for each in others)
            assert await reached(at, port)
            assert networking._boxes["box"] is box
        finally:
            await box.close()
            journal.close()
    assert networking._service is None


@in_loop
async def test_noise_does_not_drown_an_alarm_and_is_counted() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    heard: list[Message] = []
    sender = Wire(ours, lambda message, _: None, lambda: None)
    for number in range(5000):  # the other side does not listen yet
        sender.tell(lane_of("box", "refused"), {"kind": "event", "number": number})
    sender.tell(lane_of("box", "alarm"), {"kind": "alarm"})
    receiver = Wire(theirs, lambda message, _: heard.append(message), lambda: None)
    async with asyncio.timeout(10):
        while not any(each["kind"] == "dropped" for each in heard):
            await asyncio.sleep(0.01)
    sender.close()
    receiver.close()
    events = sum(each["kind"] == "event" for each in heard)
    (dropped,) = (each for each in heard if each["kind"] == "dropped")
    assert (dropped["box"], events + dropped["count"]) == ("box", 5000)
    assert {"kind": "alarm"} in heard


class Recorder:
    def __init__(self) -> None:
        self.events: list[NetworkEvent] = []

    def began(self, event: NetworkEvent) -> None: ...

    def ended(self) -> None: ...

    def happened(self, event: NetworkEvent) -> None:
        self.events.append(event)

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer:
        return NetworkAnswer(False, "nobody")

    async def secret(self, box: str, secret: SecretGrant) -> SecretValue:
        raise OSError("there is none")


def query(name: str) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return b"\0\1\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"


@in_loop
async def test_a_placeholder_in_the_name_of_a_host_is_an_alarm() -> None:
    """Below a wildcard, whoever answers for the name would read it."""
    placeholder = "ghp_Placeholder0000000000000000000000000"
    secret = SecretGrant(name="token", hosts=("api.example",), placeholder=placeholder, variable="TOKEN")
    network = NetworkGrant(rules=(NetworkRule(host="*.evil.example"),), secrets=(secret,))
    recorder = Recorder()
    service = EgressService(recorder)
    listeners = local_listeners()
    at = listeners.dns_udp.getsockname()
    loop = asyncio.get_running_loop()
    try:
        await service.attach("box", network, listeners)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(at)
            answers = []
            hexed = placeholder.encode().hex()
            for name in (f"{hexed[:60]}.{hexed[60:]}.evil.example", "harmless.evil.example"):
                await loop.sock_sendall(client, query(name))
                answers.append((await asyncio.wait_for(loop.sock_recv(client, 4096), 10))[3] & 15)
        assert answers == [3, 0]
        async with asyncio.timeout(10):
            while not recorder.events:
                await asyncio.sleep(0.01)
        assert [event.canary for event in recorder.events] == ["token"]
    finally:
        await service.close()


@pytest.mark.parametrize("kind", ["rules", "ports"])
@in_loop
async def test_a_grant_that_is_too_long_is_refused_and_others_are_served_on(kind: str) -> None:
    service = EgressService(Recorder())
    async with a_server() as port:
        listeners = local_listeners()
        many = local_listeners(*range(1000, 1250)) if kind == "ports" else local_listeners()
        at = listeners.proxy.getsockname()
        rules = tuple(NetworkRule(host=f"n{number}.example") for number in range(40_000)) if kind == "rules" else ()
        try:
            await service.attach("small", NetworkGrant(reach=(port,)), listeners)
            with pytest.raises(InitializationFailed, match="too many rules or ports"):
                await service.attach("large", NetworkGrant(rules=rules), many)
            assert all(each.fileno() == -1 for each in many)
            assert await reached(at, port)
        finally:
            await service.close()


@in_loop
async def test_what_is_told_behind_a_box_comes_after_its_events_and_does_not_wait_for_those_of_others() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    heard: list[Message] = []
    sender = Wire(ours, lambda message, _: None, lambda: None)
    for number in range(2000):  # more than fits while the other side does not listen
        sender.tell(lane_of("loud", "refused"), {"kind": "event", "box": "loud", "number": number})
    for kind in ("refused", "carried"):
        for number in range(200):
            sender.tell(lane_of("box", kind), {"kind": "event", "box": "box", "number": number})
    sender.tell_behind("box", {"kind": "mark"})
    sender.tell(lane_of("box", "refused"), {"kind": "late", "box": "box"})
    sender.tell_behind("loud", {"kind": "loud mark"})
    receiver = Wire(theirs, lambda message, _: heard.append(message), lambda: None)
    async with asyncio.timeout(10):
        while not {"mark", "loud mark", "late"} <= {each["kind"] for each in heard}:
            await asyncio.sleep(0.01)
    sender.tell_behind("nobody", {"kind": "at once"})
    async with asyncio.timeout(10):
        while heard[-1]["kind"] != "at once":
            await asyncio.sleep(0.01)
    sender.close()
    receiver.close()
    kinds = [each["kind"] for each in heard]
    before = heard[: kinds.index("mark")]
    assert sum(each["box"] == "box" for each in before) == 400
    assert kinds.index("late") > kinds.index("mark")
    behind_loud = heard[: kinds.index("loud mark")]
    told = sum(each.get("box") == "loud" and each["kind"] == "event" for each in behind_loud)
    (dropped,) = (each["count"] for each in behind_loud if each["kind"] == "dropped")
    assert told + dropped == 2000


@pytest.mark.parametrize("last", ["10.0.0.7", EVERYWHERE])
@in_loop
async def test_a_name_that_moves_to_a_private_address_between_two_requests_is_refused_and_recorded(last: str) -> None:
    """On one connection that is looked into: the second request dials anew."""
    world = World(names={"web.example": [(EVERYWHERE,), (EVERYWHERE,), (last,)]})
    rule = NetworkRule(host="web.example", methods=("GET",))
    async with origin_servers(world):
        listeners = local_listeners()
        at = listeners.proxy.getsockname()
        async with serving(world, NetworkGrant(rules=(rule,)), listeners):
            reader, writer = await asyncio.open_connection(*at)
            writer.write(b"CONNECT web.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
    refused = [event for event in world.events if event.verdict is Verdict.DENY]
    assert answer.startswith(b"HTTP/1.1 200") is (last == EVERYWHERE)
    assert len(refused) == (last != EVERYWHERE)
    assert all("10.0.0.7" in event.reason for event in refused)
