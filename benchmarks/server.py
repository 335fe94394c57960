"""What a call costs through a server, beside the library's own, and how fast output is streamed.

    python -m benchmarks.server [ROUNDS]

One server of this checkout, with a home and a state of its own, on its Unix socket; which is stopped afterwards. Calls
of both are warm, take turns in one run, and are compared with a bare `true`: by the clock, which on a busy machine also
counts how long two processes wait for a core, and by the processor time of client and server together, which does not.
Streams are of one size, in turn: by the clock the best of the rounds, and what the busiest of the processes could pass
on if it had a core to itself.
"""

import asyncio
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ringfence
from benchmarks.rounds import Case, measure, report, wide_console
from ringfence.values.request import Overflow
from tests.support.serving import running_server

GOAL_ABOVE_MS = 1.0
GOAL_ABOVE_RATIO = 1.0
GOAL_STREAM_MB = 200
STREAM_MB = 256
STREAM_ROUNDS = 5
CPU_CALLS, CPU_ROUNDS = 100, 3
_PRINT = f"head -c {STREAM_MB}000000 /dev/zero"


async def calls(server: ringfence.Server, workspace: Path, rounds: int, console: Console) -> None:
    """A warm command and a warm snippet, by the library and through HTTP."""
    async with ringfence.Sandbox(workspace) as near, server.Sandbox(workspace) as far:
        await near.warm()
        await far.warm()

        async def bare() -> None:
            subprocess.run(["true"], check=True)

        async def shell_near() -> None:
            await near.shell("true")

        async def shell_far() -> None:
            await far.shell("true")

        async def python_near() -> None:
            await near.python("1")

        async def python_far() -> None:
            await far.python("1")

        async def check_far() -> None:
            far.check_path("a")

        async def pause() -> None:
            await asyncio.sleep(0.01)  # until the next shell waits

        cases = [
            Case("subprocess.run: true", bare, group="bare"),
            Case("library, warm: true", shell_near, setup=pause, group="ringfence"),
            Case("server, warm: true", shell_far, setup=pause, group="server"),
            Case("library, warm: python", python_near, setup=pause, group="ringfence"),
            Case("server, warm: python", python_far, setup=pause, group="server"),
            Case("server: a check, in this thread", check_far, group="server"),
        ]
        await measure(cases, rounds, console)
    report(cases, "calls through a server", console)
    base = cases[0].median
    for name, one, other in (("true", cases[1], cases[2]), ("python", cases[3], cases[4])):
        above = other.median - one.median
        met = above * 1000 <= GOAL_ABOVE_MS or above <= GOAL_ABOVE_RATIO * base
        console.print(
            f"{name}, by the clock: {above * 1000:.2f} ms, or {above / base:.2f} of subprocess.run(true), above the "
            f"library's; goal: at most {GOAL_ABOVE_MS:g} ms or {GOAL_ABOVE_RATIO:g}: {'met' if met else 'not met'}"
        )


async def processor_time(server: ringfence.Server, workspace: Path, pid: int, console: Console) -> None:
    """The same calls, by what client and server are busy for; the best of some rounds, in turn."""
    least: dict[str, float] = {}
    async with ringfence.Sandbox(workspace) as near, server.Sandbox(workspace) as far:
        cases: dict[str, Callable[[], Awaitable[object]]] = {
            "library: true": lambda: near.shell("true"),
            "server: true": lambda: far.shell("true"),
            "library: python": lambda: near.python("1"),
            "server: python": lambda: far.python("1"),
            "subprocess.run: true": lambda: asyncio.sleep(0, subprocess.run(["true"], check=True)),
        }
        for _ in range(CPU_ROUNDS):
            for name, call in cases.items():
                begin = _busy(pid)
                for _ in range(CPU_CALLS):
                    await call()
                least[name] = min(least.get(name, math.inf), (_busy(pid) - begin) / CPU_CALLS)
    bare = least["subprocess.run: true"]
    for name in ("true", "python"):
        above = least[f"server: {name}"] - least[f"library: {name}"]
        met = above * 1000 <= GOAL_ABOVE_MS or above <= GOAL_ABOVE_RATIO * bare
        console.print(
            f"{name}, by processor time: {above * 1000:.2f} ms, or {above / bare:.2f} of subprocess.run(true), above "
            f"the library's; goal: at most {GOAL_ABOVE_MS:g} ms or {GOAL_ABOVE_RATIO:g}: {'met' if met else 'not met'}"
        )


def _busy(*pids: int) -> float:
    """Seconds of processor time of this process, of its children that have ended, and of others."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + sum(map(_busy_of, pids))


def _busy_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def streams(server: ringfence.Server, workspace: Path, pid: int, console: Console) -> None:
    """The same bytes from a pipe, from the library, and through HTTP."""

    def hear(*_: object) -> None:
        """As quick as anybody can be."""

    def pipe() -> None:
        with subprocess.Popen(_PRINT, shell=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while os.read(process.stdout.fileno(), 1 << 16):
                pass

    seconds: dict[str, list[float]] = {"a pipe": [], "library": [], "server": []}
    busiest: dict[str, list[float]] = {"library": [], "server": []}
    async with ringfence.Sandbox(workspace) as near, server.Sandbox(workspace) as far:
        for _ in range(STREAM_ROUNDS):
            for name, box in (("a pipe", None), ("library", near), ("server", far)):
                begin, here, there = time.perf_counter(), time.process_time(), _busy_of(pid)
                if box is None:
                    await asyncio.to_thread(pipe)
                else:
                    done = await box.shell(_PRINT, on_output=hear, overflow=Overflow.KEEP_ENDS, output_limit="1MB")
                    assert done.ok
                    busiest[name].append(max(time.process_time() - here, _busy_of(pid) - there))
                seconds[name].append(time.perf_counter() - begin)
    table = Table("stream", "MB/s, best round", "of a pipe", "MB/s, with a core each", "goal", "met")
    least = {name: min(each) for name, each in seconds.items()}
    for name, took in least.items():
        alone = STREAM_MB / min(busiest[name]) if name in busiest else None
        row = [f"{STREAM_MB / took:.0f}", f"{least['a pipe'] / took:.2f}", "" if alone is None else f"{alone:.0f}"]
        if name == "server" and alone is not None:
            row += [f"at least {GOAL_STREAM_MB}", "yes" if STREAM_MB / took >= GOAL_STREAM_MB else "not by the clock"]
        table.add_row(name, *row)
    console.print(table)


async def main(rounds: int) -> None:
    console = wide_console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        top = Path(directory)
        for name in ("home", "project"):
            (top / name).mkdir(mode=0o700)
        with running_server(top / "home") as running:
            assert running.process is not None
            async with ringfence.connect(f"unix://{running.socket}") as server:
                await calls(server, top / "project", rounds, console)
                await processor_time(server, top / "project", running.process.pid, console)
                await streams(server, top / "project", running.process.pid, console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
