"""What programs expect of a machine, behind each native wall: addresses, queues, tracing."""

import errno
import os
import shutil
import stat
import tempfile

import pytest

from ringfence import Result, Sandbox
from ringfence.values.outcome import TimedOut
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A7", "D3")

PYTHON = "/usr/bin/python3"


@pytest.fixture(params=["bwrap", "unshare"], autouse=True)
def wall(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", request.param)


def run_python(place: Place, program: str, **options: object) -> Result:
    (place.workspace / "program.py").write_text(program)
    return place.run([PYTHON, "program.py"], **options)


# --- addresses --------------------------------------------------------------------------------------------------------

ADDRESSES = """
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "localhost")):
    found = socket.getaddrinfo(host, 80, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    print(found[0][4][0])
"""


def test_an_address_is_found_also_if_the_machine_has_to_have_its_family(place: Place) -> None:
    assert run_python(place, ADDRESSES).stdout.split() == ["127.0.0.1", "::1", "127.0.0.1"]


LISTEN_EVERYWHERE = """
import socket
for family, host in ((2, "127.0.0.1"), (2, "127.82.70.1"), (10, "::1"), (10, "fd72:696e:6766::1"), (2, "0.0.0.0")):
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((host, 0)); server.listen()
        client.connect(server.getsockname()[:2])
        print(client.getpeername()[0], server.accept()[1][0])
"""


def test_a_server_listens_on_every_address_that_it_finds(place: Place) -> None:
    done = run_python(place, LISTEN_EVERYWHERE)

    assert done.stdout.splitlines() == [
        "127.0.0.1 127.0.0.1",
        "127.82.70.1 127.82.70.1",
        "::1 ::1",
        "fd72:696e:6766::1 fd72:696e:6766::1",
        "127.0.0.1 127.0.0.1",
    ]
    assert done.violations == ()


def test_the_second_addresses_lead_nowhere(place: Place) -> None:
    done = run_python(
        place,
        "import socket\n"
        "for family, host in ((2, '10.0.0.1'), (10, '2001:db8::1'), (10, 'fd72:696e:6766::2')):\n"
        "    try: socket.socket(family).connect((host, 80))\n"
        "    except OSError as fault: print(fault.errno)\n",
        trace="off",
    )

    assert done.stdout.split() == [str(errno.ENETUNREACH)] * 3


# --- sockets ----------------------------------------------------------------------------------------------------------

BIND = """
import os, socket, sys
path = sys.argv[1]
server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect(path)
print("bound", oct(os.stat(path).st_mode))
os.unlink(path)
"""


@pytest.mark.parametrize("trace", ["off", "changes", "full"])
def test_a_socket_in_the_private_tmp_is_bound_whatever_the_host_has_there(place: Place, trace: str) -> None:
    """As PostgreSQL does, whose socket has a name that is the same on every machine."""
    descriptor, name = tempfile.mkstemp(prefix=".s.PGSQL.", dir="/tmp")
    os.close(descriptor)
    try:
        (place.workspace / "program.py").write_text(BIND)
        done = place.run([PYTHON, "program.py", name], trace=trace)
    finally:
        os.unlink(name)

    assert done.stdout.startswith("bound"), done.stderr
    assert done.violations == ()


def test_a_socket_under_a_protected_name_is_not_bound_and_the_refusal_says_why(repository: Place) -> None:
    (repository.workspace / "program.py").write_text(BIND)

    done = repository.run([PYTHON, "program.py", ".git/hooks/pre-commit"])

    assert not done.ok
    assert not (repository.workspace / ".git" / "hooks" / "pre-commit").exists()
    assert [violation.rule for violation in done.violations] == ["protected .git/hooks"]


@pytest.mark.skipif(shutil.which("redis-server", path="/usr/bin") is None, reason="there is no redis on this machine")
def test_redis_serves_by_a_socket_in_tmp(place: Place) -> None:
    done = place.run(
        "redis-server --port 0 --unixsocket /tmp/redis.sock --save '' --daemonize no --oom-score-adj yes > log 2>&1 & "
        "for i in $(seq 50); do redis-cli -s /tmp/redis.sock ping && break; sleep 0.1; done; "
        "redis-cli -s /tmp/redis.sock set a 1; redis-cli -s /tmp/redis.sock shutdown nosave; wait; cat log"
    )

    assert "PONG\nOK\n" in done.stdout
    assert "oom" not in done.stdout.lower().replace("--oom-score-adj", ""), done.stdout


# --- a process's own files --------------------------------------------------------------------------------------------

OWN_FILES = """
import os
for name, text in (("comm", "renamed"), ("oom_score_adj", "500"), ("coredump_filter", "0x33"), ("clear_refs", "1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
    print(name)
print(open("/proc/self/comm").read().strip(), open("/proc/self/oom_score_adj").read().strip())
"""


def test_a_process_writes_its_own_files_in_proc(place: Place) -> None:
    assert run_python(place, OWN_FILES).stdout.split() == [
        *("comm", "oom_score_adj", "coredump_filter", "clear_refs"),
        *("renamed", "500"),
    ]


def test_a_thread_is_given_a_name(place: Place) -> None:
    program = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
libc.pthread_self.restype = ctypes.c_void_p
def other():
    ready.set(); done.wait()
    names.append(open(f"/proc/self/task/{threading.get_native_id()}/comm").read())
ready, done, names = threading.Event(), threading.Event(), []
thread = threading.Thread(target=other); thread.start(); ready.wait()
print(libc.pthread_setname_np(ctypes.c_void_p(thread.ident), b"named"))
done.set(); thread.join(); print(names[0])
"""

    assert run_python(place, program).stdout.split() == ["0", "named"]


WRITABLE = """
import os
tried = 0
for top, directories, files in os.walk("/proc"):
    if top == "/proc":
        directories[:] = [name for name in directories if not name.isdigit() and name not in ("self", "thread-self")]
    for name in files:
        path = os.path.join(top, name)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); print("WRITABLE", path)
        except OSError:
            tried += 1
