"""Files of a box, read and changed inside it: the manager's end of what native/files.c serves.

The server is a child of PID 1, started at the first operation, and does one after the other; `file_servers.py` has
several. What changes something is told in two steps: the server says where a path really leads, `agree` looks at that,
and only then it is done.

Nothing that comes back is believed: frames and totals are bounded, names are bytes without a slash, and whatever does
not fit ends the server. So does a caller who gives up in the middle; the next operation starts a new one. What a
hostile process of the box can do to it, as it may be able to kill or stop it, is an error of this operation or a
time-out.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from ringfence.engines.boxes.protocol import Manner, MessageKind
from ringfence.errors import Internal, Timeout
from ringfence.values.files import FileKind, FileOperation, FileStat, Performed

if TYPE_CHECKING:
    from ringfence.engines.base import Agree
    from ringfence.engines.boxes.control import Control, Job

_FRAME = struct.Struct("=III")
_ENTRY = struct.Struct("=7Q")
_ERRNO = struct.Struct("=I")
_CHUNK = 64 * 1024
"""The most that one frame carries, in each direction."""
_PATH_MAX = 4096
_NAME_MAX = 255
_ERRNO_END = 4096  # the kernel's own numbers end here (MAX_ERRNO)
_END_SECONDS = 3.0
"""How long PID 1 may take to say why the server ended."""


class _Sent(IntEnum):
    REQUEST = 1
    GO = 2
    DATA = 3
    END = 4
    STOP = 5


class _Told(IntEnum):
    PLACE = 16
    CONTENT = 17
    ENTRIES = 18
    DONE = 19
    ERROR = 20


class _InStep(Exception):
    """It came to nothing, and the server waits for the next operation."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault = fault


