"""The blocking face: the same calls without asyncio, in notebooks and threads, and nothing is left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FunctionType

import pytest

import ringfence
from ringfence import (
    Busy,
    Closed,
    CommandNotAllowed,
    ExecutionRequest,
    NotFound,
    Output,
    Result,
    TimedOut,
    Verdict,
    sync,
)
from tests.integration.stage import Place

pytestmark = pytest.mark.req("X2", "E1")

PAIRS = [
    (sync.Sandbox, ringfence.Sandbox),
    (sync.SandboxManager, ringfence.SandboxManager),
    (sync.SandboxPool, ringfence.SandboxPool),
    (sync.BoxFiles, ringfence.BoxFiles),
    (sync.Process, ringfence.Process),
    (sync.Workspaces, ringfence.Workspaces),
    (sync.SnapshotStore, ringfence.SnapshotStore),
    (sync.SandboxExecutor, ringfence.SandboxExecutor),
    (sync.SubprocessExecutor, ringfence.SubprocessExecutor),
    (sync.DockerExecutor, ringfence.DockerExecutor),
    (sync.SandboxBuilder, ringfence.SandboxBuilder),
    (sync.BashTool, ringfence.BashTool),
    (sync.RunCodeTool, ringfence.RunCodeTool),
    (sync.FileReadTool, ringfence.FileReadTool),
    (sync.FileWriteTool, ringfence.FileWriteTool),
    (sync.FileEditTool, ringfence.FileEditTool),
    (sync.FileListTool, ringfence.FileListTool),
    (sync.SearchTool, ringfence.SearchTool),
    (sync.WorldInterface, ringfence.WorldInterface),
    (sync.BrowserRouter, ringfence.BrowserRouter),
]
ONLY_ASYNC = {
    "for_one_call", "in_session", "lend", "give_away", "routed", "may_be_native", "has_policy", "execute_command",
}  # fmt: skip
"""How the manager, the pool and the documents' names use them."""
OF_THE_FACE = {"wrapped", "over", "close_at_exit"}
OF_ONE_OBJECT = {"recovered", "session_id", "violations"}
"""Attributes of each object on one side, properties of the class on the other."""
OTHERWISE = {"files", "turn"}
"""Context managers of the one or the other kind."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - OF_ONE_OBJECT - OF_THE_FACE


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_whatever_the_async_face_has_the_blocking_one_has_too(blocking: type, awaited: type) -> None:
    assert public(awaited) - public(blocking) <= ONLY_ASYNC
    assert public(blocking) - public(awaited) <= {"new_for"}


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_faces_have_the_same_parameters_and_texts(blocking: type, awaited: type) -> None:
    for name in sorted((public(awaited) & public(blocking)) - OTHERWISE):
        one, other = getattr(blocking, name), getattr(awaited, name)
        if isinstance(one, FunctionType) and hasattr(one, "__wrapped__"):
            assert inspect.signature(one) == inspect.signature(other), name
            assert inspect.getdoc(one) == inspect.getdoc(other)
            assert not inspect.iscoroutinefunction(one)


def test_commands_code_files_streams_and_processes(place: Place) -> None:
    with sync.Sandbox(place.workspace) as box:
        assert box.shell("cat; echo $WHO >&2", stdin="in", env={"WHO": "me"}, timeout="30s").stdout == "in"
        assert box.exec(["printf", "%s", "a b"]).stdout == "a b"
        box.python("x = 6")
        assert box.python("x * 7").results[0].text == "42"
        assert box.code("bash", "echo code").stdout == "code\n"
        assert isinstance(box.shell("sleep 20", timeout="200ms").ending, TimedOut)

        box.files.write("a/b", "text", parents=True)
        assert box.files.read("a/b") == b"text" == box.read_file("a/b")
        with pytest.raises(FileNotFoundError) as caught:
            box.files.read("missing")
        assert isinstance(caught.value, NotFound)

        pieces = list(box.stream("echo one; echo two >&2"))
        assert isinstance(pieces[-1], Result) and all(isinstance(piece, Output) for piece in pieces[:-1])
        assert b"".join(piece.data for piece in pieces[:-1] if isinstance(piece, Output)) in (
            b"one\ntwo\n",
            b"two\none\n",
        )

        cat = box.start("cat")
        assert cat.write(b"hello") and cat.alive and [one.id for one in box.processes()] == [cat.id]
        cat.close_input()
        done = cat.wait(10)
        assert done is not None and done.stdout == "hello"

        assert box.is_active and box.workspace == place.workspace and box.wall is not None
        assert box.check_path("/etc/shadow").verdict is Verdict.DENY
    assert not box.is_active


def test_a_stream_that_is_left_early_ends_the_command(place: Place) -> None:
    with sync.Sandbox(place.workspace) as box:
        for piece in box.stream("echo first; sleep 20; touch late"):
            assert isinstance(piece, Output)
            break
        begin = time.monotonic()
        assert box.shell("echo next").stdout == "next\n"
        assert time.monotonic() - begin < 10 and not (place.workspace / "late").exists()


def test_it_works_inside_a_running_loop_as_in_a_notebook(place: Place) -> None:
    async def cell() -> tuple[str, str]:
        with sync.Sandbox(place.workspace) as box:
            return box.shell("echo nested").stdout, sync.run("echo once", workspace=place.workspace).stdout

    assert asyncio.run(cell()) == ("nested\n", "once\n")


def test_threads_share_a_sandbox_and_run_side_by_side(place: Place) -> None:
    said: list[str] = []
    with sync.Sandbox(place.workspace) as box:
        box.shell("true")
        workers = [
            threading.Thread(target=lambda n=n: said.append(box.shell(f"sleep 0.5; echo {n}").stdout)) for n in range(4)
        ]
        begin = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(said) == ["0\n", "1\n", "2\n", "3\n"]
        assert time.monotonic() - begin < 1.9, "not one after the other"


def test_a_call_from_a_callback_is_refused_and_not_a_deadlock(place: Place) -> None:
    faults: list[BaseException] = []

    def listen(_stream: object, _data: bytes) -> None:
        try:
            box.shell("echo again")
        except Busy as fault:
            faults.append(fault)

    with sync.Sandbox(place.workspace) as box:
        box.shell("echo once", on_output=listen)

    assert faults and "wait for itself" in str(faults[0])


def test_sessions_and_pools(place: Place) -> None:
    with sync.SandboxPool() as pool, sync.SandboxManager(pool=pool) as manager:  # type: ignore[arg-type]  # either face
        assert manager.execute_shell("echo kept >f", session_id="s").ok
        done = manager.execute_code("python", "print(open('f').read())", session_id="s")
        assert (done.stdout, done.session_id) == ("kept\n\n", "s")
        with manager.files("s") as files:
            assert files.read("f") == b"kept\n"
        box = pool.acquire("t")
        assert box.shell("ls").stdout == ""
        with pool.turn("t"):
            pass
        pool.release("t")
        assert [one.id for one in manager.sessions()] == ["s"]


def test_nothing_that_has_to_be_awaited_is_without_a_blocking_face() -> None:
    """Ports are implemented, not called; observers and whoever holds WebSockets wait for nothing of ours."""
    ports = {"ConfirmationService", "Observer", "WebSocketManager"}
    remote = {name for name in ringfence.__all__ if name.startswith("Remote")}  # `sync.connect` has the same faces
    services = {name for name in ringfence.__all__ if name.endswith("ConfirmationService")}
    awaited = {
        name
        for name in ringfence.__all__
        if isinstance(kind := getattr(ringfence, name), type)
        and any(inspect.iscoroutinefunction(member) for each, member in vars(kind).items() if each[:1] != "_")
    }
    assert {"Sandbox", "BashTool", "SubprocessExecutor"} <= awaited, "the search finds nothing"
    assert awaited - ports - services - remote <= set(sync.__all__)


def test_executors_tools_and_the_builder(place: Place) -> None:
    done = sync.SandboxExecutor(annotate=True).run("pwd; cat /etc/shadow", place.workspace, timeout="30s")
    assert (done.stdout, done.exit_code) == (f"{place.workspace}\n", 1)
    assert sync.BashTool().execute("echo $((6 * 7))", place.workspace).stdout == "42\n"
    given = sync.BashTool(sync.SandboxExecutor(env={"WHO": "me"}))
    assert given.execute("echo $WHO", cwd=place.workspace).stdout == "me\n"

    with sync.SubprocessExecutor() as light:
        assert light.execute(ExecutionRequest(code="sum([1, 2])")).results[0].text == "3"
        with pytest.raises(CommandNotAllowed):
            light.execute(ExecutionRequest(code="import os; os.system('true')"))

    with sync.SandboxBuilder().working_dir(place.workspace).block_command("rm").build() as box:
        assert box.shell("rm -r x").blocked and box.shell("true").ok

    with sync.SandboxManager("s1") as manager:
        assert sync.RunCodeTool(manager).execute("x = 6").ok
        assert sync.RunCodeTool(manager=manager).execute("x * 7").results[0].text == "42"
        assert sync.FileWriteTool(manager).execute("a.txt", "one\n").ok
        assert sync.FileEditTool(manager).execute("a.txt", "one", "two").ok
        assert sync.FileReadTool(manager).execute("a.txt").stdout == "two\n"
        assert sync.SearchTool(manager).execute("tw.").stdout == "a.txt:1: two\n"
    assert "blocking" in repr(given)


def test_shadows(place: Place) -> None:
    with sync.Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        with sync.Sandbox(place.workspace, shadow=shadow, shadow_bytes="10MB") as box:
            box.shell("echo new >made")
        assert not (place.workspace / "made").exists()
        assert workspaces.commit(shadow).is_done
    assert (place.workspace / "made").read_text() == "new\n"


def test_async_workspaces_and_snapshots_do_not_hold_up_the_loop(place: Place) -> None:
    async def work() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        async with ringfence.Workspaces() as workspaces:
            shadow = await workspaces.new(place.workspace)
            async with ringfence.Sandbox(place.workspace, shadow=shadow) as box:
                await box.shell("echo new >made")
            assert [change.path for change in await workspaces.changes(shadow)] == ["made"]
            assert (await workspaces.commit(shadow)).is_done
            assert workspaces.recovered == ()
        store = ringfence.SnapshotStore(place.top / "store", durable=False)
        await store.save(place.workspace, "one")
        assert [one.name for one in await store.list()] == ["one"]
        ticking.cancel()
        return ticks

    assert asyncio.run(work()) > 5
    assert (place.workspace / "made").read_text() == "new\n"


def test_workspaces_that_are_not_open_say_so() -> None:
    with pytest.raises(Closed, match="not open"):
        ringfence.Workspaces().recovered  # noqa: B018  asking is the test


# --- ends -------------------------------------------------------------------------------------------------------------

_SCRIPT = """
import os, sys, time
from ringfence import sync
box = sync.Sandbox({workspace!r})
box.shell("true")
"""


def script(place: Place, text: str) -> subprocess.Popen[bytes]:
    whole = _SCRIPT.format(workspace=str(place.workspace)) + text
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", whole],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell that starts us in the background makes us ignore it, and then our children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


LONG = f"sleep {10_000_000 + os.getpid()}"
"""A command that no other test runs."""


def is_running() -> bool:
    """Whether it runs, in whatever box."""
    words = LONG.replace(" ", "\0").encode() + b"\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cmdline").read_bytes() == words:
                    return True
    return False


def ends() -> bool:
    deadline = time.monotonic() + 30
    while is_running():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_ctrl_c_in_the_caller_ends_the_command_inside(place: Place) -> None:
    running = script(
        place,
        f"""
