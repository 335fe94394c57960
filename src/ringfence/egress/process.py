"""The proxy as a process of its own: `python -m ringfence.egress.process FD`, started by `egress.service`.

Everything is loaded first, then the wall is put up (`confine.py`), then the manager is told that it may hand over
boxes. It ends when the manager's end of the socket does.
"""

import asyncio
import base64
import contextlib
import ctypes.util
import importlib
import itertools
import logging
import os
import socket
import ssl
import sys
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.egress.addresses import OwnAddresses
from ringfence.egress.base import Listeners, NetworkAnswer, NetworkQuestion, SecretDesk, SecretValue
from ringfence.egress.confine import NotConfined, confine, hide
from ringfence.egress.dialing import SystemDialer
from ringfence.egress.flow import Outside
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.inspection.inspector import HttpInspector
from ringfence.egress.plain import from_plain, to_plain
from ringfence.egress.proxy import Proxy
from ringfence.egress.resolve import SystemResolver
from ringfence.egress.secrets.desk import Desk
from ringfence.egress.ssh.base import SshKey, SshLogin, SshSide
from ringfence.egress.wire import HOST_KEYS, WITH_SSH, Message, Wire, encoded_last, lane_of
from ringfence.errors import InitializationFailed, RingfenceError
from ringfence.values.network import NetworkGrant, SecretGrant, SecretPlace
from ringfence.values.network_event import NetworkEvent
from ringfence.values.parent_proxy import ParentProxies
from ringfence.values.verdict import Verdict

_PLACES = ("proxy", "dns_udp", "dns_tcp")


