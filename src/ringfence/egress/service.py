"""The manager's side of the proxy: starts its process on first use, hands it boxes, hears what happens there.

If the process dies, the boxes that were attached have no network any longer, because it had the only copies of their
listeners; the next one that is attached gets a new process. The process ends with the manager: its end of the socket
is closed then, however the manager ended.
"""

import asyncio
import base64
import contextlib
import itertools
import logging
import os
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any, Final

from ringfence.dataclass import dataclass, field
from ringfence.egress.base import Listeners, NetworkQuestion, Overseer
from ringfence.egress.plain import from_plain, to_plain
from ringfence.egress.wire import HOST_KEYS, WITH_SSH, Message, Wire, fits
from ringfence.errors import InitializationFailed
from ringfence.policy.reach import check_network
from ringfence.values.network import NetworkDoor, NetworkGrant, SecretGrant
from ringfence.values.network_event import NetworkEvent
from ringfence.values.parent_proxy import ParentProxies
from ringfence.values.verdict import Verdict

_START_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 15.0
_END_SECONDS: Final = 3.0
_MARK_SECONDS: Final = 2.0  # the caller has its result no later than that, whatever the proxy is busy with
_FIRST_LISTENERS: Final = 3  # of the proxy's port and of names
_PASSED_ON: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # whom this machine trusts, if somebody says so
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Attachment:
    """A box that the proxy serves."""

    box: str
    _running: "_Running"

    @property
    def is_served(self) -> bool:
        """False once the process that had its listeners is gone: the box has no network then."""
        return not self._running.wire.is_closed

    async def settle(self) -> bool:
        """Wait until all is told that the proxy has decided until now; False if that took too long. Never raises."""
        try:
            await self._running.call({"kind": "mark", "box": self.box}, seconds=_MARK_SECONDS)
        except InitializationFailed:
            return not self.is_served  # then nobody will tell any more
        return True

    async def close(self) -> None:
        """End its connections, and take no more. Never raises."""
        with contextlib.suppress(InitializationFailed):
            await self._running.call({"kind": "detach", "box": self.box})

    def abandon(self) -> None:
        """The same without waiting, for whoever cannot wait any longer."""
        self._running.wire.send({"kind": "detach", "box": self.box, "number": 0})


