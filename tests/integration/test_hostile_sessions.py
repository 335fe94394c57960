"""Sessions, boxes that wait and pools against code that attacks them: what waits, what listens, what collects.

Everything here goes through the public face. A call must be answered within its deadline, by what was asked for and
nothing else, or by a clear fault; the manager's memory and descriptors must not grow; nothing may stay on the host.
Run by root and by an ordinary user, the same must hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ringfence import (
    InvalidArgument,
    LimitHit,
    Limits,
    PathAccessDenied,
    PoolConfig,
    RingfenceError,
    Sandbox,
    SandboxManager,
    SandboxPool,
    Signalled,
    TimedOut,
)
from ringfence.errors import FileError
from ringfence.manager import collecting
from ringfence.workspace.places import SESSIONS
from tests.integration.stage import SECRET, Place, descriptors, eventually

pytestmark = pytest.mark.req("B6")

T = TypeVar("T")

MIB = 1024 * 1024
ANSWER_SECONDS = 20.0
"""Beyond a call's own deadline. Interrupt and kill take 3.5 s; the rest is for a crowded machine."""
SMALL = Limits(output_bytes=4 * MIB, processes=200, memory_bytes=512 * MIB)


# --- what the tests stand on ------------------------------------------------------------------------------------------


async def answered(call: Awaitable[T], deadline: float) -> T:
    """What the call returns or raises; fails if it does neither in time."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(call)), deadline + ANSWER_SECONDS)
    except TimeoutError:
        pytest.fail(f"no answer {ANSWER_SECONDS:g} s after a deadline of {deadline:g} s")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def growth_below(allowed_bytes: int) -> AsyncIterator[None]:
    """Fails if this process ever uses that much more than at the beginning."""
    begin, most = resident_bytes(), [0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], resident_bytes() - begin)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    assert most[0] < allowed_bytes, f"the manager grew by {most[0] // MIB} MiB"


def python(program: str, *arguments: str) -> str:
    """The command line that runs a program."""
    return shlex.join(("python3", "-c", program, *arguments))


async def works(box: Sandbox) -> None:
    """Both kinds of call do what they are asked, and no more."""
    said = await answered(box.shell("echo asked", timeout=10), 10)
    assert (said.stdout, said.stderr, said.exit_code) == ("asked\n", "", 0)
    shown = await answered(box.python("print('asked')\n6 * 7", timeout=10), 10)
    assert (shown.stdout, [rich.text for rich in shown.results], shown.exception) == ("asked\n", ["42"], None), shown


async def run_beside(box: Sandbox, command: str) -> str:
    """What a command says that runs beside what waits, and is over before the next call."""
    process = await box.start(command)
    assert await process.wait(ANSWER_SECONDS) is not None
    return b"\n".join(process.read()).decode()


# --- what waits -------------------------------------------------------------------------------------------------------

TAMPER = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
INJECTED = b"echo injected; touch injected\0"

def call(name, *arguments):
    ctypes.set_errno(0)
    got = libc[name](*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if got < 0:
        raise OSError(ctypes.get_errno(), name)
    return got

def text_into_descriptor(pid):
    descriptor = os.open(f"/proc/{pid}/fd/9", os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, INJECTED)

def memory(pid):
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))

def stolen_descriptor(pid):
    handle = call("syscall", 434, pid, 0)
    os.close(call("syscall", 438, handle, 9, 0))

class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def written_memory(pid):
    data = ctypes.create_string_buffer(b"x")
    ours, theirs = Piece(ctypes.addressof(data), 1), Piece(4096, 1)
    try:
        call("process_vm_writev", pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    except OSError as fault:
        if fault.errno != 14:  # EFAULT: nobody has memory there, but we would have been let in
            raise

def trace(pid):
    call("ptrace", 0x4206, pid, 0, 0)  # PTRACE_SEIZE; ends with us

def others():
    ours, pid = set(), os.getpid()
    while pid:
        ours.add(pid)
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        if pid == 1:
            break
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in ours]

for pid in map(int, sys.argv[1:]) if sys.argv[1:] else others():
    print("target", pid, open(f"/proc/{pid}/cmdline").read().replace("\0", " ").replace("\n", " ")[:60])
    # The descriptor last: a shell that has taken text is no target any more.
    for attempt in (memory, trace, written_memory, stolen_descriptor, text_into_descriptor):
        try:
            attempt(pid)
        except OSError as fault:
            print("refused", attempt.__name__, fault.errno)
        else:
            print("WORKED", attempt.__name__)
"""
ATTEMPTS = {"memory", "trace", "written_memory", "stolen_descriptor", "text_into_descriptor"}
WAITING_SHELL = 'mkfifo p; bash -c \'IFS= read -r -d "" -u 9; eval "$REPLY"\' 9<>p & sleep 0.3; '


