"""The way through a wall that no descriptor can pass: `ringfence-box carry` outside, `carried` inside.

Here both run without a wall in between, so that every machine can try them; behind it, tests/integration/test_gvisor.py
does. The attacker's part is played by a program that writes whatever it likes where `carried` should be.
"""

import asyncio
import fcntl
import os
import random
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringfence.engines.boxes import helper, protocol
from ringfence.engines.boxes.control import Control
from ringfence.engines.boxes.protocol import MessageKind

pytestmark = pytest.mark.req("B12")

PACKET, DATA, END, STOP, CREDIT, BLOB, SIZE, ACCEPTED, UDP = range(1, 10)
READING, WRITING, BOTH, FILED, TERMINALS, LISTENERS, DATAGRAMS, CONNECTIONS = range(8)
PLACE = bytes(10) + b"\xff\xff" + bytes((127, 64, 1, 2)) + b"\1\xbb\0\0"
"""127.64.1.2, port 443"""


def with_open_files(count: int, *argv: str) -> tuple[str, ...]:
    """The words that start a program which may have so many open files, and cannot raise that itself."""
    return ("/bin/sh", "-c", f'ulimit -n {count} && exec "$@"', "sh", *argv)


@contextmanager
def carrying(
    directory: Path, *runtime: str, open_files: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A carrier with `runtime` where the wall would be; the manager's end of its control socket."""
    directory.mkdir()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    description = os.memfd_create("description")
    os.write(description, b"{}")
    words = [helper.path(), "carry", str(theirs.fileno()), str(description), str(directory), *runtime]
    if open_files is not None:
        words = [*with_open_files(open_files, *words)]
    child = subprocess.Popen(words, pass_fds=[theirs.fileno(), description], stderr=subprocess.PIPE, env={})
    theirs.close()
    os.close(description)
    try:
        yield child, ours
    finally:
        ours.close()
        try:
            child.wait(5)
        finally:
            child.kill()
            child.communicate()


# --- an honest other side ---------------------------------------------------------------------------------------------


def through(
    tmp_path: Path,
    work: Callable[[Control], Awaitable[Any]],
    *,
    runtime: tuple[str, ...] = (helper.path(), "carried"),
    open_files: int | None = None,
) -> Any:
    async def main(ours: socket.socket) -> Any:
        ours.setblocking(False)
        control = Control(ours)
        try:
            async with asyncio.timeout(30):
                control.configure(("umask", "18", "reaper"), ())
                await control.ready
                return await work(control)
        finally:
            control.close()

    with carrying(tmp_path / "carry", *runtime, open_files=open_files) as (_, ours):
        return asyncio.run(main(ours))


async def run(control: Control, *argv: str, stdin: bytes = b"", chunk: int = 65536) -> tuple[bytes, bytes, MessageKind]:
    """Run a program as a box does; what it said is read when its end is told, and only what is there by then."""
    loop = asyncio.get_running_loop()
    pipes = [os.pipe() for _ in range(3)]
    theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
    job = control.start(("/", str(len(argv)), "0", *argv), theirs)
    for descriptor in theirs:
        os.close(descriptor)
    said: dict[int, list[bytes]] = {pipes[1][0]: [], pipes[2][0]: []}

    def read(descriptor: int) -> None:
        while True:
            try:
                piece = os.read(descriptor, chunk)
            except BlockingIOError:
                return
            if not piece:
                loop.remove_reader(descriptor)
                return
            said[descriptor].append(piece)

    for descriptor in said:
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, read, descriptor)
    feeding = loop.run_in_executor(None, _feed, pipes[0][1], stdin)
    reply = await job.ended
    for descriptor in said:
        read(descriptor)
        loop.remove_reader(descriptor)
        os.close(descriptor)
    await feeding
    out, err = (b"".join(pieces) for pieces in said.values())
    return out, err, reply.kind


def _feed(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as pipe:
        try:
            pipe.write(data)
        except BrokenPipeError:
            return


def test_a_command_is_started_fed_and_heard(tmp_path: Path) -> None:
    out, err, kind = through(tmp_path, lambda control: run(control, "/bin/sh", "-c", "cat; echo e >&2", stdin=b"in"))

    assert (out, err, kind) == (b"in", b"e\n", MessageKind.ENDED)


def test_a_program_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    assert through(tmp_path, lambda control: run(control, "/nonexistent"))[2] is MessageKind.FAILED


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 5_000_000])
def test_all_that_was_said_is_there_when_the_end_is_told(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)

    out, _, _ = through(tmp_path, lambda control: run(control, "/bin/cat", stdin=data))

    assert out == data


