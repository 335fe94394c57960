"""The manager's end of the control socket, against a PID 1 that is a test: replies find their job, and loss is told."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from ringfence.engines.boxes.control import Control
from ringfence.engines.boxes.protocol import VERSION, Manner, MessageKind
from ringfence.errors import Internal


class FirstProcess:
    """The other end: reads what it is told, says what the test wants."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def told(self) -> tuple[int, int, list[str], int]:
        """Kind, id, words, and how many descriptors came along."""
        packet, descriptors, _, _ = socket.recv_fds(self.end, 65536, 8)
        for descriptor in descriptors:
            os.close(descriptor)
        version, kind, id, length = struct.unpack_from("=IIII", packet)
        assert version == VERSION and len(packet) == 16 + length
        return kind, id, packet[16:].decode().split("\0")[:-1], len(descriptors)

    def say(self, kind: int, id: int, *numbers: int, descriptors: tuple[int, ...] = ()) -> None:
        packet = struct.pack(f"=IIII{len(numbers)}Q", VERSION, kind, id, 8 * len(numbers), *numbers)
        socket.send_fds(self.end, [packet], descriptors)


def converse(talk: Callable[[Control, FirstProcess], Awaitable[None]]) -> None:
    async def whole() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        control = Control(ours)
        try:
            async with asyncio.timeout(20):
                await talk(control, FirstProcess(theirs))
        finally:
            control.close()
            ours.close()
            theirs.close()

    asyncio.run(whole())


async def turn() -> None:
    """Let what has come be read."""
    for _ in range(3):
        await asyncio.sleep(0.001)


def test_ready_says_who_pid_1_is_by_the_kernels_word() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        control.configure(("umask", "18"), ())
        assert first.told() == (MessageKind.CONFIGURE, 0, ["umask", "18"], 0)
        first.say(MessageKind.READY, 0)
        await control.ready
        assert control.first_pid == os.getpid()

    converse(talk)


def test_replies_find_their_job_in_whatever_order_they_come() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        jobs = [control.start(["/", "1", "0", f"job{n}"], []) for n in range(3)]
        told = [first.told() for _ in jobs]
        assert [words[-1] for _, _, words, _ in told] == ["job0", "job1", "job2"]
        assert [id for _, id, _, _ in told] == [job.id for job in jobs] and len({job.id for job in jobs}) == 3
        for job in reversed(jobs):
            first.say(MessageKind.ENDED, job.id, job.id << 8, 1, 2, 3)
        replies = await asyncio.gather(*(job.ended for job in jobs))
        assert [reply.numbers[0] >> 8 for reply in replies] == [job.id for job in jobs]
        assert not any(job.runs for job in jobs)

    converse(talk)


def test_what_belongs_to_no_job_is_ignored_and_a_second_end_too() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        job = control.start(["/", "1", "0", "x"], [])
        for id in (0, 99, 2**32 - 1):
            first.say(MessageKind.ENDED, id, 0, 0, 0, 0)
        first.say(MessageKind.FAILED, job.id, 2, 0)
        first.say(MessageKind.ENDED, job.id, 0, 0, 0, 0)
        assert (await job.ended).kind is MessageKind.FAILED
        await turn()
        assert not control.lost

    converse(talk)


def test_kill_and_signal_name_the_job() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        job = control.start(["/", "1", "0", "x"], [], Manner.LONG_LIVED)
        assert first.told()[2][0] == "2"
        control.kill(job)
        control.signal(job, 15)
        assert first.told() == (MessageKind.KILL, job.id, [], 0)
        assert first.told() == (MessageKind.SIGNAL, job.id, ["15"], 0)

    converse(talk)


def test_a_terminal_comes_to_its_job_and_is_closed_where_nobody_wants_it() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        far, near = os.pipe()
        try:
            plain, wanting = control.start(["x"], []), control.start(["x"], [], terminal=(24, 80))
            before = len(os.listdir("/proc/self/fd"))
            for id in (99, plain.id):
                first.say(MessageKind.TERMINAL, id, descriptors=(far,))
            first.say(MessageKind.TERMINAL, wanting.id, descriptors=(far,))
            first.say(MessageKind.TERMINAL, wanting.id, descriptors=(far,))
            assert wanting.terminal is not None and plain.terminal is None
            got = await wanting.terminal
            await turn()
            assert len(os.listdir("/proc/self/fd")) == before + 1
            os.close(got)
        finally:
            os.close(far)
            os.close(near)

    converse(talk)


def test_a_job_that_fails_before_its_terminal_comes_lets_go_of_who_waits_for_it() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        job = control.start(["x"], [], terminal=(24, 80))
        first.say(MessageKind.FAILED, job.id, 2, 0)
        assert (await job.ended).numbers == (2, 0)
        assert job.terminal is not None and job.terminal.cancelled()

    converse(talk)


@pytest.mark.parametrize("how", ["close", "nonsense", "uninvited descriptor"])
def test_when_pid_1_is_lost_everybody_is_told_once(how: str) -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        told: list[int] = []
        control.when_lost(lambda: told.append(1))
        jobs = [control.start(["x"], []), control.start(["x"], [], terminal=(24, 80))]
        if how == "nonsense":
            first.end.send(b"nonsense")
        elif how == "uninvited descriptor":
            null = os.open("/dev/null", os.O_RDONLY)
            first.say(MessageKind.READY, 0, descriptors=(null,))
            os.close(null)
        first.end.close()
        for job in jobs:
            with pytest.raises(Internal):
                await job.ended
        assert jobs[1].terminal is not None
        with pytest.raises(Internal):
            await jobs[1].terminal
        await turn()
        assert told == [1] and control.lost and not control.still_there()
        control.kill(jobs[0])
        control.signal(jobs[0], 15)

    converse(talk)


def test_whether_it_is_there_is_asked_of_the_kernel_and_not_of_the_event_loop() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        assert control.still_there()
        first.end.close()
        assert not control.still_there(), "without the event loop having run"

    converse(talk)


def test_a_start_that_nobody_can_hear_is_an_error() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        first.end.close()
        with pytest.raises(OSError):
            control.start(["x"], [])

    converse(talk)


def test_nothing_is_lost_when_pid_1_is_slow_to_read() -> None:
    async def talk(control: Control, first: FirstProcess) -> None:
        jobs = [control.start([f"{n}", "x" * 20_000], []) for n in range(50)]
        for job in jobs:
            control.kill(job)
        seen = []
        while len(seen) < 2 * len(jobs):
            try:
                seen.append(first.told()[:2])
            except BlockingIOError:
                await asyncio.sleep(0.001)
        assert seen == [(MessageKind.SPAWN, job.id) for job in jobs] + [(MessageKind.KILL, job.id) for job in jobs]

    converse(talk)
