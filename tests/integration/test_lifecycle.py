"""Every way in which a command or a box can end: the whole tree is dead each time, and nothing of it is left."""

import asyncio
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ringfence
from ringfence import Exited, RingfenceError, Sandbox, Signalled, TimedOut
from tests.integration.stage import SECRET, Place, eventually, processes_with

pytestmark = pytest.mark.req("B6")

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def mark() -> str:
    """An argument that only this test's processes carry, so that they are found from outside."""
    return f"mark-{secrets.token_hex(8)}"


def daemons(mark: str) -> str:
    """A plain child, one that left its session, and one that forked twice and did too."""
    sleep = f"/bin/bash -c 'sleep 300; : {mark}'"
    return (
        f"{sleep} & setsid {sleep} >/dev/null 2>&1 & (setsid setsid {sleep} </dev/null >/dev/null "
        "2>&1 &) ; trap '' TERM HUP INT; "
    )


def all_gone(mark: str) -> bool:
    return eventually(lambda: not processes_with(mark))


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(place: Place, mark: str) -> None:
    begin = time.monotonic()

    done = place.run(daemons(mark) + "echo started; sleep 300", timeout=0.5)

    assert time.monotonic() - begin < 20
    assert done.ending == TimedOut(0.5)
    assert (done.stdout, done.exit_code) == ("started\n", 124)
    assert processes_with(mark) == []
    assert place.names() == set()


def test_a_command_that_ends_in_time_is_not_ended(place: Place) -> None:
    assert place.run("sleep 0.2; echo done", timeout=10).ending == Exited(0)


def test_the_limit_holds_even_if_the_caller_asks_for_more_time(place: Place) -> None:
    done = place.run("sleep 60", timeout=50, limits=ringfence.Limits(wall_seconds=0.4))

    assert done.ending == TimedOut(0.4, "limits.wall_seconds of the caller")


def test_a_command_that_ignores_every_signal_is_ended(place: Place, mark: str) -> None:
    program = (
        "import signal, time\n[signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in "
        f"(9, 19)]\nprint('up', flush=True)\ntime.sleep(300) # {mark}"
    )

    done = place.run(["/usr/bin/python3", "-c", program], timeout=1.5)

    assert isinstance(done.ending, TimedOut)
    assert done.stdout == "up\n"
    assert processes_with(mark) == []


def test_a_box_is_usable_after_a_time_out(place: Place, mark: str) -> None:
    async def three(box: Sandbox) -> tuple[object, ...]:
        await box.shell("echo kept > /tmp/kept")
        wall = box.wall
        late = await box.shell(daemons(mark) + "sleep 300", timeout=0.3)
        assert processes_with(mark) == []
        after = await box.shell("cat /tmp/kept; ps ax | wc -l; echo again")
        return late.ending, after.stdout.split()[0], after.stdout.split()[-1], box.wall is wall

    assert place.in_box(three) == (TimedOut(0.3), "kept", "again", True)


# --- what is left when a command ends by itself -----------------------------------------------------------------------


def test_background_children_do_not_outlive_their_command(place: Place, mark: str) -> None:
    async def two(box: Sandbox) -> str:
        first = await box.shell(daemons(mark) + "sleep 0.1; echo done")
        assert (first.ending, first.stdout) == (Exited(0), "done\n")
        assert processes_with(mark) == []
        return (await box.shell("ls -d /proc/[0-9]* | wc -l")).stdout

    assert int(place.in_box(two)) <= 5  # PID 1, the shell, ls and wc; perhaps the shell that waits for the next command


def test_in_one_command_a_background_child_does_live(place: Place) -> None:
    assert place.run("sleep 300 & sleep 0.1; kill -0 $! && echo lives").stdout == "lives\n"


def test_killing_everything_inside_ends_that_command_only(place: Place) -> None:
    async def two(box: Sandbox) -> tuple[object, str]:
        killed = await box.shell("sleep 300 & (kill -9 -1); sleep 60")
        return killed.ending, (await box.shell("echo next")).stdout

    assert place.in_box(two) == (Signalled(signal.SIGKILL), "next\n")