def test_many_commands_side_by_side_do_not_mix(tmp_path: Path) -> None:
    async def work(control: Control) -> list[bytes]:
        runs = (run(control, "/bin/sh", "-c", f"yes {number} | head -n 20000") for number in range(20))
        return [out for out, _, _ in await asyncio.gather(*runs)]

    outs = through(tmp_path, work)

    assert outs == [f"{number}\n".encode() * 20_000 for number in range(20)]


@pytest.mark.parametrize("open_files", [1024, 256])
def test_an_ordinary_login_s_limit_of_open_files_is_enough(tmp_path: Path, open_files: int) -> None:
    """1,024 is what every login has; poll(2) takes no more entries than that."""
    shout = "yes ringfence | head -n 5000"
    argv = ("/bin/sh", "-c", shout)

    async def work(control: Control) -> list[tuple[bytes, bytes, MessageKind]]:
        return list(await asyncio.gather(*(run(control, *argv) for _ in range(20))))

    ran = through(tmp_path, work, open_files=open_files)

    assert ran == [(b"ringfence\n" * 5000, b"", MessageKind.ENDED)] * 20


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_command_for_which_no_descriptor_is_left_is_refused_and_the_others_go_on(tmp_path: Path, where: str) -> None:
    # PID 1 keeps its socket above number 64, so that fewer would not do for it either; a command has three.
    few, carried = 110, (helper.path(), "carried")
    runtime = with_open_files(few, *carried) if where == "inside" else carried

    async def work(control: Control) -> tuple[list[tuple[bytes, bytes, MessageKind]], tuple[bytes, bytes, MessageKind]]:
        side_by_side = await asyncio.gather(*(run(control, "/bin/sh", "-c", "sleep 1; echo y") for _ in range(60)))
        return list(side_by_side), await run(control, "/bin/echo", "later")

    ran, later = through(tmp_path, work, runtime=runtime, open_files=few if where == "outside" else None)

    assert set(ran) == {(b"y\n", b"", MessageKind.ENDED), (b"", b"", MessageKind.FAILED)}
    assert later == (b"later\n", b"", MessageKind.ENDED)


def test_the_limit_of_open_files_is_raised_for_the_carrier_and_not_for_what_it_starts(tmp_path: Path) -> None:
    async def work(control: Control) -> bytes:
        return (await run(control, "/bin/sh", "-c", "ulimit -Sn"))[0]

    soft = ("/bin/sh", "-c", 'ulimit -Sn 100 && exec "$@"', "sh", helper.path(), "carried")

    assert through(tmp_path, work, runtime=soft) == b"100\n"


def test_a_command_longer_than_a_packet_comes_through(tmp_path: Path) -> None:
    words = ["x" * 1000] * 300

    out, _, _ = through(tmp_path, lambda control: run(control, "/bin/echo", *words))

    assert out == (" ".join(words) + "\n").encode()


def test_who_does_not_listen_any_more_stops_the_command(tmp_path: Path) -> None:
    async def work(control: Control) -> MessageKind:
        null = os.open("/dev/null", os.O_RDWR)
        reading, writing = os.pipe()
        job = control.start(("/", "1", "0", "/usr/bin/yes"), (null, writing, null))
        os.close(writing)
        os.close(null)
        assert os.read(reading, 2) == b"y\n"
        os.close(reading)
        return (await job.ended).kind

    assert through(tmp_path, work) is MessageKind.ENDED


def test_the_carrier_has_locked_itself_up(tmp_path: Path) -> None:
    with carrying(tmp_path / "carry", helper.path(), "carried") as (child, ours):
        protocol.send(ours, MessageKind.CONFIGURE, 0, ("umask", "18", "reaper"))
        assert protocol.receive(ours) is not None
        status = Path(f"/proc/{child.pid}/status").read_text()

    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status


# --- a hostile one ----------------------------------------------------------------------------------------------------