class FileServer:
    """One server, for one operation at a time.

    Args:
        set_apart: keeps what a job does apart from what calls do; told of each server that is started.
    """

    def __init__(self, control: Control, set_apart: Callable[[Job], None]) -> None:
        self._control = control
        self._set_apart = set_apart
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._job: Job | None = None
        self._calls = 0
        self._buffer = bytearray()

    async def perform(
        self, operation: FileOperation, agree: Agree, seconds: float, data: AsyncIterator[bytes] | None = None
    ) -> Performed:
        """Do it.

        Args:
            agree: asked about every real path, before anything is changed there or given out.
            data: what `write` writes.

        Raises:
            OSError: what the kernel said of it, inside.
            Timeout: it took longer than that.
            Internal: the box, or the server in it, is gone.
        """
        request = _encoded(operation)
        try:
            async with asyncio.timeout(seconds):
                await self._begin(request)
                return await self._go_on(operation, agree, data)
        except TimeoutError as fault:
            self.close()
            raise Timeout(seconds, hint="something in the box may keep its file server from working") from fault
        except _InStep as told:
            raise told.fault from None
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """End the server in the middle of an operation, which fails: whoever waits for its socket is told at once."""
        if self._socket is not None:
            with suppress(OSError):  # the other side has gone already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the server; the next operation starts another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._job is not None:
            self._control.kill(self._job)
            self._job = None
        self._buffer.clear()

    # --- one operation ------------------------------------------------------------------------------------------------

    async def _begin(self, request: bytes) -> None:
        if self._job is None or not self._job.runs:
            self.close()
            self._start()
        self._calls = (self._calls + 1) % 2**32
        await self._send(_Sent.REQUEST, request)

    def _start(self) -> None:
        """
        Raises:
            Internal: the box is gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            self._job = self._control.start((), [theirs.fileno()], Manner.SERVES_FILES | Manner.LONG_LIVED)
            self._set_apart(self._job)
        except OSError as fault:
            ours.close()
            raise Internal("the box is gone", hint="open a new one") from fault
        finally:
            theirs.close()
        self._socket = ours

    async def _go_on(self, operation: FileOperation, agree: Agree, data: AsyncIterator[bytes] | None) -> Performed:
        places: tuple[str, ...] = ()
        content = bytearray()
        entries: list[FileStat] = []
        while True:
            kind, body = await self._receive()
            match kind:
                case _Told.PLACE if not places:
                    places = _places(body, 2 if operation.second else 1)
                    await self._ask(operation, agree, places)
                    if operation.changes:
                        await self._send(_Sent.GO)
                        if data is not None:
                            await self._send_all(data)
                case _Told.CONTENT if operation.name == "read" and places:
                    content += body
                    if len(content) > operation.limit:
                        raise _nonsense()
                case _Told.ENTRIES if operation.name in ("stat", "list") and places:
                    entries += _entries(body, operation)
                    if len(entries) > max(operation.limit, 1):
                        raise _nonsense()
                case _Told.DONE if not body and _is_whole(operation, places, entries):
                    return Performed(places, bytes(content), tuple(entries))
                case _Told.ERROR:
                    raise _InStep(_fault(body, operation.path))
                case _:
                    raise _nonsense()

    async def _ask(self, operation: FileOperation, agree: Agree, places: tuple[str, ...]) -> None:
        """What is refused before anything was begun leaves the server as it was; what has begun ends with it."""
        try:
            for place in places:
                agree(place)
        except Exception as fault:
            if not operation.changes:
                raise
            await self._send(_Sent.STOP)
            if (await self._receive())[0] is not _Told.ERROR:
                raise _nonsense() from fault
            raise _InStep(fault) from fault

    async def _send_all(self, data: AsyncIterator[bytes]) -> None:
        async for piece in data:
            for at in range(0, len(piece), _CHUNK):
                await self._send(_Sent.DATA, piece[at : at + _CHUNK])
                if self._is_answered():  # it has failed: nobody takes the rest
                    break
            else:
                continue
            break
        await self._send(_Sent.END)

    # --- frames -------------------------------------------------------------------------------------------------------

    async def _send(self, kind: _Sent, body: bytes = b"") -> None:
        assert self._socket is not None
        try:
            await self._loop.sock_sendall(self._socket, _FRAME.pack(kind, self._calls, len(body)) + body)
        except ConnectionError:
            await self._raise_end()

    async def _receive(self) -> tuple[_Told, bytes]:
        """The next frame of this operation.

        Raises:
            Internal: it makes no sense, or none comes any more.
            OSError: the server could not be started.
        """
        assert self._socket is not None
        while (frame := self._frame()) is None:
            try:
                came = await self._loop.sock_recv(self._socket, 4 * _CHUNK)
            except ConnectionError:
                came = b""
            if not came:
                await self._raise_end()
            self._buffer += came
        return frame

    def _frame(self) -> tuple[_Told, bytes] | None:
        if len(self._buffer) < _FRAME.size:
            return None
        kind, call, length = _FRAME.unpack_from(self._buffer)
        if kind not in _TOLD or call != self._calls or length > _CHUNK:
            raise _nonsense()
        end = _FRAME.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(memoryview(self._buffer)[_FRAME.size : end])
        del self._buffer[:end]
        return _Told(kind), body

    def _is_answered(self) -> bool:
        assert self._socket is not None
        if not self._buffer:
            with suppress(BlockingIOError, ConnectionError):
                self._buffer += self._socket.recv(_CHUNK)
        return bool(self._buffer)

    async def _raise_end(self) -> None:
        """The server is gone; PID 1 says why.

        Raises:
            OSError: it could not be started.
            Internal: it was ended.
        """
        assert self._job is not None
        await asyncio.wait((self._job.ended,), timeout=_END_SECONDS)
        reply = self._job.ended.result() if self._job.ended.done() else None
        if reply is not None and reply.kind is MessageKind.FAILED and 0 < reply.numbers[0] < _ERRNO_END:
            raise OSError(reply.numbers[0], f"the box's file server: {os.strerror(reply.numbers[0])}")
        raise Internal("the box's file server was ended, perhaps by something in the box", hint="try again")


_TOLD = frozenset(_Told)


def _encoded(operation: FileOperation) -> bytes:
    """
    Raises:
        OSError: ENAMETOOLONG.
    """
    paths = [os.fsencode(path) for path in (operation.path, operation.second)]
    if any(len(path) >= _PATH_MAX for path in paths):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), operation.path)
    numbers = (int(operation.flags), operation.offset or operation.mode, operation.limit)
    return b"\0".join((operation.name.encode(), *(b"%d" % number for number in numbers), *paths, b""))


def _is_whole(operation: FileOperation, places: tuple[str, ...], entries: list[FileStat]) -> bool:
    """Whether all has come that such an answer has. `mkdir` of what is there asks nobody."""
    return bool(places or operation.name == "mkdir") and bool(entries or operation.name != "stat")


def _nonsense() -> Internal:
    return Internal("the box's file server sent what makes no sense")


def _fault(body: bytes, path: str) -> OSError:
    number = _ERRNO.unpack(body)[0] if len(body) == _ERRNO.size else 0
    if not 0 < number < _ERRNO_END:
        raise _nonsense()
    return OSError(number, os.strerror(number), path)


def _places(body: bytes, count: int) -> tuple[str, ...]:
    places = body.split(b"\0")
    if len(places) != count + 1 or places.pop() or not all(0 < len(each) < _PATH_MAX for each in places):
        raise _nonsense()
    if not all(each.startswith(b"/") for each in places):
        raise _nonsense()
    return tuple(map(os.fsdecode, places))


def _entries(body: bytes, operation: FileOperation) -> list[FileStat]:
    found: list[FileStat] = []
    at = 0
    while at < len(body):
        name_at = at + _ENTRY.size
        name_end = body.find(b"\0", name_at, name_at + _NAME_MAX + 1)
        target_end = body.find(b"\0", name_end + 1, name_end + 1 + _PATH_MAX) if name_end >= 0 else -1
        if target_end < 0:
            raise _nonsense()
        found.append(_entry(body, at, body[name_at:name_end], body[name_end + 1 : target_end], operation))
        at = target_end + 1
    return found


def _entry(body: bytes, at: int, name: bytes, target: bytes, operation: FileOperation) -> FileStat:
    mode, size, modified, uid, gid, links, inode = _ENTRY.unpack_from(body, at)
    is_listed = operation.name == "list"
    if bool(name) is not is_listed or b"/" in name or name in (b".", b".."):
        raise _nonsense()
    kind = FileKind.of(mode)
    return FileStat(
        path=os.path.join(operation.path, os.fsdecode(name)) if is_listed else operation.path,
        kind=kind,
        size_bytes=size,
        mode=mode & 0o7777,
        modified_seconds=modified / 1e9,
        uid=uid,
        gid=gid,
        links=links,
        inode=inode,
        target=os.fsdecode(target) if kind is FileKind.LINK else None,
    )
