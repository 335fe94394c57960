"""Many at once: throughput by number of sessions and of callers who wait, how fast boxes are made, what an idle one
takes, and whether the cost of a call stays the same.

python -m benchmarks.load [boxes]
"""

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.alternatives import PYTHON
from ringfence import PoolConfig, Result, Sandbox, SandboxManager, SandboxPool

SESSIONS = (1, 2, 4, 8, 16)
SECONDS = 3.0
CALLS = 10_000
BOXES = 500
CALLERS = (10, 50, 100, 250, 500)
CALLERS_BASE = 500
"""Calls of each round, so that all rounds are equally long: 500 callers once, or 10 callers fifty times."""
CREATION_GOAL = 150
"""Fresh boxes with an interpreter, made and gone, in a second."""
MEMORY_GOAL = 2.5
"""MB for one idle box with its interpreter."""


async def throughput(manager: SandboxManager, console: Console) -> None:
    table = Table("sessions", "calls/s", "of one session", title="python calls in open sessions", title_justify="left")
    first = 0.0
    for count in SESSIONS:
        names = [f"load-{number}" for number in range(count)]
        await asyncio.gather(*(manager.execute_code("python", "x = 0", session_id=name) for name in names))
        calls, end = 0, time.perf_counter() + SECONDS

        async def work(name: str, end: float) -> int:
            done = 0
            while time.perf_counter() < end:
                (await manager.execute_code("python", "x += 1", session_id=name)).check()
                done += 1
            return done

        calls = sum(await asyncio.gather(*(work(name, end) for name in names)))
        rate = calls / SECONDS
        first = first or rate
        table.add_row(str(count), f"{rate:,.0f}", f"{rate / first:.2f}")
        await asyncio.gather(*(manager.cleanup(name) for name in names))
    console.print(table)


async def waiting(workspace: Path, console: Console) -> None:
    """Calls that each have a fresh box, by how many callers come at once; more than the pool has boxes wait."""
    table = Table(
        "callers at once",
        "calls/s",
        "of the first",
        title="calls by how many callers come at once",
        title_justify="left",
    )
    rates: dict[tuple[str, int], list[float]] = {}
    async with SandboxManager(pool_size=2, python=PYTHON) as manager, Sandbox(workspace) as sandbox:
        kinds: dict[str, Callable[[], Awaitable[Result]]] = {
            "a fresh box each": lambda: manager.execute_shell("true"),
            "one sandbox": lambda: sandbox.exec(["/bin/true"]),
        }
        for _ in range(3):  # in turn, so that a busy minute hits all alike
            for kind, call in kinds.items():
                for count in CALLERS:
                    begin = time.perf_counter()
                    for _ in range(CALLERS_BASE // count):
                        for done in await asyncio.gather(*(call() for _ in range(count))):
                            done.check()
                    rates.setdefault((kind, count), []).append(CALLERS_BASE / (time.perf_counter() - begin))
    for (kind, count), measured in rates.items():
        rate, first = median(measured), median(rates[kind, CALLERS[0]])
        table.add_row(f"{count}, {kind}", f"{rate:,.0f}", f"{rate / first:.2f}")
    console.print(table)


async def creation(console: Console) -> None:
    """Boxes with a shell and an interpreter, made and thrown away as fast as they can be."""
    table = Table("starts at once", "boxes/s", "goal", "met", title="creation", title_justify="left")
    for at_once in (1, 2, 4):
        config = PoolConfig(min_instances=8, max_instances=16, starts_at_once=at_once, starts_per_second=10_000)
        async with SandboxPool(size=config, python=PYTHON) as pool:
            made, end = 0, time.perf_counter() + SECONDS
            while time.perf_counter() < end:
                pool.discard(await pool.take())
                made += 1
            rate = made / SECONDS
            met = "yes" if rate >= CREATION_GOAL else "no"
            table.add_row(str(at_once), f"{rate:,.1f}", f"at least {CREATION_GOAL}", met)
    console.print(table)


async def held(count: int, console: Console) -> None:
    """So many idle boxes at once; the memory of their processes, shared pages divided among those who share them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = PoolConfig(min_instances=count, max_instances=count, starts_at_once=4, starts_per_second=10_000)
    pool = SandboxPool(size=config, python=PYTHON)
    kernel = _kernel_kib()
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(f"making {count} boxes", total=count)
            begin = time.perf_counter()
            starting = asyncio.ensure_future(pool.start())
            while not starting.done():
                await asyncio.wait((starting,), timeout=0.2)
                progress.update(task, completed=sum(state.idle for state in pool.state().values()))
            starting.result()
            seconds = time.perf_counter() - begin
        own = _tree_kib(os.getpid())
        kernel = _kernel_kib() - kernel
        ready = sum(state.idle for state in pool.state().values())
        each = (own + max(kernel, 0)) / 1024 / ready
        met = "yes" if each <= MEMORY_GOAL else "no"
        console.print(
            f"{ready} idle boxes held at once, made in {seconds:.1f} s: {own / 1024 / ready:.2f} MB of processes and "
            f"{kernel / 1024 / ready:.2f} MB of kernel memory each (goal: at most {MEMORY_GOAL:g} MB, met: {met})"
        )
    finally:
        await pool.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def flat(manager: SandboxManager, console: Console) -> None:
    """One session, the cost of its calls from the first thousand to the last."""
    seconds: list[float] = []
    with Progress(console=console, transient=True) as progress:
        for _ in progress.track(range(CALLS), description=f"{CALLS} calls of one session"):
            begin = time.perf_counter()
            await manager.execute_code("python", "1 + 1", session_id="flat")
            seconds.append(time.perf_counter() - begin)
    first, last = median(seconds[100:1100]), median(seconds[-1000:])
    console.print(f"{CALLS} calls of one session: the last thousand cost {last / first:.2f} of the first (medians)")


def _tree_kib(root: int) -> int:
    """Proportional memory of all processes below ours, in KiB."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
            if pid != root:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(text.partition("\nPss:")[2].split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it has just ended, or is PID 1 of a box, which nobody may look into and which is small
    return total


def _kernel_kib() -> int:
    wanted = ("Slab", "KernelStack", "PageTables", "Percpu")
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(line[1]) for line in lines if line[0].rstrip(":") in wanted)


async def main(boxes: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        os.environ["RINGFENCE_STATE_DIR"] = str(Path(directory) / "state")
        os.environ["RINGFENCE_WORKSPACES_DIR"] = str(Path(directory) / "workspaces")
        async with SandboxManager(pool_size=2, max_instances=40, python=PYTHON) as manager:
            await throughput(manager, console)
            await flat(manager, console)
        workspace = Path(directory) / "workspace"
        workspace.mkdir()
        await waiting(workspace, console)
        await creation(console)
        await held(boxes, console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else BOXES))
