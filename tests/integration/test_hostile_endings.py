"""Boxes that end in a way that an agent, or a crowded caller, has arranged: seen at once, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from ringfence import Limits, RingfenceError
from ringfence.engines.streams import Capture
from ringfence.values.request import Overflow
from tests.integration.stage import Place

pytestmark = pytest.mark.req("B6")


@pytest.fixture(params=["bwrap", "unshare"], autouse=True)
def adapter(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", request.param)


def test_placeholders_are_removed_from_a_workspace_that_was_renamed_meanwhile(place: Place) -> None:
    """There are some where nobody looks at calls."""
    moved = place.home / "moved"

    def move() -> None:
        until = time.monotonic() + 20
        while not (place.workspace / "up").exists() and time.monotonic() < until:
            time.sleep(0.02)
        os.rename(place.workspace, moved)

    mover = threading.Thread(target=move)
    mover.start()

    place.run("touch up; sleep 1", trace="off")

    mover.join()
    assert os.listdir(moved) == ["up"]


def test_the_death_of_a_box_is_seen_by_a_caller_with_many_descriptors(place: Place) -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]

    async def lose() -> float:
        async with place.box() as box:
            await box.open()
            running = asyncio.create_task(box.shell("sleep 30", timeout=20))
            await asyncio.sleep(0.3)
            os.kill(box._box._inside.control.first_pid, signal.SIGKILL)  # type: ignore[union-attr]
            begin = time.monotonic()
            with pytest.raises(RingfenceError):
                await running
            return time.monotonic() - begin

    try:
        assert asyncio.run(lose()) < 10
    finally:
        for descriptor in held:
            os.close(descriptor)


SEND = """python3 -c "
import socket, time
s = socket.socket(socket.AF_UNIX); s.bind('/workspace/s'); s.listen(1)
socket.send_fds(s.accept()[0], [b'x'], [1]); time.sleep(0.01)
" """
WRITE_ON = """python3 -c "
import os, socket, time
while True:
    try:
        s = socket.socket(socket.AF_UNIX); s.connect('/workspace/s'); break
    except OSError:
        time.sleep(0.01)
out = socket.recv_fds(s, 1, 1)[1][0]
[os.fork() for _ in range(3)]
while True:
    os.write(out, b'x' * 65536)
" 2>/dev/null"""


def test_output_that_another_box_goes_on_writing_does_not_hold_us_up(place: Place) -> None:
    async def both() -> None:
        limits = Limits(output_bytes=1 << 20)
        async with place.box(limits=limits) as one, place.box(limits=limits) as other:
            writing = asyncio.create_task(other.shell(WRITE_ON, timeout=15))
            await one.shell(SEND, timeout=15)
            await writing

    asyncio.run(asyncio.wait_for(both(), 40))


def test_the_caller_s_keys_are_not_listed(place: Place) -> None:
    assert place.run("cat /proc/keys").stdout == ""


def test_a_tail_of_tiny_pieces_takes_no_more_room_than_its_bytes() -> None:
    capture = Capture(4096, Overflow.KEEP_ENDS)
    for _ in range(100_000):
        capture.add(b"ab")

    assert len(capture._tail) < 3
    assert capture.kept() == b"ab" * 2048
    assert capture.dropped == 200_000 - 4096