def test_what_waits_cannot_be_tampered_with_by_a_command(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("kept = 'kept'")
        await box.warm()

        said = await run_beside(box, python(TAMPER))

        assert "read -r -d" in said and "python" in said, f"nothing waited: {said}"
        assert "WORKED" not in said
        assert (await box.shell("echo asked")).stdout == "asked\n"
        assert (await box.python("print(kept)")).stdout == "kept\n"
        await works(box)

    place.in_box(work)
    assert not (place.workspace / "injected").exists()


def test_what_waits_cannot_be_tampered_with_by_a_cell(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("kept = 'kept'", context="other")
        await box.warm()

        said = (await box.python(f"import sys; sys.argv = ['']\n{TAMPER}")).stdout

        assert "read -r -d" in said, f"nothing waited: {said}"
        assert "WORKED" not in said
        assert (await box.shell("echo asked")).stdout == "asked\n"
        assert (await box.python("print(kept)", context="other")).stdout == "kept\n"

    place.in_box(work)
    assert not (place.workspace / "injected").exists()


def test_without_the_wall_what_waits_is_tampered_with_by_the_same_program(place: Place) -> None:
    """The twin. A process may do so to its own child, whatever the machine's ptrace scope says."""
    script = f'{WAITING_SHELL} {python("import sys; sys.argv[1:] = [sys.argv[1]]" + TAMPER)} "$!"; wait'

    said = place.host(script).stdout

    worked = {line.split()[1] for line in said.splitlines() if line.startswith("WORKED")}
    if os.geteuid() != 0:  # it is a brother here, which a ptrace scope of 1 forbids to trace
        worked |= {"memory", "trace", "written_memory", "stolen_descriptor"}
    assert worked == ATTEMPTS, said
    assert "injected" in said
    assert (place.workspace / "injected").exists()


def test_within_one_command_the_same_injection_works(place: Place) -> None:
    """The other twin: the box alone does not hinder it, only that each command is apart from the others."""
    said = place.run(f'{WAITING_SHELL} {python(TAMPER)} "$!"; wait').stdout

    assert "WORKED text_into_descriptor" in said
    assert "injected" in said


SIGNAL_OTHERS = r"""
import os, signal, sys
ours, pid = set(), os.getpid()
while pid > 1:
    ours.add(pid)
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in ours:
        try:
            os.kill(int(name), getattr(signal, sys.argv[1]))
            print("sent to", name)
        except OSError as fault:
            print("refused", name, fault.errno)
"""


@pytest.mark.parametrize("name", ["SIGSTOP", "SIGKILL", "SIGTERM", "SIGSEGV", "SIGHUP"])
def test_signals_to_what_waits_cost_at_most_the_next_call(place: Place, name: str) -> None:
    async def work(box: Sandbox) -> None:
        await box.warm()
        await run_beside(box, python(SIGNAL_OTHERS, name))

        first = await answered(box.shell("echo asked", timeout=3), 3)
        shown = await answered(box.python("print('asked')", timeout=3), 3)

        for result in (first, shown):
            assert result.stdout in ("asked\n", "")
            assert result.stdout or isinstance(result.ending, TimedOut | Signalled), result.ending
        await works(box)

    place.in_box(work)


def test_signals_to_what_waits_from_a_cell_cost_at_most_the_next_call(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        for name in ("SIGSTOP", "SIGKILL"):
            await box.warm()
            await box.python(f"import sys; sys.argv = ['', {name!r}]\n{SIGNAL_OTHERS}", context="hostile")
            first = await answered(box.shell("echo asked", timeout=3), 3)
            assert first.stdout == "asked\n" or isinstance(first.ending, TimedOut | Signalled), first.ending
            shown = await answered(box.python("print('asked')", timeout=3), 3)
            assert shown.stdout == "asked\n" or isinstance(shown.ending, TimedOut | Signalled), shown.ending
        await works(box)

    place.in_box(work)


def test_a_long_text_for_a_stopped_interpreter_leaves_the_manager_usable(place: Place) -> None:
    """More than its socket takes: what is not sent when it is given up must not be sent to anybody else."""

    async def work(box: Sandbox) -> None:
        await box.warm()
        long_code = "x = 1  #" + "x" * (4 * MIB)
        for _ in range(3):
            await box.python("pass")
            await run_beside(box, python(SIGNAL_OTHERS, "SIGSTOP"))
            with contextlib.suppress(RingfenceError):
                given_up = await answered(box.python(long_code, timeout=1), 1)
                assert isinstance(given_up.ending, TimedOut), given_up.ending
                assert not given_up.state_kept
            await answered(box.shell("true", timeout=1), 1)
            await works(box)

    place.in_box(work)


# --- frames -----------------------------------------------------------------------------------------------------------

FRAMES = {
    "a huge length": "os.write(9, b'display 999999999\\n')",
    "an impossible length": "os.write(9, b'display 18446744073709551616\\n')",
    "a negative length": "os.write(9, b'display -1\\n')",
    "garbage": "os.write(9, os.urandom(65536))",
    "a line without an end": "os.write(9, b'x' * 100000)",
    "an unknown kind": "os.write(9, b'run 3\\n1+1')",
    "half a frame": "os.write(9, b'display 16000000\\n' + b'x' * 1000)",
    "a body that is no parts": "os.write(9, b'display 5\\nhello')",
    "parts without end": "os.write(9, b'display 400\\n' + b'a 1\\nx' * 80)",
    "an error that is none": "os.write(9, b'error 7\\n{\"a\":1}')",
    "a code that cannot be": "os.write(9, b'done 9\\n999999999')",
    "no code": "os.write(9, b'done 0\\n')",
    "ready again": "os.write(9, b'ready 3\\n9.9' * 1000)",
    "a closed channel": "os.close(9)",
    "a closed stdout": "os.close(1)",
    "a closed stderr": "os.close(2)",
    "all closed": "os.closerange(0, 100)",
    "another channel": "s = __import__('socket').socketpair(); os.dup2(s[0].fileno(), 9)",
    "a channel that takes nothing": "s = __import__('socket').socket(fileno=9); s.shutdown(1)",
    "a channel that gives nothing": "s = __import__('socket').socket(fileno=9); s.shutdown(0)",
    "left at once": "os._exit(3)",
    "killed by itself": "os.kill(os.getpid(), 9)",
    "stopped by itself": "os.kill(os.getpid(), 19)",
}


@pytest.mark.parametrize("deed", FRAMES.values(), ids=FRAMES)
def test_no_frame_that_a_cell_forges_spoils_the_session(place: Place, deed: str) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("kept = 1")
        before = descriptors()
        async with growth_below(100 * MIB):
            try:
                await answered(box.python(f"import os, time\n{deed}", timeout=2), 2)
            except RingfenceError as fault:
                assert str(fault)
            # What the cell said may spoil one more call of its own interpreter.
            await answered(box.python("'settle'", timeout=2), 2)
            await works(box)
            assert descriptors() <= before + 4

    place.in_box(work, limits=SMALL)


ENDS = {
    "an early end": "os.write(9, b'done 1\\n0'); time.sleep(0.3)",
    "two ends": "os.write(9, b'done 1\\n0done 1\\n0')",
    "many ends": "os.write(9, b'done 1\\n0' * 5000)",
    "ends without end": (
        # A copy, for the interpreter closes the channel itself in what is forked.
        "channel = os.dup(9)\nif not os.fork():\n    while True: os.write(channel, b'done 1\\n0'), time.sleep(0.01)"
    ),
}


@pytest.mark.parametrize("deed", ENDS.values(), ids=ENDS)
def test_ends_that_a_cell_forges_are_gone_after_a_restart(place: Place, deed: str) -> None:
    async def work(box: Sandbox) -> None:
        await answered(box.python(f"import os, time\n{deed}", timeout=2), 2)
        for _ in range(3):
            await answered(box.python("'whose word is this?'", timeout=2), 2)
        await works_soon(box)

    place.in_box(work, limits=SMALL)


def test_an_end_that_was_forged_for_one_call_does_not_answer_another(place: Place) -> None:
    async def work(box: Sandbox) -> str:
        await box.python(f"import os, time\n{ENDS['ends without end']}", timeout=2)
        await asyncio.sleep(0.5)  # until the call's own end cannot be meant any more
        return (await box.python("time.sleep(0.5); print('asked')", timeout=5)).stdout

    assert place.in_box(work) == "asked\n"


STREAMS = {
    "empty displays": "b'display 0\\n' * 20000",
    "small displays": "b'display 14\\ntext/plain 1\\nx' * 10000",
    "empty parts": "b'display 128\\n' * 1 + b'a 0\\n' * 32",
    "large displays": "b'display 1000019\\ntext/plain 1000000\\n' + b'x' * 1000000",
    "errors": "b'error 4\\na 0\\n' * 10000",
    "an endless body": "b'x' * 65536",
    "ready": "b'ready 0\\n' * 20000",
    "ends": "b'done 1\\n0' * 20000",
}


@pytest.mark.parametrize("piece", STREAMS.values(), ids=STREAMS)
def test_no_endless_stream_of_frames_makes_the_manager_grow(place: Place, piece: str) -> None:
    async def work(box: Sandbox) -> None:
        async with growth_below(150 * MIB):
            streaming = f"import os\npiece = {piece}\nwhile True: os.write(9, piece)"
            with contextlib.suppress(RingfenceError):
                result = await answered(box.python(streaming, timeout=3), 3)
                assert len(result.results) < 20_000
        await works_soon(box)

    place.in_box(work, limits=SMALL)


async def works_soon(box: Sandbox) -> None:
    """As `works`, but calls may be answered by forged words first; the caller's way out is a restart."""
    await box.restart()
    await works(box)


def test_a_child_that_outlives_its_cell_cannot_make_the_manager_grow_or_hang(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        async with growth_below(150 * MIB):
            child = "while True: os.write(channel, b'display 14\\ntext/plain 1\\nx' * 1000)"
            await answered(box.python(f"import os\nchannel = os.dup(9)\nif not os.fork():\n    {child}", timeout=3), 3)
            for _ in range(3):
                await answered(box.python("1", timeout=2), 2)
            said = await answered(box.shell("echo asked", timeout=3), 3)
            assert said.stdout == "asked\n"
        await works_soon(box)

    place.in_box(work, limits=SMALL)


def test_frames_between_the_calls_cost_nothing(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        thread = (
            "import os, threading, time\n"
            "def go():\n"
            "    while True: os.write(9, b'display 14\\ntext/plain 1\\nx' * 1000)\n"
            "threading.Thread(target=go, daemon=True).start()"
        )
        await answered(box.python(thread, timeout=3), 3)
        async with growth_below(50 * MIB):
            await asyncio.sleep(2)
        await works_soon(box)

    place.in_box(work, limits=SMALL)


def test_descriptors_that_a_cell_sends_are_not_taken(place: Place) -> None:
    sending = """
import array, os, socket
s = socket.socket(fileno=os.dup(9))
for _ in range(200):
    files = array.array("i", [os.open("/dev/null", 0) for _ in range(100)])
    s.sendmsg([b"ready 0\\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    for one in files:
        os.close(one)
"""

    async def work(box: Sandbox) -> None:
        await box.python("1")
        before = descriptors()
        await answered(box.python(sending, timeout=10), 10)
        await answered(box.python("1"), 10)
        assert descriptors() <= before
        await works(box)

    place.in_box(work)


def test_descriptors_that_come_with_the_first_word_are_not_taken(place: Place) -> None:
    """While the kernel is asked for the sender, ancillary data is read: what else comes with it must be let go."""
    (place.workspace / "sitecustomize.py").write_text(
        "import array, os, socket\n"
        "try:\n"
        "    s = socket.socket(fileno=os.dup(9))\n"
        "    files = array.array('i', [os.open('/dev/null', 0) for _ in range(100)])\n"
        "    s.sendmsg([b'ready 0\\n'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])\n"
        "except OSError: pass\n"
    )

    async def work(box: Sandbox) -> None:
        await box.shell("true")
        before = descriptors()
        await answered(box.python("1", timeout=10), 10)
        await box.restart()
        await answered(box.python("1", timeout=10), 10)
        await box.restart()
        assert descriptors() <= before + 4

    place.in_box(work, env={"PYTHONPATH": "/workspace"})


def test_the_twin_takes_descriptors_where_they_are_asked_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        file = os.open("/dev/null", os.O_RDONLY)
        socket.send_fds(theirs, [b"ready 0\n"], [file] * 100)
        os.close(file)
        before = descriptors()
        _, taken, _, _ = socket.recv_fds(ours, 100, 100)
        assert descriptors() == before + 100
        for one in taken:
            os.close(one)


STUBBORN = {
    "never returns": "while True: pass",
    "sleeps": "import time; time.sleep(1000)",
    "ignores interrupts": "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nwhile True: time.sleep(1)",
    "catches interrupts": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "masks all signals": "import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass",
    "waits in a call": "import socket\na, b = socket.socketpair()\na.recv(1)",
    "holds the lock": "int('9' * 10_000_000) if False else 9 ** 9 ** 9",
    "many threads": (
        "import threading\n"
        "def go():\n    while True: pass\n"
        "for _ in range(20): threading.Thread(target=go).start()\n"
        "go()"
    ),
    "exits slowly": "import atexit, time, sys\natexit.register(time.sleep, 1000)\nsys.exit(3)",
    "an error that does not end": ("class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E"),
    "a value that does not end": "class V:\n    def __repr__(self):\n        while True: pass\nV()",
}


@pytest.mark.parametrize("deed", STUBBORN.values(), ids=STUBBORN)
def test_every_cell_is_answered_within_its_deadline(place: Place, deed: str) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("kept = 'kept'")
        begin = time.monotonic()
        result = await answered(box.python(deed, timeout=1), 1)
        assert time.monotonic() - begin < 1 + ANSWER_SECONDS
        after = await answered(box.python("print(kept)", timeout=10), 10)
        if isinstance(result.ending, TimedOut):
            assert (after.stdout == "kept\n") is result.state_kept
        await works(box)

    place.in_box(work, limits=SMALL)


def test_a_cell_that_fills_stdout_is_stopped_and_the_manager_does_not_grow(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        async with growth_below(100 * MIB):
            result = await answered(box.python("while True: print('x' * 100000)", timeout=10), 10)
        assert isinstance(result.ending, LimitHit), result.ending
        await works(box)

    place.in_box(work, limits=SMALL)


def test_a_cell_that_takes_all_memory_costs_at_most_its_interpreter(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        with contextlib.suppress(RingfenceError):
            result = await answered(box.python("x = []\nwhile True: x.append(bytearray(1 << 20))", timeout=30), 30)
            assert not result.ok
        await works(box)

    place.in_box(work, limits=Limits(memory_bytes=256 * MIB))


SHELL_DEEDS = {
    "forged frames": "exec 9>&10; printf 'display 999999999\\n' >&10",
    "garbage": "head -c 100000 /dev/urandom >&10",
    "an early end": "printf 'done 1\\n0' >&10; sleep 0.3",
    "a closed channel": "exec 10>&-",
    "no printf": "printf() { :; }",
    "no read": "read() { sleep 0.05; return 0; }",
    "no eval": "eval() { echo replaced; }",
    "no output": "exec >&- 2>&-",
    "an exit": "exit 3",
    "a loop": "while :; do :; done",
    "no interrupts": "trap '' INT TERM; while :; do :; done",
    "another program": "exec sleep 1000",
    "traps": "trap 'echo trapped' DEBUG EXIT ERR RETURN",
    "errors are fatal": "set -euo pipefail; false",
    "restricted": "set -r; readonly REPLY=1",
    "no room": "ulimit -n 3; ulimit -u 1; ulimit -v 1000",
}


@pytest.mark.parametrize("deed", SHELL_DEEDS.values(), ids=SHELL_DEEDS)
def test_nothing_that_a_shell_which_keeps_its_state_does_reaches_beyond_it(place: Place, deed: str) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell("kept=1", context="c")
        for command in (deed, "echo settle"):
            with contextlib.suppress(RingfenceError):
                await answered(box.shell(command, context="c", timeout=2), 2)
        await works(box)
        await box.restart("c", language="shell")
        assert (await answered(box.shell("echo asked", context="c", timeout=5), 5)).stdout == "asked\n"

    place.in_box(work, limits=SMALL)


def test_a_call_says_that_the_state_before_it_was_lost(place: Place) -> None:
    async def work(box: Sandbox) -> bool:
        await box.python("kept = 1")
        await run_beside(box, python(SIGNAL_OTHERS, "SIGKILL"))
        async with asyncio.timeout(10):
            while box.contexts():  # the manager has noticed
                await asyncio.sleep(0.01)
        return (await box.python("'kept' in globals()")).state_kept

    assert place.in_box(work) is False


# --- orphans ----------------------------------------------------------------------------------------------------------

DAEMON = r"""
import ctypes, os, sys, time
if "unset" in sys.argv:
    assert ctypes.CDLL(None).prctl(36, 0, 0, 0, 0) == 0
if os.fork():
    if "stay" in sys.argv:
        time.sleep(1000)
    time.sleep(0.2)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while True:
    with open("alive", "w") as file:
        file.write(str(time.time()))
    time.sleep(0.02)
"""


def beats(file: Path) -> bool:
    """Whether somebody still writes it."""
    before = file.stat().st_mtime_ns
    time.sleep(0.5)
    return file.stat().st_mtime_ns != before


def test_a_daemon_dies_with_its_command_and_nothing_else_does(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("kept = 'kept'")
        beside = await box.start(python("import time\nwhile True: print('on', flush=True); time.sleep(0.05)"))

        assert (await answered(box.shell(f"{python(DAEMON)}", timeout=10), 10)).ok

        assert (place.workspace / "alive").exists()
        assert not await asyncio.to_thread(beats, place.workspace / "alive")
        beside.read()
        await asyncio.sleep(0.5)
        assert beside.alive and b"on" in beside.read()[0]
        assert (await box.python("print(kept)")).stdout == "kept\n"

    place.in_box(work)


def test_the_same_daemon_lives_on_without_a_wall(place: Place) -> None:
    place.host(f"{python(DAEMON.replace('while True:', 'for _ in range(100):'))} >/dev/null 2>&1")
    assert beats(place.workspace / "alive")
    assert eventually(lambda: not beats(place.workspace / "alive"))


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
def test_a_daemon_of_a_command_that_is_no_reaper_dies_with_the_box_at_the_latest(place: Place, others: bool) -> None:
    async def work(box: Sandbox) -> None:
        if others:
            await box.warm()
            await box.start("sleep 1000")
        await answered(box.shell(f"exec {python(DAEMON, 'unset')}", timeout=10), 10)
        assert (place.workspace / "alive").exists()
        assert not await asyncio.to_thread(beats, place.workspace / "alive"), "it outlived its command"

    place.in_box(work)
    assert not beats(place.workspace / "alive")


def test_a_daemon_of_a_background_process_that_is_no_reaper_dies_with_the_box(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.start(f"exec {python(DAEMON, 'unset', 'stay')}")
        assert await asyncio.to_thread(eventually, (place.workspace / "alive").exists)
        await works(box)

    place.in_box(work)
    assert not beats(place.workspace / "alive")


BOMBS = {
    "shell": ":() { : | : & }; :; sleep 30",
    "that leaves": ":() { : | : & }; :",
    "of daemons": python(
        "import os\nwhile True:\n    try:\n        if not os.fork(): os.setsid()\n    except OSError: pass"
    ),
    "of no reaper": "exec "
    + python(
        "import ctypes, os\nctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\n"
        "for _ in range(40):\n    if not os.fork(): break\n"
        "while True:\n    try:\n        if os.fork(): os._exit(0)\n    except OSError: pass"
    ),
    "of threads": python(
        "import threading, time\n"
        "while True:\n    try: threading.Thread(target=time.sleep, args=(1000,)).start()\n    except RuntimeError: pass"
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_fork_bomb_beside_others_ends_and_the_session_goes_on(place: Place, bomb: str) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("kept = 1")
        beside = await box.start("sleep 1000")
        with contextlib.suppress(RingfenceError):
            await answered(box.shell(bomb, timeout=3), 3)
        for _ in range(3):  # what is left of the bomb may cost a call, and says so
            with contextlib.suppress(RingfenceError):
                if (await answered(box.shell("echo asked", timeout=5), 5)).stdout == "asked\n":
                    break
        await works(box)
        assert beside.alive or beside.ending is not None or not box.processes()

    place.in_box(work, limits=Limits(processes=100))


def test_a_fork_bomb_in_a_cell_ends_with_its_interpreter(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        with contextlib.suppress(RingfenceError):
            await answered(
                box.python("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", timeout=3), 3
            )
        await box.restart()
        await works(box)

    place.in_box(work, limits=Limits(processes=100))


# --- terminals --------------------------------------------------------------------------------------------------------

INJECT_KEYS = r"""
import fcntl, sys, termios
try:
    for key in b"touch typed\n":
        fcntl.ioctl(0, termios.TIOCSTI, bytes([key]))
    print("WORKED")
except OSError as fault:
    print("refused", fault.errno)
"""


def test_keys_cannot_be_typed_into_a_terminal_of_the_box(place: Place) -> None:
    async def work(box: Sandbox) -> str:
        process = await box.start(python(INJECT_KEYS), terminal=(24, 80))
        await process.wait(10)
        return process.read()[0].decode()

    said = place.in_box(work)

    assert "refused" in said and "WORKED" not in said, said


def test_keys_can_be_typed_into_a_terminal_where_the_kernel_lets_one(place: Place) -> None:
    setting = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if setting.exists() and setting.read_text().strip() == "0" and os.geteuid() != 0:
        pytest.skip("this kernel refuses it to everybody but root")
    said = place.host(f"script -qec {shlex.quote(python(INJECT_KEYS))} /dev/null </dev/null")
    if said.returncode == 127:
        pytest.skip("there is no script(1)")
    assert "WORKED" in said.stdout


def test_no_terminal_of_the_host_can_be_reached(place: Place) -> None:
    master, slave = os.openpty()
    name = os.ttyname(slave)
    attack = (
        f"for t in {name} /dev/pts/* /dev/tty /dev/console /dev/tty0; do echo knock >$t; done 2>/dev/null; ls /dev/pts"
    )
    try:
        os.set_blocking(master, False)

        async def work(box: Sandbox) -> None:
            await box.shell(attack, timeout=5)
            process = await box.start(attack, terminal=(24, 80))
            await process.wait(10)
            assert b"knock" in process.read()[0]  # its own it has

        place.in_box(work)
        with pytest.raises(BlockingIOError):
            os.read(master, 100)

        place.host(f"echo knock >{name}")  # the twin
        assert b"knock" in os.read(master, 100)
    finally:
        os.close(slave)
        os.close(master)


ESCAPES = b"\x1b]0;title\x07\x1b[6n\x1b[c\x1b]52;c;aGk=\x07\x1bP+q544e\x1b\\\xff\xfe\x9b"


def test_escape_sequences_are_bytes_and_nothing_is_answered_or_shown(
    place: Place, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = python(f"import os, sys; os.write(1, {ESCAPES!r}); os.set_blocking(0, False); print(os.read(0, 100))")

    async def work(box: Sandbox) -> tuple[bytes, bytes]:
        process = await box.start(command, terminal=(24, 80))
        await process.wait(10)
        return process.read()[0], (await box.shell(command)).stdout_bytes

    on_terminal, on_pipe = place.in_box(work)

    assert ESCAPES in on_terminal and ESCAPES in on_pipe
    assert b"BlockingIOError" in on_terminal  # there was no answer to read
    shown = capfdbinary.readouterr()
    assert b"\x1b" not in shown.out + shown.err


def test_a_terminal_that_is_full_can_be_read_and_ends_with_all_that_was_said(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        process = await box.start("stty -opost; head -c 50000 /dev/zero; echo end", terminal=(24, 80))
        said = b""
        for _ in range(5):
            time.sleep(0.1)
            said += process.read()[0]
        result = await answered(process.wait(5), 5)
        assert result is not None and result.ok
        said += process.read()[0]
        assert said == b"\0" * 50000 + b"end\n"

    place.in_box(work)


def test_the_other_end_of_a_terminal_goes_with_the_box(place: Place) -> None:
    before = descriptors()

    async def work() -> None:
        async with place.box() as box:
            process = await box.start("trap '' HUP; sleep 1000 & sleep 1000", terminal=(24, 80))
            assert process.alive
        assert not process.alive
        assert not await answered(process.write(b"x"), 1)
        process.read()
        process.resize(1, 1)

    asyncio.run(work())
    assert eventually(lambda: descriptors() <= before)


# --- boxes of a pool --------------------------------------------------------------------------------------------------


@pytest.fixture
def workspaces(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a pool makes its workspaces."""
    directory = place.home / "workspaces"
    monkeypatch.setenv("RINGFENCE_WORKSPACES_DIR", str(directory))
    return directory


def pool_of(count: int = 2, **options: Any) -> SandboxPool:
    return SandboxPool(size=PoolConfig(min_instances=count, max_instances=count + 2), **options)


LEAVE = "echo secret-of-one | tee /tmp/left ~/left left /dev/shm/left >/dev/null; " + python(
    "import ctypes, socket, time\n"
    "libc = ctypes.CDLL(None)\n"
    "assert libc.shmget(4711, 4096, 0o1666) >= 0\n"
    "assert libc.msgget(4711, 0o1666) >= 0\n"
    "s = socket.socket(socket.AF_UNIX); s.bind('\\0left'); s.listen(9)\n"
    "t = socket.socket(); t.bind(('127.0.0.1', 4711)); t.listen(9)\n"
    "print('left', flush=True)\n"
    "time.sleep(1000)",
    "secret-of-one",
)
LOOK = (
    "cat /tmp/left ~/left left /dev/shm/left /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | "
    "sed -n 's/^secret-of-one.*/SAW a file or a process/p'; "
    + python(
        "import ctypes, socket\n"
        "libc = ctypes.CDLL(None)\n"
        "if libc.shmget(4711, 0, 0) >= 0 or libc.msgget(4711, 0) >= 0: print('SAW System V IPC')\n"
        "for family, address in ((socket.AF_UNIX, '\\0left'), (socket.AF_INET, ('127.0.0.1', 4711))):\n"
        "    try: socket.socket(family).connect(address); print('SAW a socket', family)\n"
        "    except OSError: pass"
    )
)
"""Looks for everything that `LEAVE` leaves."""


def test_boxes_of_a_pool_see_nothing_of_each_other(place: Place, workspaces: Path) -> None:
    async def work() -> tuple[str, str, str]:
        async with pool_of() as pool:
            one, other = await pool.take(), await pool.take()
            leaving = await one.start(LEAVE)
            async with asyncio.timeout(10):
                while b"left" not in leaving.read()[0]:
                    await asyncio.sleep(0.02)
            own = (await one.shell(LOOK)).stdout
            side_by_side = (await other.shell(LOOK)).stdout
            pool.discard(one)
            later = await pool.take()
            afterwards = (await later.shell(LOOK)).stdout
            for sandbox in (other, later):
                pool.discard(sandbox)
            return own, side_by_side, afterwards

    own, side_by_side, afterwards = asyncio.run(work())

    for what in (
        "file or a process",
        "System V IPC",
        "socket 1",
        "socket 2",
    ):  # the twin: within one box it is all there
        assert what in own.replace("AddressFamily.AF_UNIX", "1").replace("AddressFamily.AF_INET", "2"), own
    assert (side_by_side, afterwards) == ("", "")
    assert not eventually(lambda: False, 0.1)


HOSTILE_TREES = {
    "a deep tree": python("import os\nfor _ in range(3000):\n    os.mkdir('d' * 100); os.chdir('d' * 100)"),
    "what nobody may enter": "mkdir -p a/b/c; touch a/b/c/f; chmod 000 a/b/c a/b a",
    "odd names": "touch -- $'new\\nline' $'\\xff' -rf '*' ' ' $'\\e[31m'; mkdir -- --help; ln -s . loop; ln -s / root",
    "read-only": "mkdir -p r/s; touch r/s/f; chmod 500 r/s r; chmod 500 .",
}


@pytest.mark.parametrize("tree", HOSTILE_TREES.values(), ids=HOSTILE_TREES)
def test_the_workspace_of_a_released_session_is_removed_where_that_is_asked_for(
    place: Place, workspaces: Path, tree: str
) -> None:
    outside = place.home / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")

    async def work() -> None:
        async with pool_of(1) as pool:
            box = await pool.acquire("s")
            await box.shell(f"{tree}; ln -s {outside} link")
            workspace = pool.sessions()[0].workspace
            assert workspace is not None and workspace.exists()
            await pool.release("s", remove_files=True)
            assert not workspace.exists()

    asyncio.run(work())
    assert (outside / "kept").exists()
    assert os.listdir(workspaces) == [SESSIONS] and os.listdir(workspaces / SESSIONS) == []


@pytest.mark.parametrize(
    "session_id",
    ["../x", "/etc/passwd", "a/../../b", "a\0b", "x" * 100_000, "\udcff\ud800", "\x1b[31m\n", ".", "..", "~", "$(id)"],
    ids=lambda name: ascii(name[:12]),
)
def test_a_session_id_names_no_path(place: Place, workspaces: Path, session_id: str) -> None:
    before = place.names(place.top)

    async def work() -> None:
        async with pool_of(1) as pool, SandboxManager(pool=pool) as manager:
            try:
                done = await manager.execute_shell("pwd; echo asked >made", session_id=session_id)
            except InvalidArgument:
                return  # as good: it is not taken at all
            assert done.success
            (info,) = manager.sessions()
            assert info.workspace is not None
            assert info.workspace.is_relative_to(workspaces) and len(str(info.workspace)) < 200
            assert (info.workspace / "made").read_text() == "asked\n"
            again = await manager.execute_shell("cat made", session_id=session_id)
            assert again.stdout == "asked\n"
            await manager.cleanup(session_id)

    asyncio.run(work())
    new = {name for name in place.names(place.top) - before if "journal" not in name and "workspaces" not in name}
    assert not {name for name in new if not name.startswith("home/.ringfence")}, new


# --- files that are collected -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def managing(**options: Any) -> AsyncIterator[SandboxManager]:
    async with pool_of(1, **options) as pool, SandboxManager(pool=pool) as manager:
        yield manager


def test_only_plain_files_of_the_workspace_are_collected(place: Place, workspaces: Path) -> None:
    secret = place.home / "diary"
    secret.chmod(0o644)
    command = f"""
    echo mine >plain; ln plain hard
    ln -s {secret} link; ln -s {place.home} way; ln -s /etc/passwd passwd; ln -s plain to-plain; ln -s loop loop
    mkfifo fifo; mkdir -p a/b; echo deep >a/b/deep
    mknod null c 1 3; ln {secret} hard-secret; ln /etc/passwd hard-passwd
    {python("import socket; socket.socket(socket.AF_UNIX).bind('socket')")}
    """

    async def work() -> dict[str, bytes | None]:
        async with managing(read=[place.home / "diary"]) as manager:
            done = await answered(manager.execute_shell(command, timeout=10), 10)
            return {file.path: file.data for file in done.files}

    assert asyncio.run(work()) == {"plain": b"mine\n", "hard": b"mine\n", "a/b/deep": b"deep\n"}


ODD_NAMES = [b"new\nline", b"\x1b[31mred", b"\xff\xfe", b" ", b"-rf", b"a\\b", b"x" * 255, "ü".encode(), b"..."]


def test_odd_names_are_collected_as_they_are(place: Place, workspaces: Path) -> None:
    making = python(f"for name in {ODD_NAMES!r}: open(name, 'wb').write(name)")

    async def work() -> dict[bytes, bytes | None]:
        async with managing() as manager:
            done = await answered(manager.execute_shell(making, timeout=10), 10)
            return {os.fsencode(file.path): file.data for file in done.files}

    assert asyncio.run(work()) == {name: name for name in ODD_NAMES}


FLOODS = {
    "many files": python("for n in range(25000): open(f'f{n}', 'w').close()"),
    "many directories": python("import os\nfor n in range(4000): os.mkdir(f'd{n}')"),
    "many levels": python("import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('deep', 'w')"),
    "a huge sparse file": "truncate -s 1000M big; truncate -s 900M big2; echo small >small",
    "many large files": python("for n in range(60): open(f'f{n}', 'wb').write(b'x' * 1000000)"),
    "a file that grows": "echo x >grows; (while :; do echo x >>grows; done) & sleep 0.2",
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_no_flood_of_files_makes_collecting_hang_or_grow(place: Place, workspaces: Path, flood: str) -> None:
    async def work() -> None:
        async with managing() as manager:
            await manager.execute_shell("true")
            async with growth_below(200 * MIB):
                done = await answered(manager.execute_shell(flood, timeout=30), 30)
            assert len(done.files) <= 1000
            assert sum(len(file.data or b"") for file in done.files) <= 32 * MIB
            assert (await manager.execute_shell("echo asked")).stdout == "asked\n"

    asyncio.run(work())


SWAP = r"""
import ctypes, os, sys
secret = sys.argv[1]
libc = ctypes.CDLL(None)
os.makedirs("stage/dir/below", exist_ok=True)
open("stage/dir/plain", "w").write("mine")
os.symlink(secret, "stage/link")
os.mkfifo("stage/fifo")
os.makedirs("top", exist_ok=True)
os.rename("stage/dir", "top/d")
print("ready", flush=True)
while True:
    for other in (b"stage/link", b"stage/fifo"):
        for _ in range(2):
            libc.renameat2(-100, b"top/d", -100, other, 2)
"""
"""Exchanges a directory with a link to one outside and with a fifo, as fast as it can."""


def test_a_directory_that_changes_during_the_walk_leads_nowhere(place: Place, workspaces: Path) -> None:
    outside = place.home / "outside"
    outside.mkdir()
    (outside / "plain").write_text(SECRET)
    (outside / "other").write_text(SECRET)

    async def work() -> None:
        async with managing() as manager:
            box = await manager.pool.acquire("s", "shell_exec")
            swapping = await box.start(python(SWAP, str(outside)))
            async with asyncio.timeout(10):
                while b"ready" not in swapping.read()[0]:
                    await asyncio.sleep(0.02)
            workspace = manager.sessions()[0].workspace
            assert workspace is not None
            seen = 0
            end = time.monotonic() + 4
            while time.monotonic() < end:
                walk = asyncio.to_thread(collecting.collect, workspace, 0, {})
                files = await asyncio.wait_for(asyncio.shield(walk), ANSWER_SECONDS)
                assert not any(SECRET.encode() in (file.data or b"") or "other" in file.path for file in files)
                seen += any(file.path == "top/d/plain" for file in files)
            assert seen, "the swapping was never won by the directory: nothing was tried"
            done = await answered(manager.execute_shell("echo x >made", session_id="s", collect=True), 5)
            assert "made" in {file.path for file in done.files}

    asyncio.run(work())


def test_a_workspace_that_was_closed_to_us_does_not_fail_the_call(place: Place, workspaces: Path) -> None:
    async def work() -> None:
        async with managing() as manager:
            done = await answered(manager.execute_shell("echo x >made; chmod 000 ."), 5)
            assert done.success
            assert (await manager.execute_shell("echo asked")).stdout == "asked\n"

    asyncio.run(work())


def test_times_cannot_be_set_back_to_hide_what_was_made(place: Place, workspaces: Path) -> None:
    async def work() -> set[str]:
        async with managing() as manager:
            done = await manager.execute_shell("echo x >made; touch -d 2001-01-01 made .")
            return {file.path for file in done.files}

    assert asyncio.run(work()) == {"made"}


# --- files that are given ---------------------------------------------------------------------------------------------

BAD_PATHS = ["../x", "/etc/ringfence-x", "a/../../x", "a/../../../../../x", "x\0y", "", ".", "..", "/", "a/"]


@pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
def test_given_files_cannot_be_put_outside(place: Place, workspaces: Path, path: str) -> None:
    async def work() -> None:
        async with managing() as manager:
            before = place.names(workspaces)
            with pytest.raises((RingfenceError, ValueError)):
                await answered(manager.execute_shell("true", files={path: b"x"}, session_id="s"), 5)
            made = {name for name in place.names(workspaces) - before if os.path.basename(name) == "x"}
            assert not made
            assert (await manager.execute_shell("echo asked", session_id="s")).stdout == "asked\n"

    asyncio.run(work())
    assert not Path("/etc/ringfence-x").exists()


def test_given_files_do_not_follow_what_an_earlier_call_planted(place: Place, workspaces: Path) -> None:
    outside = place.home / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    (outside / "victim").write_text("kept")
    (outside / "victim").chmod(0o666)
    links = f"ln -s {outside} way; ln -s {outside}/victim file; ln -s {outside}/new new; ln -s .. up"
    plant = f"{links}; mkfifo fifo; mkdir dir"

    async def work() -> None:
        async with managing() as manager:
            await manager.execute_shell(plant, session_id="s")
            for path in ("way/x", "way/victim", "file", "new", "fifo", "dir", "up/x", "fifo/x"):
                with contextlib.suppress(PathAccessDenied, FileError):  # or it takes the link's place
                    await answered(manager.execute_shell("true", files={path: b"changed"}, session_id="s"), 5)
            assert (await manager.execute_shell("echo asked", session_id="s")).stdout == "asked\n"
            info = manager.sessions()[0]
            assert info.workspace is not None
            assert not (info.workspace.parent / "x").exists()

    asyncio.run(work())
    assert (outside / "victim").read_text() == "kept"
    assert os.listdir(outside) == ["victim"]


def test_given_files_that_vanish_at_once_fail_clearly_or_not_at_all(place: Place, workspaces: Path) -> None:
    async def work() -> None:
        async with managing() as manager:
            box = await manager.pool.acquire("s", "shell_exec")
            await box.start(python("import os\nwhile True:\n    try: os.unlink('given')\n    except OSError: pass"))
            end = time.monotonic() + 3
            while time.monotonic() < end:
                with contextlib.suppress(RingfenceError):
                    await answered(manager.execute_shell("true", files={"given": b"x"}, session_id="s"), 5)

    asyncio.run(work())


def test_the_twin_follows_a_planted_link(place: Place) -> None:
    (place.home / "victim").write_text("kept")
    place.host(f"ln -s {place.home}/victim file")
    (place.workspace / "file").write_text("changed")
    assert (place.home / "victim").read_text() == "changed"