class EgressService:
    """The proxy of one manager.

    Args:
        parents: the proxies of the person's own network, through which it goes out.
    """

    def __init__(self, overseer: Overseer, parents: ParentProxies | None = None) -> None:
        self._overseer = overseer
        self._parents = parents or ParentProxies()
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self.dropped = 0
        """Events that were too many to be told."""

    async def authority(self) -> bytes:
        """The certificate, in PEM, of who signs for hosts that are looked into."""
        return (await self._started()).authority

    @property
    def pid(self) -> int:
        """Of its process; 0 if there is none."""
        return 0 if self._running is None else self._running.process.pid

    async def known_hosts(self) -> str:
        """The line by which clients of SSH in a box know the proxy."""
        return (await self._started(ends_ssh=True)).known_hosts

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners | None) -> Attachment:
        """Serve a box from now on; its listeners are closed here, whatever comes of it.

        Args:
            listeners: None for a box that only our own tools speak for.

        Raises:
            InvalidConfig: a rule cannot be held.
            InitializationFailed: the proxy cannot be started, or does not take the box.
        """
        descriptors: list[int] = []
        ports = sorted(listeners.tcp) if listeners is not None else []
        message = {
            "kind": "attach",
            "box": box,
            "network": to_plain(network),
            "ports": ports,
            "loopback": listeners is not None and listeners.is_loopback,
            "carried": listeners is not None and listeners.is_carried,
        }
        try:
            check_network(network)
            if not fits(message, len(ports) + _FIRST_LISTENERS):
                raise InitializationFailed(
                    "the grant of the network has too many rules or ports",
                    hint="join rules by wildcards; name fewer ports",
                )
            running = await self._started(ends_ssh=network.ends_ssh)
            if listeners is not None:
                first = (listeners.proxy, listeners.dns_udp, listeners.dns_tcp)
                descriptors = [os.dup(each.fileno()) for each in (*first, *(listeners.tcp[port] for port in ports))]
        finally:
            if listeners is not None:
                listeners.close()
        await running.call(message, tuple(descriptors))
        return Attachment(box, running)

    async def connect(self, box: str) -> socket.socket:
        """One end of a connection that the proxy serves as one of this box's to its proxy port; not blocking.

        Raises:
            InitializationFailed: there is no proxy any longer, and so no such box.
        """
        if self._running is None or self._running.wire.is_closed:
            raise InitializationFailed(f"the proxy that served {box} is gone", hint="open the box again")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._running.wire.send({"kind": "connect", "box": box}, (theirs.detach(),))
        return ours

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    async def _started(self, *, ends_ssh: bool = False) -> "_Running":
        async with self._starting:
            if self._running is not None and not self._running.wire.is_closed:
                return self._running
            if self._running is not None:
                _log.warning("the proxy of the network ended; it is started again for new boxes")
                await self._running.end()
            self._running = await self._start((WITH_SSH,) if ends_ssh else ())
            return self._running

    async def _start(self, more: tuple[str, ...]) -> "_Running":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        # LOCALDOMAIN: no search list makes another name of one that is looked up.
        environment |= {"LANG": "C.UTF-8", "LOCALDOMAIN": "", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"HOME": "/nonexistent", "LOGNAME": "ringfence"}  # asyncssh asks for both, and finds nothing
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-m", "ringfence.egress.process", str(theirs.fileno()), *more),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=environment,
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                )
            except OSError as fault:
                ours.close()
                raise InitializationFailed(f"the proxy cannot be started: {fault.strerror}") from fault
        running = _Running(ours, process, self)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await running.ready
        except (TimeoutError, InitializationFailed) as fault:
            await running.end()
            why = f": {fault}" if str(fault) else " in time"
            raise InitializationFailed(
                f"the proxy of the network does not start{why}", hint="run `ringfence doctor`"
            ) from fault
        running.wire.send({"kind": "parents", "parents": to_plain(self._parents)})  # before any box
        return running

    # --- what the process says ----------------------------------------------------------------------------------------

    async def answer_question(self, message: Message) -> Message:
        answer = await self._overseer.ask(from_plain(NetworkQuestion, message["question"]))
        return to_plain(answer)  # type: ignore[no-any-return]  # an object, because it is a dataclass

    async def answer_secret(self, message: Message) -> Message:
        found = await self._overseer.secret(str(message["box"]), from_plain(SecretGrant, message["secret"]))
        return {"value": base64.b64encode(found.value).decode(), "good_until": found.good_until}

    async def answer_ssh_login(self, message: Message) -> Message:
        found = await self._overseer.ssh_login(str(message["box"]), str(message["host"]), int(message["port"]))
        known = {name: [_as_text(each) for each in getattr(found, name)] for name in HOST_KEYS}
        return {**known, "keys": [[key.secret, _as_text(key.public)] for key in found.keys]}

    async def answer_ssh_sign(self, message: Message) -> Message:
        public, data = base64.b64decode(message["public"]), base64.b64decode(message["data"])
        box, host, secret = (str(message[name]) for name in ("box", "host", "secret"))
        made = await self._overseer.ssh_sign(box, host, secret, public, data, int(message["flags"]))
        return {"signature": _as_text(made)}

    def lost(self, box: str, count: int) -> None:
        """Events were too many to be told one by one; that is recorded, with how many."""
        self.dropped += count
        _log.warning("%d events of %s were too many to be told", count, box)
        if box:
            self._overseer.happened(
                NetworkEvent(
                    box=box,
                    door=NetworkDoor.TRANSPARENT,
                    host="",
                    port=0,
                    verdict=Verdict.DENY,
                    reason=f"{count} more requests of the box came too fast to be recorded one by one",
                    rule="too many",
                    started_at=time.time(),
                )
            )

    def began(self, message: Message) -> None:
        self._overseer.began(from_plain(NetworkEvent, message["event"]))

    def ended(self) -> None:
        """The process is gone, with all that it carried."""
        self._overseer.ended()

    def happened(self, message: Message) -> None:
        self._overseer.happened(from_plain(NetworkEvent, message["event"]))