print("ready", flush=True)
try:
    box.shell("{LONG}")
except KeyboardInterrupt:
    print(box.shell("echo next").stdout, flush=True)
    box.close()
""",
    )
    assert running.stdout is not None and running.stdout.readline() == b"ready\n"
    while not is_running():
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert (out, err, running.returncode) == (b"next\n\n", b"", 0)
    assert ends()


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError('x')"])
def test_what_is_open_when_the_interpreter_ends_is_closed(place: Place, end: str) -> None:
    running = script(place, f"box.start('{LONG}')\n{end}\n")
    _, err = running.communicate(timeout=60)

    assert ends()
    assert b"ringfence" not in err and b"never awaited" not in err, err


def test_a_forked_child_makes_its_own_and_cannot_touch_its_parents(place: Place) -> None:
    running = script(
        place,
        """
child = os.fork()
if child == 0:
    try:
        box.shell("echo no")
    except Exception as fault:
        print(type(fault).__name__, flush=True)
    box.close()
    with sync.Sandbox(box.workspace) as own:
        print(own.shell("echo child").stdout.strip(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(box.shell("echo parent").stdout.strip(), flush=True)
box.close()
""",
    )
    out, err = running.communicate(timeout=60)

    assert (out, running.returncode) == (b"Closed\nchild\nparent\n", 0), err


def test_an_async_sandbox_can_be_closed_from_another_loop(place: Place) -> None:
    async def open_and_run() -> ringfence.Sandbox:
        box = ringfence.Sandbox(place.workspace)
        await box.shell("true")
        await box.start(LONG)
        return box

    box = asyncio.run(open_and_run())
    asyncio.run(box.close())

    assert ends() and not box.is_active


def test_an_async_sandbox_can_be_closed_from_another_thread_while_it_works(place: Place) -> None:
    async def work() -> str:
        box = ringfence.Sandbox(place.workspace)
        await box.shell("true")
        running = asyncio.ensure_future(box.shell(LONG))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(lambda: asyncio.run(box.close()))
        try:
            return str((await asyncio.wait_for(running, 10)).ending)
        except ringfence.RingfenceError as fault:
            return fault.code

    assert asyncio.run(work())
    assert ends()
