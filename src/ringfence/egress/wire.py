"""Messages between the manager and the proxy: JSON over a socket that keeps their borders, with descriptors beside.

A message that is longer than a packet comes in several; its descriptors come with the last. Sending never blocks: what
the other side does not take yet waits here, up to a bound, and is sent in turns, one lane (a box) after the other, so
that a box that makes much noise costs the others nothing. What does not fit into its lane is dropped and counted,
where it may be (events); everything else is small and few. Whoever has to know that all of a box's events so far were
sent has a message sent behind them (`tell_behind`).
"""

import array
import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

PACKET: Final = 60 * 1024
LONGEST: Final = 8 * 1024 * 1024
MOST_DESCRIPTORS: Final = 200
WITH_SSH: Final = "ssh"
"""What the proxy's process is told if its first box needs it."""
HOST_KEYS: Final = ("host_keys", "authorities", "revoked")
"""Fields of `egress.ssh.base.SshLogin`, as they are told."""
_LANE: Final = 256  # events of one box that wait
_URGENT: Final = 100_000
_OF: Final = "\0"
_LAST: Final = b"."
_MORE: Final = b"+"

Message = dict[str, Any]
Received = Callable[[Message, list[int]], None]


@dataclass(slots=True)
class _Mark:
    """A place in each of a box's lanes; once all are passed, a message is sent."""

    message: Message
    lanes: int


class Wire:
    """One end."""

    def __init__(self, connection: socket.socket, received: Received, closed: Callable[[], None]) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._received = received
        self._closed = closed
        self._parts = bytearray()
        self._sending: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._urgent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._lanes: dict[str, deque[bytes | _Mark]] = {}
        self._dropped: dict[str, int] = {}
        self._is_writing = False
        self.is_closed = False
        self._loop.add_reader(connection, self._read)

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send something that must arrive. The descriptors are the wire's from now on, which closes them."""
        if self.is_closed or len(self._urgent) >= _URGENT:
            _close_all(descriptors)
            return
        self._urgent.append((_encoded(message), descriptors))
        self._write()

    def tell(self, lane: str, message: Message) -> None:
        """Send something that may be dropped if too much of it waits."""
        if self.is_closed:
            return
        waiting = self._lanes.setdefault(lane, deque())
        if len(waiting) >= _LANE:
            self._dropped[lane] = self._dropped.get(lane, 0) + 1
            return
        waiting.append(_encoded(message))
        self._write()

    def tell_behind(self, box: str, message: Message) -> None:
        """Send something that must arrive, after all that was told of a box until now, or that it was dropped."""
        if self.is_closed:
            return
        lanes = [name for name in self._lanes if name.partition(_OF)[0] == box]
        for lane in lanes:
            if lane in self._dropped:
                self._lanes[lane].append(self._how_many_dropped(lane))
        if not lanes:
            return self.send(message)
        mark = _Mark(message, len(lanes))
        for lane in lanes:
            self._lanes[lane].append(mark)
        self._write()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for queue in (self._sending, self._urgent):
            for _, descriptors in queue:
                _close_all(descriptors)
        self._closed()

    # --- out ----------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while not self.is_closed:
            if not self._sending and not self._load():
                break
            packet, descriptors = self._sending[0]
            fds = array.array("i", descriptors)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if descriptors else []
            try:
                self._socket.sendmsg([packet], ancillary)
            except (BlockingIOError, InterruptedError):
                if not self._is_writing:
                    self._is_writing = True
                    self._loop.add_writer(self._socket, self._write)
                return
            except OSError:
                self.close()
                return
            self._sending.popleft()
            _close_all(descriptors)
        if self._is_writing and not self.is_closed:
            self._is_writing = False
            self._loop.remove_writer(self._socket)

    def _load(self) -> bool:
        """Put the next message into packets; False if there is none."""
        data = b""
        descriptors: tuple[int, ...] = ()
        while not data:
            if self._urgent:
                data, descriptors = self._urgent.popleft()
            elif self._lanes:
                data = self._next_of(next(iter(self._lanes)))
            else:
                return False
        pieces = [data[at : at + PACKET] for at in range(0, len(data), PACKET)]
        self._sending.extend((_MORE + piece, ()) for piece in pieces[:-1])
        self._sending.append((_LAST + pieces[-1], descriptors))
        return True

    def _next_of(self, lane: str) -> bytes:
        """The next event of a lane, which goes behind the others; empty if it was a mark."""
        waiting = self._lanes.pop(lane)
        first = waiting.popleft() if waiting else self._how_many_dropped(lane)
        if waiting or lane in self._dropped:
            self._lanes[lane] = waiting
        if isinstance(first, bytes):
            return first
        first.lanes -= 1
        if not first.lanes:
            self._urgent.append((_encoded(first.message), ()))
        return b""

    def _how_many_dropped(self, lane: str) -> bytes:
        return _encoded({"kind": "dropped", "box": lane.partition(_OF)[0], "count": self._dropped.pop(lane)})

    # --- in -----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        for _ in range(64):
            if self.is_closed:
                return
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(
                    PACKET + 1, socket.CMSG_SPACE(MOST_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return self.close()
            descriptors = _descriptors(ancillary)
            if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                _close_all(tuple(descriptors))
                return self.close()
            self._take(data, descriptors)

    def _take(self, data: bytes, descriptors: list[int]) -> None:
        self._parts += data[1:]
        if len(self._parts) > LONGEST:
            _close_all(tuple(descriptors))
            return self.close()
        if data[:1] == _MORE:
            _close_all(tuple(descriptors))
            return
        text, self._parts = bytes(self._parts), bytearray()
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise ValueError("an object was expected")
            self._received(message, descriptors)
        except (ValueError, KeyError, TypeError):
            _close_all(tuple(descriptors))
            self.close()


def fits(message: Message, descriptors: int) -> bool:
    """Whether the other side takes it; what does not fit ends the wire, for everybody."""
    return descriptors <= MOST_DESCRIPTORS and len(_encoded(message)) < LONGEST


def lane_of(box: str, kind: str) -> str:
    """The lane of one kind of events of a box."""
    return f"{box}{_OF}{kind}"


def encoded_last(message: Message) -> bytes:
    """The one packet of a short message, for whoever has no wire yet."""
    return _LAST + _encoded(message)


def _encoded(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _close_all(descriptors: tuple[int, ...]) -> None:
    for each in descriptors:
        with contextlib.suppress(OSError):
            os.close(each)