def test_pid_1_of_a_box_can_be_neither_killed_nor_stopped_nor_traced_from_inside(place: Place) -> None:
    attempt = (
        "for s in KILL STOP TERM SEGV INT ABRT; do kill -$s 1; done; sleep 0.1; "
        "head -c1 /proc/1/mem; ls /proc/1/fd /proc/1/root; cat /proc/1/environ; readlink /proc/1/exe; exit 0"
    )

    async def two(box: Sandbox) -> tuple[str, str, bool]:
        await box.open()
        wall = box.wall
        first = await box.shell(attempt)
        second = await box.shell("echo next; grep State /proc/1/status")
        return first.stdout, second.stdout, box.wall is wall

    seen, after, same = place.in_box(two)

    assert seen == ""
    assert after.startswith(("next\nState:\tS", "next\nState:\tR", "next\nState:\tD"))
    assert same, "it is still the same box"


def test_a_process_of_ones_own_can_be_killed_and_stopped_inside(place: Place) -> None:
    assert place.run("sleep 60 & kill -STOP $! && kill -KILL $! && wait $!; echo $?").stdout == "137\n"


# --- cancel and close -------------------------------------------------------------------------------------------------


async def started(box: Sandbox, command: str) -> "asyncio.Task[ringfence.Result]":
    """A command that runs; returns when it has said something."""
    heard = asyncio.Event()
    task = asyncio.create_task(box.shell(command, on_output=lambda stream, data: heard.set()))
    await asyncio.wait_for(heard.wait(), 20)
    return task


