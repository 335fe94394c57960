"""A keeper among enemies and accidents: others' sockets, links, processes behind walls, and everybody who dies."""

from __future__ import annotations

import array
import ctypes
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ringfence.keeper.becoming import take_image
from ringfence.keeper.child import CommandLine
from ringfence.keeper.serving import Keeper
from ringfence.keeper.settings import Settings
from ringfence.keeper.wire import CALL, READY, Place
from tests.support.keepers import FRONT, Stage, a_copy, is_alive, is_handed_over, is_running, kill, wait_for

pytestmark = pytest.mark.timeout(300)

_PR_SET_NO_NEW_PRIVS = 38
NO_LINE = CommandLine(lambda: None, lambda *_: False)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """In a directory with a short name: a socket's address has room for 107 characters."""
    with tempfile.TemporaryDirectory(prefix="k-") as top:
        made = Stage(Path(top))
        yield made
        made.stop()


# --- who may call, and who is called ----------------------------------------------------------------------------------


def say(address: Path, message: bytes) -> bytes:
    """What is answered to one message; nothing if the connection is closed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(str(address))
        try:
            assert connection.recv(1) in (b"A", b"")
            connection.send(message)
            return connection.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return b""


SAY = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setresuid(61777, 61777, 61777)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[2])
try:
    connection.recv(1)
    connection.send(b"RFSTATUS")
    print(len(connection.recv(4096)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""


@pytest.mark.root
def test_another_user_gets_no_answer_even_where_the_directory_is_open(stage: Stage) -> None:
    stage.start()
    stage.places.chmod(0o755)
    stage.socket.chmod(0o777)
    line = [sys.executable, "-I", "-c", SAY, str(stage.places), stage.socket.name]
    strange = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    own = say(stage.socket, b"RFSTATUS")
    stage.places.chmod(0o700)

    assert strange.stdout.strip() == "0", strange.stderr
    assert own.startswith(b"{"), "who has the same uid is answered"


def spoil_mode(stage: Stage) -> None:
    stage.places.chmod(0o755)


def spoil_by_link(stage: Stage) -> None:
    stage.places.rename(stage.runtime / "elsewhere")
    stage.places.symlink_to("elsewhere")


def spoil_runtime(stage: Stage) -> None:
    stage.runtime.chmod(0o750)


def spoil_socket_by_link(stage: Stage) -> None:
    place = stage.socket
    place.rename(stage.top / "real")
    place.symlink_to(stage.top / "real")


def nothing(stage: Stage) -> None: ...


@pytest.mark.parametrize("spoil", [nothing, spoil_mode, spoil_by_link, spoil_runtime, spoil_socket_by_link])
def test_a_place_that_is_not_safe_is_no_place(tmp_path: Path, spoil: Callable[[Stage], None]) -> None:
    """With a listener of ours that notes who comes: only where nothing is wrong somebody does."""
    stage = Stage(tmp_path)
    stage.start()
    address = stage.socket
    stage.stop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        _bind(listener, address)
        listener.listen()
        listener.setblocking(False)
        spoil(stage)
        done = stage.call("--version")
        try:
            listener.accept()[0].close()
            has_come = True
        except BlockingIOError:
            has_come = False

    assert (done.returncode, done.stderr) == (0, b""), "the plain way, and no word about it"
    assert has_come == (spoil is nothing)
    for each in stage.top.rglob("*.sock"):
        each.unlink()
    stage.runtime.chmod(0o700)
    stage.stop()


FAKE = """
import os, socket, sys
os.chdir(sys.argv[1])
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[2])
listener.listen()
os.chown(sys.argv[2], int(sys.argv[3]), -1)
os.chmod(sys.argv[2], 0o777)
if sys.argv[4] == "other":
    os.setresuid(61777, 61777, 61777)
    listener.listen()  # whoever listens is who the peer is told
print("listens", flush=True)
connection, _ = listener.accept()
try:
    connection.send(b"A")
except BrokenPipeError:
    pass