def frame(kind: int, channel: int = 0, body: bytes = b"", *, length: int | None = None) -> bytes:
    return struct.pack("=III", kind, channel, len(body) if length is None else length) + body


def packet(body: bytes, *ends: tuple[int, int], count: int | None = None) -> bytes:
    pairs = b"".join(struct.pack("=II", *end) for end in ends)
    return frame(PACKET, 0, struct.pack("=I", len(ends) if count is None else count) + pairs + body)


def reply(kind: int, id: int = 1, *numbers: int) -> bytes:
    return struct.pack(f"=IIII{len(numbers)}Q", protocol.VERSION, kind, id, 8 * len(numbers), *numbers)


def accepted(id: int, listener: int = 1) -> bytes:
    return frame(ACCEPTED, listener, struct.pack("=I", id) + PLACE)


LISTENER = packet(reply(MessageKind.MADE, 1, 0), (LISTENERS, 1))
LOOK_UPS = packet(reply(MessageKind.MADE, 1, 0), (DATAGRAMS, 1))
READY = packet(reply(MessageKind.READY, 0))
TERMINAL = packet(reply(MessageKind.TERMINAL), (TERMINALS, 1))

ENDS_THE_BOX = {
    "noise": random.Random(1).randbytes(200_000),
    "zeros": bytes(5000),
    "a frame without end": frame(DATA, 1, length=0xFFFFFFFF),
    "a frame that is a little too long": frame(DATA, 1, length=80 * 1024 + 1),
    "an unknown kind": frame(99),
    "a message without a count": frame(PACKET, 0, b"\1"),
    "a message without a header": packet(b"short"),
    "more descriptors than there are": packet(reply(MessageKind.READY, 0), count=5),
    "billions of descriptors": packet(reply(MessageKind.READY, 0), count=0xFFFFFFFF),
    "two descriptors": packet(reply(MessageKind.TERMINAL), (TERMINALS, 1), (TERMINALS, 3)),
    "a pipe": packet(reply(MessageKind.TERMINAL), (READING, 1)),
    "the other end of a pipe": packet(reply(MessageKind.TERMINAL), (WRITING, 1)),
    "a socket": packet(reply(MessageKind.TERMINAL), (BOTH, 1)),
    "a file": frame(BLOB, 1, b"x") + packet(reply(MessageKind.TERMINAL), (FILED, 1)),
    "a kind of end that there is not": packet(reply(MessageKind.TERMINAL), (77, 1)),
    "a channel with a number of ours": packet(reply(MessageKind.TERMINAL), (TERMINALS, 2)),
    "a channel without a number": packet(reply(MessageKind.TERMINAL), (TERMINALS, 0)),
    "the same channel twice": TERMINAL + TERMINAL,
    "too many channels": b"".join(packet(reply(MessageKind.TERMINAL), (TERMINALS, 2 * n + 1)) for n in range(3000)),
    "more than the window": TERMINAL + frame(DATA, 1, bytes(40_000)) * 10,
    "more credit than the window": TERMINAL + frame(CREDIT, 1, struct.pack("=I", 1)),
    "credit of the wrong size": TERMINAL + frame(CREDIT, 1, b"xx"),
    "a size from inside": TERMINAL + frame(SIZE, 1, bytes(8)),
    "a listener with another message": packet(reply(MessageKind.TERMINAL), (LISTENERS, 1)),
    "a connection with another message": packet(reply(MessageKind.READY, 0), (CONNECTIONS, 1)),
    "a terminal instead of a socket": packet(reply(MessageKind.MADE, 1, 0), (TERMINALS, 1)),
    "a connection to what is no listener": TERMINAL + accepted(3),
    "a connection to where look-ups come": LOOK_UPS + accepted(3),
    "a connection of the wrong size": LISTENER + frame(ACCEPTED, 1, b"short"),
    "a connection with a number of ours": LISTENER + accepted(2),
    "a connection without a number": LISTENER + accepted(0),
    "the same connection twice": LISTENER + accepted(3) + accepted(3),
    "a connection that is its own listener": LISTENER + accepted(1),
    "more connections than anybody has taken": LISTENER + b"".join(accepted(2 * n + 3) for n in range(900)),
    "bytes for a listener": LISTENER + frame(DATA, 1, b"x"),
    "bytes for look-ups": LOOK_UPS + frame(DATA, 1, b"x"),
    "credit for a listener": LISTENER + frame(CREDIT, 1, struct.pack("=I", 1)),
    "more than a connection's window": LISTENER + accepted(3) + frame(DATA, 3, bytes(40_000)) * 20,
    "a packet for a listener": LISTENER + frame(UDP, 1, PLACE * 2 + b"x"),
    "a packet for a connection": LISTENER + accepted(3) + frame(UDP, 3, PLACE * 2 + b"x"),
    "a packet that is too short": LOOK_UPS + frame(UDP, 1, PLACE),
    "a packet that is too long": LOOK_UPS + frame(UDP, 1, bytes(40 + 8193)),
    "ends without end": packet(reply(MessageKind.ENDED, 1, 0, 0, 0, 0)) * 100
    + packet(reply(MessageKind.ENDED, 1) + bytes(300)),
}
IS_IGNORED = {
    "bytes for a channel that is not there": frame(DATA, 12345, b"x" * 100),
    "the end of one that is not there": frame(END, 12345) + frame(STOP, 12345),
    "a connection to a listener that is not there": accepted(3, 12345),
    "a packet for what is not there": frame(UDP, 12345, PLACE * 2 + b"x"),
    "credit for one that is not there": frame(CREDIT, 12345, struct.pack("=I", 0xFFFFFFFF)),
}

