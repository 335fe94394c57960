"""The listeners of one box, and the connections that come to them, counted and ended with it."""

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ringfence.egress.arriving import LONGEST_QUERY, Arrived, arrivals, is_gone
from ringfence.egress.base import Listeners, Refusal
from ringfence.egress.dns import NameService
from ringfence.egress.doors import HEADER_SECONDS, transparent
from ringfence.egress.flow import Box
from ringfence.egress.proxy_port import proxy_port
from ringfence.egress.sockets import Client, Gone, close, http_refusal
from ringfence.policy.reach import Judged
from ringfence.values.network import NetworkDoor
from ringfence.values.verdict import Verdict

_AT_ONCE: Final = 16  # connections taken, or look-ups answered, before others have their turn
_TURNS: Final = 4  # of the loop, from taking a connection to judging what it has said already
_WAITING: Final = 1024  # connections, at most, that are taken because somebody wants to know what they ask for
_RETRY_SECONDS: Final = 0.5
_COMPLAINT_SECONDS: Final = 5.0
_DNS_IDLE_SECONDS: Final = 10.0

Serve = Callable[[Client], Awaitable[None]]
_log = logging.getLogger(__name__)


class Capacity:
    """Connections of all boxes together: descriptors are finite, and no box may take those of the others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self.boxes = 0

    def take(self, of_this_box: int) -> bool:
        """Whether a box that has so many may have one more: freely while there is room, its share of it then."""
        share = max(8, self._most // max(1, self.boxes))
        if self._open >= self._most or (self._open >= self._most * 3 // 4 and of_this_box >= share):
            return False
        self._open += 1
        return True

    def give(self) -> None:
        self._open -= 1


class AttachedBox:
    """Serves one box until it is closed."""

    def __init__(self, box: Box, capacity: Capacity, listeners: Listeners | None) -> None:
        self.box = box
        self._capacity = capacity
        self._listeners = listeners
        self._arrivals = arrivals(is_carried=listeners is not None and listeners.is_carried)
        self._names = NameService(box)
        self._served: dict[socket.socket, tuple[Serve, bool]] = {}
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._complained = float("-inf")
        self._closed = False

    def start(self) -> None:
        self._capacity.boxes += 1
        if self._listeners is None:
            return
        for each in self._listeners:
            each.setblocking(False)
        self._listen(self._listeners.proxy, partial(proxy_port, self.box), is_http=True)
        self._listen(self._listeners.dns_tcp, self._dns_over_tcp)
        for listener in self._listeners.tcp.values():
            self._listen(listener, partial(transparent, self.box))
        self._loop.add_reader(self._listeners.dns_udp, self._dns_over_udp, self._listeners.dns_udp)

    async def close(self) -> None:
        self._closed = True
        self._capacity.boxes -= 1
        if self._listeners is not None:
            for each in self._listeners:
                self._loop.remove_reader(each)
            self._listeners.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        self.box.close()

    async def settle(self) -> None:
        """Take what waits at the listeners, and judge what it has said. Who made it may be gone already."""
        if self._listeners is not None and not self._closed:
            for _ in range(_WAITING // _AT_ONCE):
                if not self._take_waiting():
                    break
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def serve_tool(self, connection: socket.socket) -> None:
        """Treat it as a connection to the proxy port, made by our own tools."""
        self._take(Arrived(connection), partial(proxy_port, self.box, door=NetworkDoor.TOOL), is_http=True)

    def _listen(self, listener: socket.socket, serve: Serve, *, is_http: bool = False) -> None:
        self._served[listener] = serve, is_http
        self._loop.add_reader(listener, self._accept, listener, serve, is_http)

    def _take_waiting(self) -> bool:
        """Take some of what waits; whether there may be more."""
        assert self._listeners is not None
        more = self._dns_over_udp(self._listeners.dns_udp)
        for listener, (serve, is_http) in self._served.items():
            more |= self._accept(listener, serve, is_http)
        return more

    def _accept(self, listener: socket.socket, serve: Serve, is_http: bool) -> bool:
        """Take connections that wait; whether there may be more."""
        for _ in range(_AT_ONCE):
            try:
                arrived = self._arrivals.accept(listener)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return False
            except OSError as fault:
                if fault.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._loop.remove_reader(listener)
                    self._loop.call_later(_RETRY_SECONDS, self._again, listener, serve, is_http)
                    self._complain("there is no descriptor left for a connection")
                elif is_gone(fault):
                    self._loop.remove_reader(listener)
                return False
            self._take(arrived, serve, is_http=is_http)
        return True

    def _again(self, listener: socket.socket, serve: Serve, is_http: bool) -> None:
        if not self._closed:
            self._loop.add_reader(listener, self._accept, listener, serve, is_http)

    def _take(self, arrived: Arrived, serve: Serve, *, is_http: bool) -> None:
        meter, most = self.box.meter, self.box.meter.most_connections
        if self._closed or not meter.open_box():
            return self._turn_away(arrived.connection, f"{most} connections are open already", is_http)
        if not self._capacity.take(meter.connections - 1):
            meter.close_box()
            return self._turn_away(arrived.connection, "the proxy has no room for more connections", is_http)
        task = self._loop.create_task(self._serve(arrived, serve))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, arrived: Arrived, serve: Serve) -> None:
        connection = arrived.connection
        try:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await serve(Client(connection, self._loop, arrived.asked))
        except OSError:
            pass  # the client's end of it; what mattered is recorded
        except Exception:  # the outermost edge of one connection: it ends, the others go on
            _log.exception("a connection of %s ended by a fault of ours", self.box.name)
        finally:
            close(connection)
            self._capacity.give()
            self.box.meter.close_box()

    def _turn_away(self, connection: socket.socket, why: str, is_http: bool) -> None:
        with contextlib.suppress(OSError):
            if is_http:
                connection.send(http_refusal(Refusal(429, f"Ringfence: {why}")))
        close(connection)
        self._complain(why)

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now - self._complained > _COMPLAINT_SECONDS:
            self._complained = now
            self.box.refuse(NetworkDoor.TRANSPARENT, "", 0, Judged(verdict=Verdict.DENY, reason=why), status=429)

    def _dns_over_udp(self, listener: socket.socket) -> bool:
        """Answer look-ups that wait; whether there may be more."""
        for _ in range(_AT_ONCE):
            try:
                query, answer = self._arrivals.look_up(listener)
            except OSError as fault:
                if is_gone(fault):
                    self._loop.remove_reader(listener)
                return False
            reply = self._names.answer(query)
            if reply is not None:
                with contextlib.suppress(OSError):  # it is lost, as packets of UDP may be
                    answer(reply)
        return True

    async def _dns_over_tcp(self, client: Client) -> None:
        deadline = self._loop.time() + HEADER_SECONDS
        with contextlib.suppress(Gone):
            while True:
                length = int.from_bytes(await client.exactly(2, deadline), "big")
                if length > LONGEST_QUERY:
                    return
                reply = self._names.answer(await client.exactly(length, deadline))
                if reply is None:
                    return
                await client.send(len(reply).to_bytes(2, "big") + reply)
                deadline = self._loop.time() + _DNS_IDLE_SECONDS