def _as_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@dataclass(slots=True)
class _Running:
    """One life of the process."""

    connection: socket.socket
    process: asyncio.subprocess.Process
    service: EgressService
    authority: bytes = b""
    known_hosts: str = ""
    wire: Wire = field(init=False)
    ready: asyncio.Future[None] = field(init=False)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ready = asyncio.get_running_loop().create_future()
        self.wire = Wire(self.connection, self._received, self._closed)

    async def call(
        self, message: Message, descriptors: tuple[int, ...] = (), *, seconds: float = _ANSWER_SECONDS
    ) -> None:
        """Give an order, and wait until it is carried out.

        Raises:
            InitializationFailed: it is not.
        """
        number = next(self._numbers)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self.wire.send({**message, "number": number}, descriptors)
        if self.wire.is_closed:
            self._waiting.pop(number, None)
            raise InitializationFailed("the proxy of the network has ended", hint="open the box again")
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            raise InitializationFailed("the proxy of the network does not answer") from None
        finally:
            self._waiting.pop(number, None)

    async def end(self) -> None:
        """Close the socket, by which it ends; if it does not, end it."""
        self.wire.close()
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def _closed(self) -> None:
        gone = InitializationFailed("the proxy of the network has ended", hint="open the box again")
        for waiting in (self.ready, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(gone)
        self.ready.exception() if self.ready.done() and not self.ready.cancelled() else None
        self.service.ended()

    def _received(self, message: Message, descriptors: list[int]) -> None:
        for each in descriptors:
            os.close(each)  # it has nothing to give us
        match message["kind"]:
            case "ready":
                self.authority = str(message["authority"]).encode()
                self.known_hosts = str(message["known_hosts"])
                if not self.ready.done():
                    self.ready.set_result(None)
            case "unable":
                if not self.ready.done():
                    self.ready.set_exception(InitializationFailed(str(message["reason"])))
            case "answer":
                self._answered(message)
            case "began":
                self.service.began(message)
                if message["number"]:
                    self.wire.send({"kind": "answer", "number": message["number"]})
            case "event":
                self.service.happened(message)
            case "ask":
                self._start(int(message["number"]), self.service.answer_question(message))
            case "secret":
                self._start(int(message["number"]), self.service.answer_secret(message))
            case "ssh login":
                self._start(int(message["number"]), self.service.answer_ssh_login(message))
            case "ssh sign":
                self._start(int(message["number"]), self.service.answer_ssh_sign(message))
            case "dropped":
                self.service.lost(str(message["box"]), int(message["count"]))
            case "fault":
                _log.error("in the proxy: %s", message["text"])
            case other:
                raise ValueError(f"a message of a kind that is not known: {other}")

    def _answered(self, message: Message) -> None:
        waiting = self._waiting.pop(int(message["number"]), None)
        if waiting is None or waiting.done():
            return
        if "fault" in message:
            waiting.set_exception(InitializationFailed(str(message["fault"])))
        else:
            waiting.set_result(None)

    def _start(self, number: int, work: Coroutine[Any, Any, Message]) -> None:
        task = asyncio.ensure_future(self._reply(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, number: int, work: Coroutine[Any, Any, Message]) -> None:
        try:
            told = await work
        except asyncio.CancelledError:
            raise
        except Exception as fault:  # the edge to another process: whatever it was, the request that waits is refused
            told = {"granted": False, "by": "a fault", "fault": str(fault) or type(fault).__name__}
        self.wire.send({"kind": "answer", "number": number, **told})