class Session:
    """The manager's orders, and what it is told."""

    def __init__(self, connection: socket.socket, authority: Authority) -> None:
        self._ended = asyncio.get_running_loop().create_future()
        self._wire = Wire(connection, self._received, self._closed)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._desks: dict[str, SecretDesk] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        ssh = SshSide(self._ssh_login, self._ssh_sign, Ed25519PrivateKey.generate())
        self._parents = ParentProxies()
        outside = Outside(
            resolver=SystemResolver(),
            dialer=SystemDialer(),
            own=OwnAddresses(),
            inspector=HttpInspector(authority, self._desks.__getitem__),
            client_tls=_client_tls,
            began=self._began,
            happened=self._happened,
            ask=self._ask,
            parents=lambda: self._parents,
            canary=lambda box, raw: self._desks[box].canary(raw),
            ssh=ssh,
        )
        self._proxy = Proxy(outside)
        logging.getLogger().addHandler(_Told(self._wire))
        pem = authority.certificate_pem.decode()
        self._wire.send({"kind": "ready", "authority": pem, "known_hosts": ssh.known_hosts})

    async def wait_ended(self) -> None:
        await self._ended

    def _closed(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _received(self, message: Message, descriptors: list[int]) -> None:
        sockets = [socket.socket(fileno=each) for each in descriptors]
        match message["kind"]:
            case "parents":
                self._parents = from_plain(ParentProxies, message["parents"])
            case "attach":
                self._attach(message, sockets)
            case "detach":
                self._desks.pop(message["box"], None)
                self._start(self._detach(message["box"], int(message["number"])))
            case "mark":
                self._start(self._mark(message["box"], int(message["number"])))
            case "connect":
                self._proxy.connect(message["box"], sockets[0])
            case "answer":
                waiting = self._waiting.pop(int(message["number"]), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case other:
                raise ValueError(f"a message of a kind that is not known: {other}")

    def _attach(self, message: Message, sockets: list[socket.socket]) -> None:
        box, number = str(message["box"]), int(message["number"])
        try:
            network = from_plain(NetworkGrant, message["network"])
            if network.ends_ssh:
                load_ssh()
            for_requests = tuple(each for each in network.secrets if SecretPlace.SSH not in each.places)
            desk = Desk(for_requests, lambda secret: self._secret(box, secret))  # before anything is served
            self._proxy.attach(box, network, _listeners(message, sockets))
            self._desks[box] = desk
        except (RingfenceError, ValueError, OSError) as fault:
            for each in sockets:
                each.close()
            self._wire.send({"kind": "answer", "number": number, "fault": str(fault)})
        else:
            self._wire.send({"kind": "answer", "number": number})

    async def _detach(self, box: str, number: int) -> None:
        await self._proxy.detach(box)
        self._wire.tell_behind(box, {"kind": "answer", "number": number})  # what ended with it is told first

    async def _mark(self, box: str, number: int) -> None:
        """Answer behind all that was decided of a box until now."""
        await self._proxy.settle(box)
        self._wire.tell_behind(box, {"kind": "answer", "number": number})

    def _began(self, event: NetworkEvent, is_first: bool) -> asyncio.Future[Any] | None:
        message = {"kind": "began", "event": to_plain(event)}
        number, waiting = self._awaited() if is_first else (0, None)
        self._wire.tell(lane_of(event.box, "carried"), {**message, "number": number})
        return waiting

    def _happened(self, event: NetworkEvent) -> None:
        # Apart, so that much noise of one kind does not drown what matters more; but an end never before its beginning.
        is_carried = event.number or event.verdict is not Verdict.DENY
        kind = "alarm" if event.canary else "carried" if is_carried else "refused"
        self._wire.tell(lane_of(event.box, kind), {"kind": "event", "event": to_plain(event)})

    async def _ask(self, question: NetworkQuestion) -> NetworkAnswer:
        told = await self._call({"kind": "ask", "question": to_plain(question)})
        return NetworkAnswer(bool(told.get("granted")), str(told.get("by", "")), bool(told.get("remembered")))

    async def _secret(self, box: str, secret: SecretGrant) -> SecretValue:
        told = await self._call({"kind": "secret", "box": box, "secret": to_plain(secret)})
        if "fault" in told:
            raise OSError(str(told["fault"]))
        return SecretValue(base64.b64decode(told["value"]), float(told["good_until"]))

    async def _ssh_login(self, box: str, host: str, port: int) -> SshLogin:
        told = await self._call({"kind": "ssh login", "box": box, "host": host, "port": port})
        if "fault" in told:
            raise OSError(str(told["fault"]))
        keys = tuple(SshKey(str(name), base64.b64decode(public)) for name, public in told["keys"])
        trusted, authorities, revoked = (tuple(map(base64.b64decode, told[name])) for name in HOST_KEYS)
        return SshLogin(trusted, authorities, revoked, keys)

    async def _ssh_sign(self, box: str, host: str, secret: str, public: bytes, data: bytes, flags: int) -> bytes:
        order: Message = {"kind": "ssh sign", "box": box, "host": host, "secret": secret, "flags": flags}
        texts = {"public": base64.b64encode(public).decode(), "data": base64.b64encode(data).decode()}
        told = await self._call({**order, **texts})
        if "fault" in told:
            raise OSError(str(told["fault"]))
        return base64.b64decode(told["signature"])

    async def _call(self, message: Message) -> Message:
        number, waiting = self._awaited()
        try:
            self._wire.send({**message, "number": number})
            return await waiting
        finally:
            self._waiting.pop(number, None)

    def _awaited(self) -> tuple[int, asyncio.Future[Message]]:
        """A number, and the answer that comes for it; forgotten when it is there, or nobody waits for it any longer."""
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number, waiting

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Told(logging.Handler):
    """What went wrong in here is told to the manager, which has a log."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(logging.WARNING)
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(ValueError, TypeError):
            self._wire.tell("", {"kind": "fault", "text": self.format(record)[-4000:]})


def _listeners(message: Message, sockets: list[socket.socket]) -> Listeners | None:
    if not sockets:
        return None
    ports = message["ports"]
    if len(sockets) != len(_PLACES) + len(ports):
        raise ValueError("listeners are missing")
    proxy, dns_udp, dns_tcp, *captured = sockets
    return Listeners(
        proxy=proxy,
        dns_udp=dns_udp,
        dns_tcp=dns_tcp,
        tcp=dict(zip(map(int, ports), captured, strict=True)),
        is_loopback=bool(message["loopback"]),
        is_carried=bool(message["carried"]),
    )


_roots = ""


@lru_cache(maxsize=8)
def _client_tls(alpn: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_roots or None)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _system_roots() -> str:
    """The certificates that this machine trusts, read while that can be done."""
    context = ssl.create_default_context()
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True))


def _load_late_parts() -> None:
    """What the libraries would load on first use, when nothing can be loaded any longer."""
    "b\u00fccher.example".encode("idna")
    with contextlib.suppress(OSError):
        socket.getaddrinfo("localhost", 80)
    asyncio.get_event_loop_policy()
    # Libraries that look for others run programs for it, which cannot be done any longer.
    ctypes.util.find_library = lambda name: None


def load_ssh() -> None:
    """What ends SSH: before the wall is up if the first box needs it, else now.

    Raises:
        InitializationFailed: it cannot be loaded.
    """
    try:
        importlib.import_module("ringfence.egress.ssh.door")
    except (ImportError, OSError) as fault:
        raise InitializationFailed(
            f"the proxy, which runs without SSH, cannot load it any longer: {fault}", hint="open this box first"
        ) from fault


async def _serve(connection: socket.socket, authority: Authority) -> None:
    session = Session(connection, authority)
    await session.wait_ended()


def main() -> None:
    global _roots
    connection = socket.socket(fileno=int(sys.argv[1]))
    hide()
    _roots = _system_roots()
    authority = Authority.make()
    _load_late_parts()
    _client_tls(())
    if sys.argv[2:] == [WITH_SSH]:
        load_ssh()
    try:
        confine()
    except NotConfined as fault:
        connection.send(encoded_last({"kind": "unable", "reason": str(fault)}))
        os._exit(1)
    try:
        asyncio.run(_serve(connection, authority))
    finally:
        os._exit(0)  # a look-up that hangs in a thread would keep us


if __name__ == "__main__":
    main()