SPEAKER = (
    "import sys; out = sys.stdout.buffer; out.write(open(sys.argv[1], 'rb').read()); out.flush(); sys.stdin.read()"
)


def spoken(tmp_path: Path, said: bytes) -> list[str]:
    (tmp_path / "said").write_bytes(said)
    return [sys.executable, "-ISc", SPEAKER, str(tmp_path / "said")]


def drain(ours: socket.socket) -> None:
    """Take what comes, as the manager does, until the carrier is gone; terminals are kept, and not read."""
    ours.settimeout(20)
    kept: list[int] = []
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(ours, 65536, 64)  # room for credentials too
            kept += descriptors
            if not data:
                return
    except ConnectionResetError:
        return
    finally:
        for descriptor in kept:
            os.close(descriptor)


@pytest.mark.parametrize("said", ENDS_THE_BOX.values(), ids=list(ENDS_THE_BOX))
def test_what_makes_no_sense_ends_the_box_and_says_so(tmp_path: Path, said: bytes) -> None:
    with carrying(tmp_path / "carry", *spoken(tmp_path, READY + said)) as (child, ours):
        drain(ours)
        code = child.wait(20)
        assert child.stderr is not None
        words = child.stderr.read()

    assert code == 125
    assert words.startswith(b"ringfence-box: ")


@pytest.mark.parametrize("said", IS_IGNORED.values(), ids=list(IS_IGNORED))
def test_what_may_just_have_been_closed_is_ignored(tmp_path: Path, said: bytes) -> None:
    with carrying(tmp_path / "carry", *spoken(tmp_path, said + READY)) as (child, ours):
        ours.settimeout(20)
        received = protocol.receive(ours)

        assert received is not None
        assert received.reply.kind is MessageKind.READY
        assert child.poll() is None


@pytest.mark.parametrize("seed", range(20))
def test_no_noise_makes_the_carrier_crash_or_hang(tmp_path: Path, seed: int) -> None:
    """Whole frames with random contents: it goes on, or ends by its own decision, never by a signal."""
    chance = random.Random(seed)
    frames = [
        chance.choice(
            (
                lambda: frame(chance.randrange(1, 10), chance.randrange(6), chance.randbytes(chance.randrange(64))),
                lambda: packet(reply(chance.randrange(14, 22), chance.randrange(4), *range(chance.randrange(5)))),
                lambda: packet(reply(MessageKind.TERMINAL), (chance.randrange(9), chance.randrange(9))),
                lambda: packet(reply(MessageKind.MADE, 1, 0), (chance.randrange(5, 8), chance.randrange(1, 9, 2))),
                lambda: accepted(chance.randrange(1, 99, 2), chance.randrange(1, 9, 2)),
                lambda: frame(UDP, chance.randrange(1, 9, 2), PLACE * 2 + chance.randbytes(chance.randrange(9000))),
                lambda: frame(DATA, 1, chance.randbytes(chance.randrange(30_000))),
            )
        )()
        for _ in range(60)
    ]
    with carrying(tmp_path / "carry", *spoken(tmp_path, READY + b"".join(frames) + frame(99))) as (child, ours):
        begin = time.monotonic()
        drain(ours)

        assert child.wait(20) in (0, 125)
        assert time.monotonic() - begin < 20


