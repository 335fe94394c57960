"""Plans and messages that make no sense: the helper says so and starts nothing, never a half-built wall."""

from __future__ import annotations

import os
import socket
import struct
import subprocess

import pytest

from ringfence.engines.boxes import helper
from ringfence.engines.boxes.protocol import VERSION

pytestmark = pytest.mark.req("B6")

CONFIGURE, SPAWN = 1, 2
SPAWN_TRUE = b"0\0/\0001\0000\0/bin/true\0"


def packet(kind: int, body: bytes, *, version: int = VERSION, length: int | None = None) -> bytes:
    return struct.pack("=IIII", version, kind, 1, len(body) if length is None else length) + body


def init(*packets: bytes, descriptors: int = 0) -> tuple[int, bytes]:
    """Exit code of a PID 1 that gets these messages, and what it answered."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open("/dev/null", os.O_RDWR)
    with ours:
        with theirs:
            child = subprocess.Popen(
                [helper.path(), "init", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.DEVNULL,
                env={},
            )
        for data in packets:
            socket.send_fds(ours, [data], [null] * descriptors)
        ours.settimeout(10)
        try:
            answer = ours.recv(256)
        except ConnectionResetError:
            answer = b""
    os.close(null)
    return child.wait(timeout=10), answer


def test_a_configuration_is_answered() -> None:
    code, answer = init(packet(CONFIGURE, b"umask\0" + b"18\0"))

    assert (code, struct.unpack("=IIII", answer)[1]) == (0, 16)


@pytest.mark.parametrize(
    ("data", "descriptors"),
    [
        (b"", 0),
        (b"\1\0\0", 0),
        (packet(CONFIGURE, b""), 0),
        (packet(CONFIGURE, b"umask\0", version=VERSION + 1), 0),
        (packet(CONFIGURE, b"umask\0x\0"), 0),
        (packet(CONFIGURE, b"umask\0"), 0),
        (packet(CONFIGURE, b"umask"), 0),
        (packet(CONFIGURE, b"unknown\0"), 0),
        (packet(CONFIGURE, b"filter\0"), 0),
        (packet(CONFIGURE, b"filter\0"), 1),
        (packet(CONFIGURE, b"restrict\0"), 0),
        (packet(CONFIGURE, b"umask\0" + b"18\0", length=3), 0),
        (packet(CONFIGURE, b"", length=60_000), 0),
        (packet(CONFIGURE, b"", length=60_000), 1),
        (packet(CONFIGURE, b"umask\0" + b"18\0"), 7),
        (packet(CONFIGURE, b"umask\0" + b"18\0"), 40),
        (packet(SPAWN, SPAWN_TRUE), 3),
        (packet(99, b""), 0),
    ],
)
def test_a_message_that_makes_no_sense_ends_the_box(data: bytes, descriptors: int) -> None:
    code, answer = init(data, descriptors=descriptors)

    assert answer == b""
    assert code == (125 if data else 0)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["wall"],
        ["wall", "exec", "/bin/true"],
        ["lifeline"],
        ["lifeline", "x", "wall"],
        ["unknown", "wall"],
        ["lifeline", "0", "wall", "unknown"],
        ["lifeline", "0", "wall", "show", "7", "/x"],
        ["lifeline", "0", "wall", "take", "/nowhere/at/all"],
        ["lifeline", "0", "wall", "take", "/proc/self/exe"],
        ["lifeline", "0", "wall"],
        ["lifeline", "0", "wall", "exec"],
    ],
)
def test_a_plan_that_makes_no_sense_starts_nothing(words: list[str]) -> None:
    plan = os.memfd_create("plan")
    os.write(plan, b"".join(word.encode() + b"\0" for word in words))

    done = subprocess.run(
        [helper.path(), "launch", str(plan), str(os.getpid())],
        pass_fds=[plan],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        env={},
        check=False,
    )

    os.close(plan)
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.startswith(b"ringfence-box: ")
