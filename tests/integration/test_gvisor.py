"""The wall with a kernel of its own: what holds, what is carried through it, what an attacker can do to the way."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import Guarantee, Sandbox
from ringfence.confinement.choose import confiners
from ringfence.errors import Internal
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, LimitHit, TimedOut
from tests.integration.stage import SECRET, Place

PROBE = next(confiner for confiner in confiners() if confiner.name == "gvisor").probe()
EVERYTHING = frozenset(Guarantee) - {Guarantee.DENIED_AT_OPEN, Guarantee.NO_NATIVE_CODE}
pytestmark = [
    pytest.mark.req("B12"),
    pytest.mark.skipif(not PROBE.usable, reason=f"{PROBE.missing}; {PROBE.hint}"),
]


def in_box(place: Place, work: Callable[[Sandbox], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60), Sandbox(place.workspace, requires=EVERYTHING, **options) as sandbox:
            return await work(sandbox)

    return asyncio.run(main())


def shell(place: Place, command: str, **options: Any) -> ringfence.Result:
    result = in_box(place, lambda sandbox: sandbox.shell(command), **options)
    assert isinstance(result, ringfence.Result)
    return result


def test_who_requires_a_kernel_of_its_own_gets_this_wall(place: Place) -> None:
    result = shell(place, "uname -r; cat /proc/version")

    assert result.wall is not None
    assert result.wall.name == "gvisor"
    assert result.stdout.split()[0] != os.uname().release
    assert any("gVisor of" in note for note in result.wall.notes)


def test_files_outside_the_grant_are_not_there_and_the_workspace_is(place: Place) -> None:
    (place.workspace / "given").write_text("in")

    result = shell(place, f"cat given; echo out > made; cat {place.home}/diary {place.home}/.ssh/key; ls /root /home")

    assert SECRET not in result.stdout
    assert result.stdout.startswith("in")
    assert (place.workspace / "made").read_text() == "out\n"


@pytest.mark.parametrize("path", ["/usr/x", "/etc/x", "/x", "/bin/x"])
def test_the_system_cannot_be_written(place: Place, path: str) -> None:
    assert shell(place, f"echo > {path}").exit_code != 0
    assert not os.path.exists(path)


def test_protected_and_hidden_paths_hold(repository: Place) -> None:
    (repository.workspace / ".env").write_text(SECRET)
    before = (repository.workspace / ".git" / "config").read_text()

    result = shell(
        repository,
        "cat .env; echo x >> .git/config; echo x > .git/hooks/pre-commit; mv .git .old; rm -rf .git/hooks; "
        "echo x > .bashrc; ln .env copy; cat copy",
    )

    assert SECRET not in result.stdout
    assert (repository.workspace / ".git" / "config").read_text() == before
    assert not (repository.workspace / ".git" / "hooks" / "pre-commit").exists()
    assert not (repository.workspace / ".bashrc").exists()


def test_there_is_no_network(place: Place) -> None:
    program = "import socket; s = socket.socket(); s.settimeout(3); s.connect(('1.1.1.1', 443)); print('out')"

    result = shell(place, f'python3 -c "{program}"')

    assert result.exit_code != 0
    assert "out" not in result.stdout


def test_what_it_writes_belongs_to_the_caller(place: Place) -> None:
    shell(place, "echo > made")

    assert (place.workspace / "made").stat().st_uid == place.workspace.stat().st_uid


# --- what is carried --------------------------------------------------------------------------------------------------


def test_all_output_arrives_before_the_end_does(place: Place) -> None:
    result = shell(place, "seq 200000; seq 200000 >&2")

    whole = "".join(f"{number}\n" for number in range(1, 200_001))
    assert (result.stdout, result.stderr, result.ending) == (whole, whole, Exited(0))


def test_a_file_of_megabytes_comes_through_stdin_and_back(place: Place) -> None:
    data = os.urandom(3_000_000)

    result = in_box(place, lambda sandbox: sandbox.shell("cat", stdin=data))

    assert result.stdout_bytes == data


def test_a_command_that_reads_nothing_holds_up_nobody(place: Place) -> None:
    async def work(sandbox: Sandbox) -> tuple[Any, Any]:
        deaf = await sandbox.start("sleep 30")
        feeding = asyncio.ensure_future(deaf.write(b"x" * 5_000_000))
        await asyncio.sleep(0.5)
        result = await sandbox.shell("echo alive")
        deaf.kill()
        await feeding
        return result, await deaf.wait(10)

    result, ended = in_box(place, work)

    assert result.stdout == "alive\n"
    assert ended is not None


def test_an_interpreter_keeps_its_state_and_all_that_it_printed_comes_first(place: Place) -> None:
    async def work(sandbox: Sandbox) -> list[Any]:
        await sandbox.python("x = 20")
        return [await sandbox.python("print('y' * 300_000); x += 1; x") for _ in range(3)]

    results = in_box(place, work)

    assert [len(result.stdout) for result in results] == [300_001] * 3
    assert [result.results[-1].text for result in results] == ["21", "22", "23"]


def test_a_terminal_is_one_and_has_the_size_that_it_is_given(place: Place) -> None:
    async def work(sandbox: Sandbox) -> bytes:
        process = await sandbox.start("tty; stty size; read a; stty size; read b; echo got $b", terminal=(20, 70))
        said = b""
        while b"20 70" not in said:
            await asyncio.sleep(0.05)
            said += process.read()[0]
        process.resize(30, 90)
        await asyncio.sleep(0.5)
        await process.write(b"go\n")
        await process.write(b"words\n")
        await process.wait(20)
        return said + process.read()[0]

    said = in_box(place, work)

    assert b"/dev/pts/" in said
    assert b"30 90" in said
    assert b"got words" in said


# --- limits and endings -----------------------------------------------------------------------------------------------


def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs(place: Place) -> None:
    async def work(sandbox: Sandbox) -> list[Any]:
        return [
            await sandbox.shell("sleep 60 & sleep 60", timeout=1.0),
            await sandbox.shell("echo next; ps -e | wc -l"),
        ]

    late, following = in_box(place, work)

    assert isinstance(late.ending, TimedOut)
    assert following.stdout.splitlines()[0] == "next"
    assert int(following.stdout.splitlines()[1]) < 10


def test_processes_are_bounded(place: Place) -> None:
    program = (
        "import os, time\\nn = 0\\ntry:\\n  for _ in range(200):\\n    if os.fork() == 0: time.sleep(5); os._exit(0)\\n"
        "    n += 1\\nexcept OSError: pass\\nprint(n)"
    )

    result = shell(place, f"printf '{program}' > fork.py; python3 fork.py", limits=Limits(processes=40))

    assert int(result.stdout) < 40


def test_memory_is_bounded(place: Place) -> None:
    """By our looking, or by the kernel, which may take the whole box."""
    begin = time.monotonic()
    try:
        result = shell(
            place, "python3 -c \"x = [bytearray(1 << 20) for _ in range(4096)]; print('had it')\"",
            limits=Limits(memory_bytes=300 * 1024 * 1024),
        )  # fmt: skip
    except Internal:
        return
    assert "had it" not in result.stdout
    assert isinstance(result.ending, LimitHit) or result.exit_code != 0
    assert time.monotonic() - begin < 40


@pytest.mark.parametrize("attack", ["kill -9 1", "kill -STOP 1", "kill -9 2", "kill -STOP 2", "kill -9 -1"])
def test_who_attacks_the_way_out_of_the_box_ends_the_box_and_nothing_else(place: Place, attack: str) -> None:
    async def work(sandbox: Sandbox) -> None:
        try:
            await sandbox.shell(f"{attack}; sleep 3", timeout=4.0)
        except Internal:
            return

    begin = time.monotonic()
    in_box(place, work)

    assert time.monotonic() - begin < 40


def test_noise_on_the_way_out_ends_the_box(place: Place) -> None:
    """A command that gets hold of the pipe that messages are carried over can only lose its box."""

    async def work(sandbox: Sandbox) -> str:
        try:
            result = await sandbox.shell(
                "for f in /proc/1/fd/* /proc/2/fd/*; do head -c 300000 /dev/urandom > $f; done 2>/dev/null; echo done",
                timeout=5,
            )
        except Internal:
            return "lost"
        return result.stdout

    assert in_box(place, work) in ("lost", "done\n", "")


def test_a_path_that_is_no_utf8_is_refused_with_the_reason(place: Place) -> None:
    odd = Path(os.fsdecode(os.fsencode(place.home) + b"/\xff\xfe"))
    odd.mkdir()

    with pytest.raises(ringfence.InitializationFailed, match="UTF-8"):
        asyncio.run(_open(odd))


async def _open(workspace: Path) -> None:
    async with Sandbox(workspace, requires=EVERYTHING) as sandbox:  # a box is opened for the first call
        await sandbox.shell("true")


def test_it_has_a_loopback_of_its_own(place: Place) -> None:
    program = (
        "import socket, threading\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "threading.Thread(target=lambda: server.accept()[0].sendall(b'heard'), daemon=True).start()\n"
        "print(socket.create_connection(server.getsockname()).recv(9).decode())"
    )
    (place.workspace / "loop.py").write_text(program)

    assert shell(place, "python3 loop.py").stdout == "heard\n"


def test_nothing_is_left_when_the_manager_is_killed(
    place: Place, ringfence_process: Callable[[str], subprocess.Popen[str]]
) -> None:
    child = ringfence_process(
        "import asyncio, ringfence\n"
        "async def main():\n"
        "    async with ringfence.Sandbox('.', requires=frozenset({ringfence.Guarantee.OWN_KERNEL})) as sandbox:\n"
        "        await sandbox.start('sleep 1000')\n"
        "        print('running', flush=True)\n"
        "        await asyncio.sleep(1000)\n"
        "asyncio.run(main())"
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    before = runtimes(place)

    child.kill()
    child.wait()
    deadline = time.monotonic() + 20
    while runtimes(place) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert before
    assert runtimes(place) == []


def runtimes(place: Place) -> list[str]:
    """Processes of gVisor whose mounts show the workspace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = str(place.workspace) in (process / "mountinfo").read_text(errors="replace")
            if ours and b"runsc" in (process / "cmdline").read_bytes().split(b"\0")[0]:
                found.append(process.name)
    return found


def test_a_policy_alone_is_enough_to_get_it(place: Place) -> None:
    policy = place.home / "policy.yaml"
    policy.write_text("policies: {default: {requires: [own_kernel]}}\n")

    async def main() -> ringfence.Result:
        async with Sandbox(place.workspace, policy=policy) as sandbox:
            return await sandbox.shell("echo $((6*7))")

    result = asyncio.run(main())

    assert result.wall is not None
    assert (result.stdout, result.wall.name) == ("42\n", "gvisor")


def test_what_nobody_can_hold_here_is_refused(place: Place) -> None:
    async def main() -> None:
        async with Sandbox(place.workspace, requires=EVERYTHING, mediate_opens=True) as sandbox:
            await sandbox.shell("true")

    with pytest.raises(ringfence.InitializationFailed, match="denied at open"):
        asyncio.run(main())
