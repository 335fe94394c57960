"""What both sides of HTTP/2 share: frames in and out of one connection, windows, and bounds on what a peer may cost.

Data is acknowledged when it has been written on, not when it came, so that each stream holds its window at most. h2
answers settings and pings by itself; whoever sends many of them, or opens and resets streams in a hurry, is told to
calm down.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, StreamReset
from h2.exceptions import FrameTooLargeError, H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

from ringfence.egress.base import Headers
from ringfence.egress.inspection.base import Sizes
from ringfence.egress.inspection.wire import Wire

_CONNECTION_WINDOWS: Final = 4
"""Streams' windows that one connection holds at once."""
_FRAME_HEAD: Final = 9
_PREFACE: Final = 24  # bytes with which a client begins
SLICE: Final = 16 * 1024
"""Bytes that are understood without letting others run: thousands of frames may be in a hundred kilobytes."""


class PatientConnection(H2Connection):
    """h2's connection, which takes a GOAWAY for the end; for servers it is how they let running streams finish."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        try:
            event.error_code = ErrorCodes(frame.error_code)
        except ValueError:
            event.error_code = ErrorCodes.PROTOCOL_ERROR
        event.last_stream_id = frame.last_stream_id
        event.additional_data = frame.additional_data or None
        return [], [event]


class Bucket:
    """So many at once, and so many a second after that."""

    def __init__(self, capacity: float, each_second: float) -> None:
        self._capacity, self._each_second = capacity, each_second
        self._left, self._at = capacity, time.monotonic()

    def take(self, count: float = 1.0) -> bool:
        now = time.monotonic()
        self._left = min(self._capacity, self._left + (now - self._at) * self._each_second)
        self._at = now
        if self._left < count:
            return False
        self._left -= count
        return True


class LengthGuard:
    """Refuses a frame by the length that it announces: h2 looks at that once it has the whole frame, up to 16 MiB."""

    def __init__(self, largest: int, *, skipped: int) -> None:
        self._largest = largest
        self._left = skipped
        self._head = b""

    def check(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            missing = _FRAME_HEAD - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == _FRAME_HEAD:
                self._left = int.from_bytes(self._head[:3], "big")
                self._head = b""
                if self._left > self._largest:
                    return False
        return True


class Link:
    """One connection, in either role."""

    def __init__(self, wire: Wire, sizes: Sizes, *, is_client: bool) -> None:
        self.wire = wire
        self.h2 = PatientConnection(
            H2Configuration(client_side=is_client, header_encoding=None, validate_outbound_headers=False)
        )
        values = {
            SettingCodes.MAX_CONCURRENT_STREAMS: sizes.streams,
            SettingCodes.INITIAL_WINDOW_SIZE: sizes.window,
            SettingCodes.MAX_HEADER_LIST_SIZE: sizes.head,
        }
        if is_client:
            values[SettingCodes.ENABLE_PUSH] = 0
        self.h2.local_settings = Settings(client=is_client, initial_values=values)
        self.h2.decoder.max_header_list_size = sizes.head
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(sizes.window * _CONNECTION_WINDOWS)
        self._waiting: dict[int, asyncio.Event] = {}
        self._guard = LengthGuard(self.h2.max_inbound_frame_size, skipped=0 if is_client else _PREFACE)
        self.is_closed = False
        self.flush()

    def receive(self, data: bytes) -> list[Event]:
        """Raises:
        H2Error: the peer breaks the rules, and is told so with the next flush.
        """
        if not self._guard.check(data):
            self.h2.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
            raise FrameTooLargeError("the frame is too large")
        return self.h2.receive_data(data)

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.wire.send(data)

    async def drain(self) -> None:
        await self.wire.drain()

    def windows_moved(self, stream: int | None) -> None:
        """Wake who waits to send on a stream; on all of them, if it is None or 0."""
        if stream:
            if (waiting := self._waiting.get(stream)) is not None:
                waiting.set()
        else:
            for waiting in self._waiting.values():
                waiting.set()

    async def send_data(self, stream: int, data: bytes) -> None:
        """As fast as the peer opens its windows.

        Raises:
            ConnectionError: the stream or the connection is gone.
        """
        view = memoryview(data)
        while view:
            self._check()
            try:
                room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
                if room > 0:
                    self.h2.send_data(stream, view[:room])
            except H2Error as error:
                raise ConnectionResetError("the stream has ended") from error
            if room > 0:
                view = view[room:]
                self.flush()
                await self.drain()
            else:
                await self._await_window(stream)

    async def _await_window(self, stream: int) -> None:
        waiting = self._waiting[stream] = asyncio.Event()
        try:
            await waiting.wait()
        finally:
            del self._waiting[stream]

    async def send_headers(self, stream: int, headers: Headers, *, ended: bool) -> None:
        self._check()
        try:
            self.h2.send_headers(stream, list(headers), end_stream=ended)
        except H2Error as error:
            raise ConnectionResetError("the stream has ended") from error
        self.flush()
        await self.drain()

    async def end(self, stream: int) -> None:
        self._check()
        try:
            self.h2.end_stream(stream)
        except H2Error as error:
            raise ConnectionResetError("the stream has ended") from error
        self.flush()
        await self.drain()

    def reset(self, stream: int, code: ErrorCodes) -> None:
        """Of a stream that may have ended already."""
        try:
            self.h2.reset_stream(stream, code)
        except H2Error:
            return
        if not self.is_closed:
            self.flush()

    def acknowledge(self, stream: int, size: int) -> None:
        if size and not self.is_closed:
            try:
                self.h2.acknowledge_received_data(size, stream)
            except H2Error:
                return
            self.flush()

    def say_goodbye(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        if not self.is_closed:
            try:
                self.h2.close_connection(code)
                self.flush()
            except (H2Error, OSError):
                pass
            self.shut()

    def shut(self) -> None:
        self.is_closed = True
        self.windows_moved(None)

    def _check(self) -> None:
        if self.is_closed:
            raise ConnectionResetError("the connection has ended")


class Inbox:
    """What came on one stream and was not taken yet: pieces of the body, then trailers, an end or a failure."""

    def __init__(self, link: Link, stream: int) -> None:
        self._link, self._stream = link, stream
        self._pieces: deque[tuple[bytes, int]] = deque()
        self._news = asyncio.Event()
        self.trailers: Headers = ()
        self.ended = False
        self.failure: StreamReset | str | None = None
        self.received = 0
        """Bytes of the body that came."""

    def put(self, data: bytes, size: int) -> None:
        self.received += len(data)
        self._pieces.append((data, size))
        self._news.set()

    def end(self, trailers: Headers = ()) -> None:
        self.trailers = trailers or self.trailers
        self.ended = True
        self._news.set()

    def fail(self, failure: StreamReset | str) -> None:
        if self.failure is None:
            self.failure = failure
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Each is acknowledged when the next one is asked for. Ends with `ended` or with `failure`."""
        while True:
            while self._pieces:
                data, size = self._pieces.popleft()
                try:
                    if data:
                        yield data
                finally:
                    self._link.acknowledge(self._stream, size)
            if self.ended or self.failure is not None:
                return
            await self.wait()

    def drop(self) -> None:
        """Nobody will take the rest; the connection's window gets it back."""
        while self._pieces:
            self._link.acknowledge(self._stream, self._pieces.popleft()[1])