def test_cancelling_the_task_ends_the_tree_before_the_cancellation_goes_on(place: Place, mark: str) -> None:
    async def work(box: Sandbox) -> str:
        task = await started(box, daemons(mark) + "echo up; sleep 300")
        assert processes_with(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes_with(mark) == []
        return (await box.shell("echo next")).stdout

    assert place.in_box(work) == "next\n"
    assert place.names() == set()


def test_cancelling_again_and_again_still_leaves_nothing(place: Place, mark: str) -> None:
    async def work() -> None:
        box = place.box()
        await box.__aenter__()
        task = await started(box, daemons(mark) + "echo up; sleep 300")
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        closing = asyncio.create_task(box.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await box.close()

    asyncio.run(work())

    assert all_gone(mark)
    assert eventually(lambda: place.names() == set())


def test_a_time_out_around_the_whole_box_leaves_nothing(place: Place, mark: str) -> None:
    async def work() -> None:
        async with asyncio.timeout(1.0), place.box() as box:
            await box.shell(daemons(mark) + "sleep 300")

    with pytest.raises(TimeoutError):
        asyncio.run(work())

    assert processes_with(mark) == []
    assert place.names() == set()


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
def test_a_cancel_while_the_box_is_being_made_leaves_nothing(place: Place, delay: float) -> None:
    async def work() -> None:
        async def whole() -> None:
            async with place.box() as box:
                await box.shell("sleep 300")

        task = asyncio.create_task(whole())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()

    asyncio.run(work())

    assert eventually(lambda: place.names() == set())
    assert place.run("echo fine").stdout == "fine\n"


def test_closing_the_box_while_a_command_runs_ends_it_and_tells_its_caller(place: Place, mark: str) -> None:
    async def work() -> BaseException | None:
        box = place.box()
        await box.__aenter__()
        task = await started(box, daemons(mark) + "echo up; sleep 300")
        await asyncio.wait_for(box.close(), 20)
        assert processes_with(mark) == []
        await asyncio.wait([task], timeout=10)
        assert task.done(), "its caller waits for ever"
        return task.exception()

    fault = asyncio.run(work())

    assert isinstance(fault, RingfenceError) and fault.code == "internal"
    assert "closed" in str(fault)
    assert place.names() == set()


def test_a_closed_box_takes_no_command(place: Place) -> None:
    async def work() -> None:
        box = place.box()
        async with box:
            pass
        await box.close()
        with pytest.raises(RuntimeError, match="closed"):
            await box.shell("echo no")

    asyncio.run(work())


# --- our own death ----------------------------------------------------------------------------------------------------

OWNER = """
import asyncio, ringfence
async def main():
    # Where nobody looks at calls, there are placeholders.
    async with ringfence.Sandbox({workspace!r}, trace="off") as box:
        def said(stream, data): print("up", flush=True)
        await box.shell({command!r}, on_output=said)
asyncio.run(main())
"""


def temporary_things() -> set[str]:
    shared = {name for name in os.listdir("/dev/shm") if "ringfence" in name}  # the rest may be anybody's
    return shared | set(os.listdir(os.environ["TMPDIR"]))


def cgroups_of(pid: int) -> list[str]:
    return [d for d, _, _ in os.walk("/sys/fs/cgroup") if f"/ringfence-{pid}-" in d]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_we_are_killed_the_whole_tree_dies_and_nothing_is_left(
    repository: Place, mark: str, ringfence_process: Start, how: signal.Signals
) -> None:
    before_files, before_tmp = repository.names(), temporary_things()
    owner = ringfence_process(
        OWNER.format(workspace=str(repository.workspace), command=daemons(mark) + "echo up; sleep 300")
    )
    assert owner.stdout is not None and owner.stdout.readline() == "up\n"
    mounts = Path("/proc/self/mountinfo").read_text().count("\n")
    assert len(processes_with(mark)) >= 3
    assert repository.names() - before_files, "there are placeholders while it runs"

    owner.send_signal(how)
    owner.wait(timeout=20)

    assert all_gone(mark)
    assert eventually(lambda: repository.names() == before_files)
    assert eventually(lambda: not cgroups_of(owner.pid))
    assert temporary_things() == before_tmp
    assert Path("/proc/self/mountinfo").read_text().count("\n") <= mounts
    assert repository.run("git status --porcelain").stdout == ""


def test_a_run_that_was_interrupted_by_our_death_is_in_the_journal_afterwards(
    place: Place, mark: str, ringfence_process: Start
) -> None:
    owner = ringfence_process(OWNER.format(workspace=str(place.workspace), command=f"echo up; sleep 300 # {mark}"))
    assert owner.stdout is not None and owner.stdout.readline() == "up\n"
    owner.kill()
    owner.wait()

    place.run("true")

    lines = (place.state / "journal.jsonl").read_text().splitlines()
    assert '"interrupted"' in lines[0] and mark in lines[0]
    assert list((place.state / "pending").iterdir()) == []
    assert all_gone(mark)


def test_when_the_launcher_is_killed_the_tree_dies_and_the_caller_is_told(place: Place, mark: str) -> None:
    async def work(box: Sandbox) -> str:
        task = await started(box, daemons(mark) + "echo up; sleep 300")
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        launcher = next(int(pid) for pid in children if b"launch" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(launcher, signal.SIGKILL)
        with pytest.raises(RingfenceError) as caught:
            await asyncio.wait_for(task, 20)
        assert caught.value.code == "internal"
        assert all_gone(mark)
        return (await box.shell("echo a new box")).stdout

    assert place.in_box(work) == "a new box\n"
    assert place.names() == set(), "the next box takes over the placeholders of the lost one, and removes them"


# --- several boxes ----------------------------------------------------------------------------------------------------

ATTACK = (
    "echo evil > .vscode; echo evil > .git/config.worktree; mkdir -p .git/hooks .claude; echo "
    "evil > .git/hooks/pre-commit; echo evil > .mcp.json; cat .env; true"
)


def test_two_boxes_share_a_workspace_and_the_first_to_end_does_not_unmask_the_second(repository: Place) -> None:
    (repository.workspace / ".env").write_text(SECRET)
    before = repository.names()

    async def work() -> ringfence.Result:
        async with repository.box() as second:
            async with repository.box() as first:
                assert (await first.shell("echo one > one")).ok
                assert (await second.shell("cat one")).stdout == "one\n"
            return await second.shell(ATTACK)

    done = asyncio.run(work())

    assert SECRET not in done.stdout
    assert repository.names() - before == {"one"}
    assert "evil" not in (repository.workspace / ".git" / "hooks" / "pre-commit.sample").read_text()


def test_without_a_box_the_same_attack_succeeds(repository: Place) -> None:
    (repository.workspace / ".env").write_text(SECRET)

    assert repository.host(ATTACK).stdout == SECRET

    assert {".vscode", ".mcp.json", ".git/hooks/pre-commit", ".git/config.worktree"} <= repository.names()


def test_a_box_that_is_opened_while_another_ends_is_masked_too(repository: Place) -> None:
    before = repository.names()

    async def one(number: int) -> None:
        await asyncio.sleep(number * 0.007)
        async with repository.box() as box:
            await box.shell(ATTACK)

    async def many() -> None:
        for _ in range(3):
            await asyncio.gather(*(one(number) for number in range(6)))

    asyncio.run(many())

    assert repository.names() == before


def test_many_boxes_in_a_row_leave_no_descriptor_and_no_thread(place: Place) -> None:
    def open_now() -> list[str]:
        return sorted(
            os.readlink(f"/proc/self/fd/{n}")
            for n in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{n}")
        )

    place.run("true")
    before, threads = open_now(), threading.active_count()

    for number in range(30):
        assert place.run(f"cat; exit {number}", stdin=b"x").exit_code == number

    assert len(open_now()) == len(before)
    assert threading.active_count() == threads


def test_many_commands_in_one_box_leave_no_descriptor_in_it(place: Place) -> None:
    async def work(box: Sandbox) -> list[str]:
        count = "ls /proc/self/fd | wc -l; ulimit -n"
        first = (await box.shell(count)).stdout
        for _ in range(100):
            await box.shell("cat", stdin=b"x")
        with pytest.raises(RingfenceError):
            await box.exec(["/no/such/program"])
        return [first, (await box.shell(count)).stdout]

    before, after = place.in_box(work, limits=ringfence.Limits(open_files=64))

    assert before == after


def test_one_shell_that_keeps_its_state_runs_its_commands_in_turn(place: Place) -> None:
    async def work(box: Sandbox) -> list[str]:
        lines = [box.shell(f"mkdir lock && sleep 0.02 && rmdir lock && echo {n}", context="a") for n in range(5)]
        return [done.stdout for done in await asyncio.gather(*lines)]

    assert place.in_box(work) == [f"{n}\n" for n in range(5)]


# --- where it is called from ------------------------------------------------------------------------------------------


def test_it_can_be_called_from_threads_side_by_side(place: Place) -> None:
    out: dict[int, str] = {}

    def one(number: int) -> None:
        out[number] = place.run(f"sleep 0.1; echo {number}").stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert out == {number: f"{number}\n" for number in range(4)}


def test_the_box_does_not_die_with_the_thread_that_opened_it(place: Place) -> None:
    """PR_SET_PDEATHSIG follows the thread that forked, not the process."""
    loop = asyncio.new_event_loop()
    box = place.box()
    opening = threading.Thread(target=lambda: loop.run_until_complete(box.__aenter__()))
    opening.start()
    opening.join()

    out = loop.run_until_complete(box.shell("sleep 0.2; echo still here")).stdout
    loop.run_until_complete(box.close())
    loop.close()

    assert out == "still here\n"


def test_the_blocking_call_works_inside_a_running_event_loop(place: Place) -> None:
    async def work() -> str:
        return place.run("echo nested").stdout

    assert asyncio.run(work()) == "nested\n"


def test_an_error_of_the_blocking_call_inside_a_loop_is_the_same_error(place: Place) -> None:
    async def work() -> None:
        place.run("")

    with pytest.raises(RingfenceError) as caught:
        asyncio.run(work())

    assert caught.value.code == "command_not_allowed"


def test_a_child_that_the_caller_forked_meanwhile_does_not_keep_the_box_alive(place: Place, mark: str) -> None:
    async def work() -> None:
        box = place.box()
        await box.__aenter__()
        bystander = subprocess.Popen(["/bin/sleep", "30"], close_fds=False)
        try:
            await asyncio.wait_for(box.close(), 15)
        finally:
            bystander.kill()
            bystander.wait()

    asyncio.run(work())
    assert place.names() == set()