print("tried", tried > 500)
"""


def test_nothing_of_the_machine_is_writable_in_proc(place: Place) -> None:
    assert run_python(place, WRITABLE).stdout == "tried True\n"


def test_pid_1_is_not_writable_in_proc(place: Place) -> None:
    done = place.run(
        "for f in mem comm oom_score_adj coredump_filter; do (echo 0 > /proc/1/$f) && echo $f; done; echo end"
    )

    assert done.stdout == "end\n"


# --- message queues ---------------------------------------------------------------------------------------------------

QUEUE = """
import ctypes, os
library = ctypes.CDLL("librt.so.1", use_errno=True)
queue = library.mq_open(b"/ringfence-test", os.O_CREAT | os.O_RDWR, 0o600, None)
if queue < 0:
    raise SystemExit(os.strerror(ctypes.get_errno()))
print(library.mq_send(queue, b"hello", 5, 1), os.listdir("/dev/mqueue"), library.mq_unlink(b"/ringfence-test"))
"""


def test_a_message_queue_is_made_and_is_the_boxs_own(place: Place) -> None:
    assert run_python(place, QUEUE).stdout == "0 ['ringfence-test'] 0\n"


# --- tracing ----------------------------------------------------------------------------------------------------------

TRACE_OWN_CHILD = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
child = os.fork()
if not child:
    libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.WIFSTOPPED(status), libc.ptrace(7, child, 0, 0))  # PTRACE_CONT
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_traces_its_own_child_as_debuggers_do(place: Place) -> None:
    assert run_python(place, TRACE_OWN_CHILD).stdout.split() == ["True", "0", "7"]


@pytest.mark.skipif(shutil.which("strace", path="/usr/bin") is None, reason="there is no strace on this machine")
def test_strace_works(place: Place) -> None:
    done = place.run("strace -f -e trace=execve -o trace sh -c 'true; /bin/echo straced'; grep -c execve trace")

    assert done.stdout == "straced\n2\n"


@pytest.mark.skipif(shutil.which("gdb", path="/usr/bin") is None, reason="there is no gdb on this machine")
def test_gdb_works(place: Place) -> None:
    done = place.run("gdb -q -batch -ex 'catch syscall write' -ex run -ex 'print $pc' --args /bin/echo hi")

    assert "Catchpoint 1 (call to syscall write)" in done.stdout, done.stdout + done.stderr


SEIZE_PARENT_AND_STAY = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getpid()
ready, tell = os.pipe()
if not os.fork():
    os.setsid()
    os.write(tell, str(libc.ptrace(0x4206, parent, 0, 0)).encode())  # PTRACE_SEIZE
    time.sleep(600)
print(os.read(ready, 8).decode(), flush=True)
"""
BE_TRACED_BY_PID_1 = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(0, 0, 0, 0), flush=True)  # PTRACE_TRACEME: whoever started us is our tracer
os.kill(os.getpid(), signal.SIGUSR1) if "signal" in sys.argv else None
os.execv("/bin/sh", ["sh", "-c", "echo after; exit 3"])
"""


def test_who_makes_pid_1_its_tracer_goes_on_and_ends_as_it_would(place: Place) -> None:
    (place.workspace / "program.py").write_text(BE_TRACED_BY_PID_1)

    async def work(box: Sandbox) -> list[tuple[str, int]]:
        await box.warm()
        done = [await box.exec([PYTHON, "program.py", *how], timeout=10) for how in ([], ["signal"], [])]
        return [(result.stdout, result.exit_code) for result in done]

    plain, signalled, again = place.in_box(work)
    assert plain == again == ("0\nafter\n", 3)
    assert signalled == ("0\n", 128 + 10)


def test_a_tracer_that_stays_does_not_keep_its_command_from_being_ended(place: Place) -> None:
    """A process that another one traces cannot be reaped before that one has ended."""
    (place.workspace / "program.py").write_text(SEIZE_PARENT_AND_STAY)

    async def work(box: Sandbox) -> None:
        await box.python("kept = 'kept'")
        await box.warm()
        held = await box.exec([PYTHON, "program.py"], timeout=2)
        assert (held.stdout, type(held.ending)) == ("0\n", TimedOut)
        assert (await box.shell("echo next", timeout=10)).stdout == "next\n"
        assert (await box.python("print(kept)")).stdout == "kept\n"

    place.in_box(work)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_manual_page_is_shown(place: Place) -> None:
    if shutil.which("man", path="/usr/bin") is None or not os.path.exists("/usr/share/man/man1"):
        pytest.skip("there are no manual pages on this machine")

    done = place.run("man -w ls")

    assert "man" in done.stdout or "No manual entry" in done.stderr, done.stderr
    assert "configuration" not in done.stderr


@pytest.mark.parametrize("trace", ["off", "changes", "full"])
def test_a_new_env_file_is_written_and_read_whatever_is_looked_at(place: Place, trace: str) -> None:
    done = place.run(
        "echo A=1 > .env; echo B=2 >> .env; mkdir s; echo C=3 > new; mv new s/.env; cat .env s/.env", trace=trace
    )

    assert done.stdout == "A=1\nB=2\nC=3\n", done.stderr
    assert done.violations == ()


@pytest.mark.parametrize("trace", ["off", "changes", "full"])
def test_an_env_file_of_the_host_is_neither_read_nor_written_whatever_is_looked_at(place: Place, trace: str) -> None:
    (place.workspace / ".env").write_text("SECRET=1\n")

    done = place.run("cat .env; echo x > .env; echo y >> .env; mv .env other; rm -f .env; echo end", trace=trace)

    assert done.stdout == "end\n"
    assert (place.workspace / ".env").read_text() == "SECRET=1\n"


WHITEOUT = """
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
open("a", "w").close()
print(libc.renameat2(-100, b"a", -100, b"b", 4), ctypes.get_errno())
for kind in (stat.S_IFCHR, stat.S_IFBLK):
    try: os.mknod("device", kind | 0o600, 0)
    except OSError as fault: print(fault.errno)
print(libc.renameat2(-100, b"a", -100, b"b", 1), os.path.exists("b"))
"""


@pytest.mark.req("B6")
def test_no_device_node_is_left_in_the_workspace(place: Place) -> None:
    done = run_python(place, WHITEOUT)

    assert done.stdout.split() == ["-1", str(errno.EPERM), str(errno.EPERM), str(errno.EPERM), "0", "True"]
    kinds = [(place.workspace / name).lstat().st_mode for name in place.names()]
    assert all(stat.S_ISREG(mode) for mode in kinds)


def test_without_the_wall_the_same_program_leaves_one(place: Place) -> None:
    (place.workspace / "program.py").write_text(WHITEOUT.split("for kind")[0])

    assert place.host(f"{PYTHON} program.py").stdout.split()[0] == "0"
    assert stat.S_ISCHR((place.workspace / "a").lstat().st_mode)
