"""What fresh boxes cost: made, used and gone, one after the other; the manager's own part; memory of one that waits.

python -m benchmarks.boxes [boxes]

Where the time of a cold one shot and of a warm call goes is printed too, by the processor time of each step, since
others use the machine: docs/performance.md says what the steps are. Processor time counts when somebody waits for the
process: an interpreter that the kernel ends with its box is not in it.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ringfence
from benchmarks.__main__ import POLICY
from benchmarks.alternatives import PYTHON
from ringfence import SandboxManager

BOXES = 100
AT_ONCE = 4
GOAL_RATE = 150
GOAL_TRUES = 6
GOAL_OWN_MS = 2.0
GOAL_IDLE_MB = 2.5


def used(who: int) -> float:
    """Seconds of processor time."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def bare_true(rounds: int = 50) -> float:
    """Seconds of processor time that a bare `true` takes, ours for starting it included."""
    before = used(resource.RUSAGE_CHILDREN) + used(resource.RUSAGE_SELF)
    for _ in range(rounds):
        subprocess.run(["/bin/true"], check=True, env={})
    return (used(resource.RUSAGE_CHILDREN) + used(resource.RUSAGE_SELF) - before) / rounds


async def sustained(policy: Path, boxes: int) -> tuple[float, float, float]:
    """Boxes a second, the manager's seconds for each, and those of all that it started."""
    manager = SandboxManager(pool_size=AT_ONCE, policy_file=policy, python=PYTHON)
    await manager.start()
    left = boxes

    async def use() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            (await manager.execute_code("python", "pass")).check()

    children, own, begin = used(resource.RUSAGE_CHILDREN), used(resource.RUSAGE_SELF), time.perf_counter()
    await asyncio.gather(*(use() for _ in range(AT_ONCE)))
    seconds, own = time.perf_counter() - begin, used(resource.RUSAGE_SELF) - own
    await manager.cleanup()  # what was started counts when it is reaped
    made = boxes + AT_ONCE
    return boxes / seconds, own / boxes, (used(resource.RUSAGE_CHILDREN) - children) / made


def below(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *below(int(child))]
    return found


def proportional(pid: int) -> int:
    """Bytes of a process, shared ones divided by those who share them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


async def idle_bytes(policy: Path, boxes: int = 20) -> float | None:
    """Memory of one box that waits; None for an ordinary user, who may not look into a box's processes."""
    manager = SandboxManager(pool_size=boxes, policy_file=policy, python=PYTHON)
    await manager.start()
    try:
        await manager.pool.wait_ready()
        return sum(map(proportional, below(os.getpid()))) / boxes
    except PermissionError:
        return None
    finally:
        await manager.cleanup()


async def own_time(work: Callable[[], Awaitable[None]], ready: Callable[[], Awaitable[None]], rounds: int) -> float:
    """The median of our own processor time."""
    found = []
    for _ in range(rounds):
        await ready()
        begin = time.process_time()
        await work()
        found.append(time.process_time() - begin)
    return statistics.median(found[rounds // 10 :])


async def own_times(policy: Path, workspace: Path, rounds: int = 40) -> list[tuple[str, float]]:
    manager = SandboxManager(pool_size=2, policy_file=policy, python=PYTHON)
    await manager.start()

    async def ready() -> None:
        await manager.pool.wait_ready()
        while any(state.closing or state.starting for state in manager.pool.state().values()):
            await asyncio.sleep(0.005)

    async def assembled() -> None:
        await ringfence.Sandbox(workspace, policy=policy).close()

    async def opened() -> None:
        async with ringfence.Sandbox(workspace, policy=policy) as box:
            await box.open()

    async def cold() -> None:
        async with ringfence.Sandbox(workspace, policy=policy) as box:
            (await box.shell("true")).check()

    async def fresh() -> None:
        (await manager.execute_code("python", "pass")).check()

    async def session() -> None:
        (await manager.execute_code("python", "pass", session_id="bench")).check()

    steps = {
        "policy, configuration and grant": assembled,
        "the same, a box made and gone": opened,
        "the same, with a command in it: a cold one shot": cold,
        "a call in a fresh warm box": fresh,
        "a call in an open session": session,
    }
    try:
        return [(name, await own_time(work, ready, rounds)) for name, work in steps.items()]
    finally:
        await manager.cleanup()


async def main(boxes: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        workspace, policy = Path(directory) / "workspace", Path(directory) / "policy.yaml"
        workspace.mkdir()
        policy.write_text(POLICY)
        os.environ["RINGFENCE_STATE_DIR"] = str(Path(directory) / "state")
        os.environ["RINGFENCE_WORKSPACES_DIR"] = str(Path(directory) / "workspaces")
        true = bare_true()
        rate, own, children = await sustained(policy, boxes)
        idle = await idle_bytes(policy)
        steps = await own_times(policy, workspace)
    table = Table("what", "measured", "goal", title=f"{boxes} fresh boxes with Python, {AT_ONCE} at once")
    table.add_row("made, used and gone in a second", f"{rate:.0f}", f"{GOAL_RATE}")
    table.add_row("its processor time as counted, in bare `true`s", f"{(own + children) / true:.1f}", f"{GOAL_TRUES}")
    table.add_row("the manager's part of that", f"{own * 1000:.1f} ms", f"{GOAL_OWN_MS:.1f} ms")
    shown = "not as an ordinary user" if idle is None else f"{idle / 1e6:.1f} MB"
    table.add_row("memory of one that waits", shown, f"{GOAL_IDLE_MB:.1f} MB")
    console.print(table)
    where = Table("our own processor time", "ms", "in bare `true`s", title="Where the time goes")
    for name, seconds in steps:
        where.add_row(name, f"{seconds * 1000:.2f}", f"{seconds / true:.1f}")
    console.print(where)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else BOXES))