print(len(connection.recv(4096)), flush=True)
"""


@pytest.mark.root
@pytest.mark.parametrize("who", ["other", "own"])
def test_a_listener_of_another_user_is_told_nothing(stage: Stage, who: str) -> None:
    stage.start()
    address = stage.socket
    stage.stop()
    line = [sys.executable, "-I", "-c", FAKE, str(address.parent), address.name, str(os.getuid()), who]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as fake:
        assert fake.stdout is not None and fake.stdout.readline() == b"listens\n"
        done = stage.call("--version")
        told = fake.stdout.readline()
    address.unlink()

    assert done.returncode == 0 and done.stderr == b""
    assert told == (b"0\n" if who == "other" else told) and (int(told) > 0) == (who == "own")


CALL_BY_HAND = """
import array, ctypes, os, socket, struct, sys
if sys.argv[2] == "walled":
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
words = os.memfd_create("words")
entries = [name + b"=" + value for name, value in os.environb.items()]
os.write(words, b"22 0 0 2\\n" + b"\\0".join([b"ringfence", b"--version", *entries, b""]))
here = os.open(".", os.O_PATH)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
fds = array.array("i", [other.fileno(), words, here, 0, 1, 2])
connection.sendmsg([b"RFCALL2\\0" + struct.pack("Q3i", 0, 0, 1, 2)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
other.close()
print(line.recv(4096).decode())
"""


@pytest.mark.parametrize("how", ["walled", "free"])
def test_a_process_behind_a_wall_cannot_have_a_command_started_outside(stage: Stage, how: str) -> None:
    """`no_new_privs` stands for every wall that a process can put around itself: it is part of them all."""
    stage.start()
    line = [sys.executable, "-I", "-c", CALL_BY_HAND, str(stage.socket), how]
    done = subprocess.run(
        line, env=stage.env, cwd=stage.project, capture_output=True, text=True, timeout=60, check=False
    )

    if how == "free":
        assert done.stdout.startswith("R"), done.stderr
    else:
        assert done.stdout.startswith("P") and "privileges" in done.stdout, (done.stdout, done.stderr)


def _promise_no_new_privileges() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


@pytest.mark.parametrize("how", ["walled", "free"])
def test_there_is_no_keeper_where_a_wall_around_a_caller_would_not_show(stage: Stage, how: str) -> None:
    """Under `no_new_privs` everybody has it: who is behind Landlock besides looks the same, and could write by it."""
    before = _promise_no_new_privileges if how == "walled" else None
    assert stage.call("--version", preexec_fn=before).returncode == 0
    is_begun = bool(list(stage.places.glob("*.lock")))

    assert is_begun == (how == "free")
    by_hand = f'exec 3>{stage.top}/lock 4<{stage.runtime}; exec "$0" keeper serve 0123456789abcdef'
    line = ["sh", "-c", by_hand, str(FRONT.with_name("ringfence-python"))]
    with subprocess.Popen(line, env=stage.env, stderr=subprocess.PIPE, preexec_fn=before) as served:
        if how == "free":
            wait_for((stage.runtime / "0123456789abcdef.sock").exists)
            served.terminate()
        _, said = served.communicate(timeout=60)
    assert (b"no_new_privs" in said) == (how == "walled"), said


def test_nonsense_does_no_harm(stage: Stage) -> None:
    pid = stage.start()
    for message in (b"x", CALL, CALL + b"\0" * 11, CALL + struct.pack("Q40i", 0, *range(40)), os.urandom(200)):
        assert say(stage.socket, message) == b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent, open("/dev/null") as file:
        silent.connect(str(stage.socket))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as liar:
            liar.connect(str(stage.socket))
            numbers = array.array("i", [file.fileno()] * 5)
            liar.sendmsg([CALL + struct.pack("Q2i", 0, -1, 10**6)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
            assert liar.recv(10) == b"A" and liar.recv(10) in (b"", b"E\1")
        assert stage.call("--version").returncode == 0

    assert [each["pid"] for each in stage.status()] == [pid]


def test_a_caller_with_other_limits_has_another_keeper(stage: Stage) -> None:
    def fewer_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))

    first = stage.start()
    assert stage.call("--version", preexec_fn=fewer_files).returncode == 0
    wait_for(lambda: len(stage.status()) == 2)
    assert stage.call("run", "ulimit -Hn", preexec_fn=fewer_files).stdout.strip() <= b"500"
    assert first in {each["pid"] for each in stage.status()}


# --- everybody dies ---------------------------------------------------------------------------------------------------


def test_a_stale_socket_is_replaced(stage: Stage) -> None:
    pid = stage.start()
    kill(pid)
    wait_for(lambda: not is_alive(pid))
    assert stage.socket.exists()
    done = stage.call("run", "echo plain")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"plain\n", b"")

    again = wait_for(lambda: [each["pid"] for each in stage.status()])
    assert again != [pid]


def begin(stage: Stage, length: str) -> subprocess.Popen[bytes]:
    process = stage.popen("run", f"echo begun; sleep {length}", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    assert is_handed_over(process)
    wait_for(lambda: is_running(("sleep", length)))
    return process


def test_a_keeper_that_is_killed_takes_its_boxes_along_and_the_caller_says_so(stage: Stage) -> None:
    pid = stage.start()
    with begin(stage, "71.5") as process:
        kill(pid)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 125
    assert b"keeper" in said and b"RINGFENCE_KEEPER=off" in said
    wait_for(lambda: not is_running(("sleep", "71.5")))


def test_a_caller_that_is_killed_takes_its_box_along(stage: Stage) -> None:
    stage.start()
    with begin(stage, "72.5") as process:
        process.kill()
        process.wait(60)
        wait_for(lambda: not is_running(("sleep", "72.5")))
        wait_for(lambda: stage.status()[0]["running"] == 0)


def test_a_keeper_that_is_stopped_while_calls_run_lets_them_end(stage: Stage) -> None:
    pid = stage.start()
    process = stage.popen("run", "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo end", stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        assert stage.call("keeper", "stop").returncode == 0
        assert not stage.status()
        (stage.project / "go").touch()
        assert process.stdout.read() == b"end\n" and process.wait(60) == 0
    wait_for(lambda: not is_alive(pid))


def test_a_keeper_that_is_stopped_ends_with_its_last_call_however_long_that_takes(stage: Stage) -> None:
    stage.env["RINGFENCE_KEEPER_IDLE_SECONDS"] = "1"
    pid = stage.start()
    process = stage.popen("run", "echo begun; sleep 3; echo end", stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        assert stage.call("keeper", "stop").returncode == 0
        assert process.stdout.read() == b"end\n" and process.wait(60) == 0
    wait_for(lambda: not is_alive(pid))


def test_a_keeper_that_does_not_answer_is_not_waited_for(stage: Stage) -> None:
    pid = stage.start()
    kill(pid, signal.SIGSTOP)
    try:
        done = stage.call("run", "echo plain >> made; cat made")
    finally:
        kill(pid, signal.SIGCONT)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"plain\n", b"")

    assert stage.call("--version").returncode == 0  # after it, the keeper has found that the first caller is gone
    wait_for(lambda: stage.status()[0]["running"] == 0)
    assert (stage.project / "made").read_text() == "plain\n", "it ran once"


def test_a_keeper_of_an_old_version_serves_nobody(tmp_path: Path) -> None:
    stage = Stage(tmp_path, front=a_copy(tmp_path))
    pid = stage.start()
    before = stage.call("run", "echo same")
    assert before.stdout == b"same\n" and stage.calls() >= 1
    for file in (tmp_path / "lib" / "ringfence" / "cli").glob("exits.py"):
        file.write_text(file.read_text().replace("FAULT_CODE = 125", "FAULT_CODE = 124"))

    def is_gone() -> bool:
        assert stage.call("run", "--no-such-option").returncode == 124, "the new code has answered"
        return not is_alive(pid)  # it learns of it from the first call that reaches it; a slow one goes the plain way

    wait_for(is_gone)
    assert stage.start() != pid
    assert stage.call("run", "--no-such-option").returncode == 124
    stage.stop()


def test_a_keeper_goes_when_nobody_calls(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_PATH)
    lock = os.open(tmp_path / "x.lock", os.O_CREAT | os.O_RDWR, 0o600)
    child = os.fork()
    if child == 0:
        Keeper(Place(directory, "x"), lock, take_image(), NO_LINE, Settings(idle_seconds=0.3)).serve()
        os._exit(9)
    os.close(directory)
    os.close(lock)
    wait_for(lambda: (tmp_path / "x.sock").exists())
    began = time.monotonic()
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 9 and not (tmp_path / "x.sock").exists()
    assert time.monotonic() - began < 30


def test_a_keeper_goes_with_its_runtime_directory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.keeper.serving._LOOK_SECONDS", 0.1)
    directory = os.open(stage.runtime, os.O_PATH)
    lock = os.open(stage.runtime / "x.lock", os.O_CREAT | os.O_RDWR, 0o600)
    child = os.fork()
    if child == 0:
        Keeper(Place(directory, "x"), lock, take_image(), NO_LINE, Settings()).serve()
        os._exit(9)
    os.close(directory)
    os.close(lock)
    wait_for(lambda: (stage.runtime / "x.sock").exists())
    shutil.rmtree(stage.runtime)
    _, status = os.waitpid(child, 0)
    stage.runtime.mkdir(mode=0o700)

    assert os.waitstatus_to_exitcode(status) == 9


# --- many -------------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_two_hundred_callers_at_once_are_all_served(stage: Stage) -> None:
    stage.start()
    with ThreadPoolExecutor(200) as threads:
        done = list(threads.map(lambda number: stage.call("check", "--json", f"echo {number}"), range(200)))
        ran = list(threads.map(lambda number: stage.call("run", f"echo {number}"), range(40)))

    assert {each.returncode for each in done} == {0}, [each.stderr for each in done if each.returncode][:1]
    assert all(str(number).encode() in each.stdout for number, each in enumerate(done))
    assert [each.stdout for each in ran] == [f"{number}\n".encode() for number in range(40)]
    assert stage.calls() >= 200


def test_of_many_first_callers_one_starts_a_keeper(stage: Stage) -> None:
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda _: stage.call("--version"), range(8)))
    assert {each.returncode for each in done} == {0}

    wait_for(stage.status)
    assert len(stage.status()) == 1


# --- the front --------------------------------------------------------------------------------------------------------


def test_the_front_takes_no_interpreter_from_path_or_variables(stage: Stage, tmp_path: Path) -> None:
    """By a link too, as installers of tools make them."""
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("python", "python3", "ringfence-python", Path(sys.executable).name):
        (trap / name).write_text("#!/bin/sh\necho trapped\n")
        (trap / name).chmod(0o755)
    (trap / "ringfence").symlink_to(FRONT)
    line = [str(trap / "ringfence"), "--version"]
    env = stage.env | {"PATH": str(trap), "RINGFENCE_KEEPER": "off", "VIRTUAL_ENV": str(trap)}
    done = subprocess.run(line, cwd=trap, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.startswith("ringfence ") and done.returncode == 0, done.stderr
    trapped = subprocess.run(["python3"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert trapped.stdout == "trapped\n", "who asks PATH gets the other one"


def _bind(listener: socket.socket, address: Path) -> None:
    directory = os.open(address.parent, os.O_PATH)
    listener.bind(f"/proc/self/fd/{directory}/{address.name}")
    os.close(directory)


def test_the_constants_are_the_kernels() -> None:
    assert ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS + 1, 0, 0, 0, 0) in (0, 1), "PR_GET_NO_NEW_PRIVS"
    assert READY == b"R"
