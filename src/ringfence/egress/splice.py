"""Carries bytes between two sockets, both ways, as fast as Python can: one wake-up, one read, one write.

No streams and no transports: the loop calls a reader when bytes are there, which reads into one buffer that all
connections share and writes at once. Only what the other side does not take yet is kept, and nothing more is read until
it has gone, so that a connection costs no memory while it is idle and at most one buffer while it is not.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from ringfence.dataclass import dataclass

_BUFFER_BYTES: Final = 256 * 1024
_HALF_OPEN_SECONDS: Final = 300.0  # after one side has ended, the other may be silent for so long
_buffer = memoryview(bytearray(_BUFFER_BYTES))


@dataclass(slots=True)
class Carried:
    """How much went which way."""

    sent: int = 0
    received: int = 0
    stopped: bool = False
    """Whether `may_send` ended it."""


class _Way:
    """One direction."""

    __slots__ = ("_count", "_done", "_from", "_loop", "_rest", "_to", "ended")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        target: socket.socket,
        count: Callable[[int], bool],
        done: Callable[["_Way", bool], None],
    ) -> None:
        self._loop = loop
        self._from = source
        self._to = target
        self._count = count
        self._done = done
        self._rest = b""
        self.ended = False

    def start(self, first: bytes) -> None:
        if first:
            if not self._count(len(first)):
                return self._end(broken=True)
            self._rest = first
            self._loop.add_writer(self._to, self._write)
        else:
            self._loop.add_reader(self._from, self._read)

    def _read(self) -> None:
        try:
            count = self._from.recv_into(_buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            return self._end(broken=True)
        if not count:
            return self._end(broken=False)
        if not self._count(count):
            return self._end(broken=True)
        try:
            sent = self._to.send(_buffer[:count])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            return self._end(broken=True)
        if sent < count:
            self._rest = bytes(_buffer[sent:count])
            self._loop.remove_reader(self._from)
            self._loop.add_writer(self._to, self._write)

    def _write(self) -> None:
        try:
            sent = self._to.send(self._rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            return self._end(broken=True)
        self._rest = self._rest[sent:]
        if not self._rest:
            self._loop.remove_writer(self._to)
            self._loop.add_reader(self._from, self._read)

    def _end(self, *, broken: bool) -> None:
        self.ended = True
        self.stop()
        if not broken:
            try:
                self._to.shutdown(socket.SHUT_WR)
            except OSError:
                broken = True
        self._done(self, broken)

    def stop(self) -> None:
        self._loop.remove_reader(self._from)
        self._loop.remove_writer(self._to)


async def splice(
    client: socket.socket,
    server: socket.socket,
    *,
    to_server: bytes = b"",
    to_client: bytes = b"",
    may_send: Callable[[int], bool],
    carried: Carried | None = None,
) -> Carried:
    """Carry until both sides have ended, or one breaks. Closes neither.

    Args:
        carried: where it is counted, for whoever wants to know also if this is cancelled.
        to_server: bytes of the client that were read already; `may_send` is asked about them too.
        may_send: is told each time how much is about to leave; False ends the connection.
    """
    loop = asyncio.get_running_loop()
    carried = carried or Carried()
    finished: asyncio.Future[None] = loop.create_future()
    timer: asyncio.TimerHandle | None = None

    def count_out(count: int) -> bool:
        if not may_send(count):
            carried.stopped = True
            return False
        carried.sent += count
        return True

    def count_in(count: int) -> bool:
        carried.received += count
        return True

    def finish() -> None:
        if not finished.done():
            finished.set_result(None)

    def done(way: _Way, broken: bool) -> None:
        nonlocal timer
        if broken or (out.ended and back.ended):
            finish()
        elif timer is None:
            timer = loop.call_later(_HALF_OPEN_SECONDS, finish)

    out = _Way(loop, client, server, count_out, done)
    back = _Way(loop, server, client, count_in, done)
    try:
        out.start(to_server)
        back.start(to_client)
        await finished
    finally:
        out.stop()
        back.stop()
        if timer is not None:
            timer.cancel()
    return carried
