"""The manager's end of the file server, against one that lies: nothing that comes back is believed."""

import array
import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable

import pytest

from ringfence.engines.boxes.control import Control
from ringfence.engines.boxes.files import FileServer
from ringfence.errors import Internal, Timeout
from ringfence.values.files import FileFlag, FileOperation, Performed

PLACE, CONTENT, ENTRIES, DONE, ERROR = 16, 17, 18, 19, 20
FOLLOW = FileFlag.FOLLOW
Answer = Callable[[int], bytes]
"""What the server says to the call of that number."""


def frame(kind: int, call: int, body: bytes = b"") -> bytes:
    return struct.pack("=III", kind, call, len(body)) + body


def entry(name: bytes, target: bytes = b"", mode: int = 0o100644) -> bytes:
    return struct.pack("=7Q", mode, 1, 2, 3, 4, 5, 6) + name + b"\0" + target + b"\0"


class FirstProcess:
    """PID 1 of a box whose file server says whatever a test wants."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.servers: list[socket.socket] = []
        self.starts = 0

    def take(self) -> socket.socket | None:
        """The server's end, if one was asked for."""
        try:
            data, ancillary, _, _ = self._control.recvmsg(4096, 1024, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if struct.unpack_from("=IIII", data)[1] != 2:
            return None
        numbers = array.array("i")
        for _, _, content in ancillary:
            numbers.frombytes(content)
        self.starts += 1
        self.servers.append(socket.socket(fileno=numbers[0]))
        return self.servers[-1]

    def close(self) -> None:
        for each in (self._control, *self.servers):
            each.close()


def ask(operation: FileOperation, *answers: Answer, seconds: float = 5) -> Performed:
    """One operation, answered frame for frame; the first when it is asked, each other when something more is sent."""

    async def main() -> Performed:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        first = FirstProcess(theirs)
        control = Control(ours)
        server = FileServer(control, set_apart=lambda job: None)
        task = asyncio.ensure_future(server.perform(operation, lambda _: None, seconds))
        try:
            end = None
            while end is None:
                await asyncio.sleep(0.001)
                end = first.take()
            call = struct.unpack("=III", end.recv(12))[1]
            for answer in answers:
                end.sendall(answer(call))
                await asyncio.sleep(0.005)
            return await task
        finally:
            task.cancel()
            server.close()
            control.close()
            ours.close()
            first.close()

    return asyncio.run(main())


READ = FileOperation(name="read", path="/w/a", limit=10)
STAT = FileOperation(name="stat", path="/w/a", flags=FOLLOW)
LIST = FileOperation(name="list", path="/w", limit=2)
RENAME = FileOperation(name="rename", path="/w/a", second="/w/b")


def place(call: int, *paths: bytes) -> bytes:
    return frame(PLACE, call, b"".join(path + b"\0" for path in paths or (b"/w/a",)))


def test_an_honest_answer_is_taken() -> None:
    told = ask(READ, lambda n: place(n) + frame(CONTENT, n, b"12345") + frame(CONTENT, n, b"67890") + frame(DONE, n))
    assert (told.places, told.content) == (("/w/a",), b"1234567890")
    listed = ask(LIST, lambda n: place(n, b"/w") + frame(ENTRIES, n, entry(b"x") + entry(b"\xff\n")) + frame(DONE, n))
    assert [each.path for each in listed.entries] == ["/w/x", "/w/\udcff\n"]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOTEMPTY])
def test_what_the_kernel_said_is_raised(number: int) -> None:
    with pytest.raises(OSError) as caught:
        ask(READ, lambda n: frame(ERROR, n, struct.pack("=I", number)))
    assert caught.value.errno == number


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (READ, lambda n: frame(99, n)),
        (READ, lambda n: frame(DONE, n)),
        (READ, lambda n: frame(DONE, n + 1)),
        (READ, lambda n: place(n + 1)),
        (READ, lambda n: place(n) + place(n)),
        (READ, lambda n: frame(CONTENT, n, b"before anybody was asked")),
        (READ, lambda n: place(n) + frame(CONTENT, n, b"x" * 11)),
        (READ, lambda n: place(n) + struct.pack("=III", CONTENT, n, 1 << 31)),
        (READ, lambda n: place(n) + frame(ENTRIES, n, entry(b""))),
        (READ, lambda n: place(n, b"relative")),
        (READ, lambda n: place(n, b"")),
        (READ, lambda n: place(n, b"/a", b"/b")),
        (READ, lambda n: place(n, b"/" + b"x" * 4096)),
        (READ, lambda n: frame(PLACE, n, b"/no-end")),
        (READ, lambda n: frame(ERROR, n, b"")),
        (READ, lambda n: frame(ERROR, n, struct.pack("=I", 0))),
        (READ, lambda n: frame(ERROR, n, struct.pack("=I", 5000))),
        (STAT, lambda n: place(n) + frame(ENTRIES, n, entry(b"named"))),
        (STAT, lambda n: place(n) + frame(ENTRIES, n, entry(b"") + entry(b""))),
        (STAT, lambda n: place(n) + frame(ENTRIES, n, entry(b"")[:-1])),
        (STAT, lambda n: place(n) + frame(ENTRIES, n, b"\0" * 57)),
        (LIST, lambda n: place(n) + frame(ENTRIES, n, entry(b"../up"))),
        (LIST, lambda n: place(n) + frame(ENTRIES, n, entry(b".."))),
        (LIST, lambda n: place(n) + frame(ENTRIES, n, entry(b""))),
        (LIST, lambda n: place(n) + frame(ENTRIES, n, entry(b"x" * 256))),
        (LIST, lambda n: place(n) + frame(ENTRIES, n, entry(b"a") + entry(b"b") + entry(b"c"))),
        (RENAME, lambda n: place(n, b"/w/a")),
    ],
)
def test_what_makes_no_sense_ends_the_server(operation: FileOperation, answer: Answer) -> None:
    with pytest.raises(Internal, match="makes no sense"):
        ask(operation, answer)


def test_one_that_says_nothing_is_given_up() -> None:
    with pytest.raises(Timeout):
        ask(READ, seconds=0.05)


def test_a_stat_of_nothing_is_nothing_to_go_on() -> None:
    with pytest.raises(Internal, match="makes no sense"):
        ask(STAT, lambda n: place(n) + frame(DONE, n))


def test_any_bytes_at_all_end_in_an_error_of_ours() -> None:
    for _ in range(30):
        noise = os.urandom(200)
        with pytest.raises((Internal, Timeout)):
            ask(LIST, lambda n, noise=noise: place(n) + noise, seconds=0.05)  # type: ignore[misc]