# --- over a container engine's connection -----------------------------------------------------------------------------


@contextmanager
def ferrying() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket, socket.socket]]:
    """A ferry: the manager's end of its control socket, and the container engine's end of the connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    engine, stream = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    words = [helper.path(), "ferry", str(theirs.fileno()), str(stream.fileno())]
    child = subprocess.Popen(words, pass_fds=[theirs.fileno(), stream.fileno()], stderr=subprocess.PIPE, env={})
    theirs.close()
    stream.close()
    ours.settimeout(20)
    try:
        yield child, ours, engine
    finally:
        ours.close()
        engine.close()
        try:
            child.wait(5)
        finally:
            child.kill()
            child.communicate()


def piece(body: bytes, stream: int = 1) -> bytes:
    """As Docker sends what a container says: the stream, nothing, and how long it is."""
    return struct.pack(">BxxxI", stream, len(body)) + body


@pytest.mark.req("B12")
@pytest.mark.parametrize("cut", [1, 2, 7, 8, 9, 100])
def test_the_engine_s_pieces_are_put_together_wherever_they_are_cut(cut: int) -> None:
    text = packet(reply(MessageKind.READY, 7))
    said = b"".join(piece(text[at : at + cut]) + piece(b"", 1) for at in range(0, len(text), cut))

    with ferrying() as (child, ours, engine):
        for at in range(0, len(said), 3):
            engine.sendall(said[at : at + 3])
        received = protocol.receive(ours)

        assert received is not None
        assert (received.reply.kind, received.reply.id) == (MessageKind.READY, 7)
        assert child.poll() is None


@pytest.mark.req("B12")
def test_what_is_said_on_stderr_is_a_complaint_and_never_a_message() -> None:
    with ferrying() as (child, ours, engine):
        engine.sendall(piece(b"ringfence-box: no such thing\n", 2) + piece(READY, 2) + piece(READY))
        received = protocol.receive(ours)
        engine.close()
        child.wait(20)
        assert received is not None and child.stderr is not None
        said = child.stderr.read()

        assert said == b"ringfence-box: no such thing\n" + READY
        assert ours.recv(100) == b""


@pytest.mark.req("B12")
@pytest.mark.parametrize("said", [piece(READY, 0), piece(READY, 3), b"HTTP/1.1 500 no\r\n\r\n", piece(frame(99))])
def test_an_engine_that_makes_no_sense_ends_the_box(said: bytes) -> None:
    with ferrying() as (child, _, engine):
        engine.sendall(said)

        assert child.wait(20) == 125


@pytest.mark.req("B12")
def test_the_ferry_has_locked_itself_up_and_ends_with_the_manager() -> None:
    with ferrying() as (child, ours, engine):
        engine.sendall(piece(READY))
        assert protocol.receive(ours) is not None
        status = Path(f"/proc/{child.pid}/status").read_text()
        ours.close()

        assert child.wait(20) == 0
        assert engine.recv(100) == b""

    assert "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status


@pytest.mark.req("B12")
def test_what_is_typed_after_a_change_of_size_comes_after_it() -> None:
    with ferrying() as (_, ours, engine):
        engine.settimeout(20)
        engine.sendall(piece(TERMINAL))
        _, (terminal, *_), _, _ = socket.recv_fds(ours, 65536, 64)  # room for credentials too
        with open(terminal, "r+b", buffering=0) as typing, engine.makefile("rb") as frames:
            size = b""
            for rows in range(20, 120):
                wanted = struct.pack("HHHH", rows, 80, 0, 0)
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, wanted)
                typing.write(b"x")
                while True:
                    kind, _, length = struct.unpack("=III", frames.read(12))
                    body = frames.read(length)
                    if kind == DATA:
                        break
                    size = body if kind == SIZE else size

                assert size == wanted
                engine.sendall(piece(frame(CREDIT, 1, struct.pack("=I", len(body)))))
