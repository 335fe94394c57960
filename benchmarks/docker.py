"""What a call in a container costs: Ringfence's boxes in Docker, and the ways in which Docker itself runs a command.

python -m benchmarks.docker [rounds]

Needs a daemon that DOCKER_HOST names (scripts/docker-engine.sh up DIRECTORY), and the image RINGFENCE_DOCKER_IMAGE. All
containers run the same image without a network. "The box alone" is the engine without policy and journal; the others
have both, as a user does. Ratios are to `subprocess.run` of `true`, in one interleaved run; then
the same calls from several sessions at once.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiodocker
from rich.console import Console
from rich.table import Table

from benchmarks import chart
from benchmarks.rounds import Case, measure, report
from ringfence import Docker, DockerExecutor, ExecutionRequest, Sandbox, SandboxManager
from ringfence.values.request import Request

ROUNDS = 30
SESSIONS = (1, 2, 4, 8)
SECONDS = 3.0
WARM_GOAL = 2.0
"""A warm call, in calls of subprocess.run."""
EXEC_GOAL = 1 / 25
"""The same, in calls of docker exec."""

RUN_GOAL = 1.5
"""A container for a single call, in calls of docker run."""


class Plain:
    """A container that somebody has started by hand, and the program and the library that run commands in it."""

    def __init__(self, url: str, image: str) -> None:
        self._line = ["docker", "--host", url]
        self._client = aiodocker.Docker(url=url)
        self._image = image
        self._id = self._docker("run", "--detach", "--network", "none", image, "sleep", "1000000")

    def _docker(self, *words: str) -> str:
        line = [*self._line, *words]
        return subprocess.run(line, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()

    async def exec(self) -> None:
        self._docker("exec", self._id, "true")

    async def run(self) -> None:
        self._docker("run", "--rm", "--network", "none", self._image, "true")

    async def exec_by_aiodocker(self) -> None:
        started = await self._client.containers.container(self._id).exec(["true"])
        async with started.start(detach=False) as stream:
            while await stream.read_out() is not None:
                pass
        assert (await started.inspect())["ExitCode"] == 0

    async def close(self) -> None:
        await self._client.close()
        self._docker("rm", "--force", self._id)


@asynccontextmanager
async def everything(url: str, image: str) -> AsyncIterator[tuple[list[Case], SandboxManager, Plain]]:
    """The cases, with what they need standing."""
    plain = Plain(url, image)
    manager = SandboxManager(docker_url=url, pool_size=2)
    try:
        await manager.start()
        with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as workspace:
            async with Sandbox(workspace, docker=Docker(url=url, image=image)) as box:
                yield _cases(plain, manager, box, DockerExecutor(docker=Docker(url=url, image=image))), manager, plain
    finally:
        await manager.cleanup()
        await plain.close()


def _cases(plain: Plain, manager: SandboxManager, box: Sandbox, executor: DockerExecutor) -> list[Case]:
    async def bare() -> None:
        subprocess.run(["/bin/true"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={})

    async def once() -> None:
        (await executor.execute(ExecutionRequest(command="true"))).full.check()

    async def refilled() -> None:
        await manager.pool.wait_ready()
        while any(state.closing or state.starting for state in manager.pool.state().values()):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.005)

    def ours(
        name: str, run: Callable[[], Awaitable[None]], at_most: float | None = None, of: Case | None = None
    ) -> Case:
        return Case(name, run, setup=refilled, group="ringfence", at_most=at_most, of=of)

    async def shell(command: str) -> None:
        (await box.shell(command)).check()

    async def alone(command: str) -> None:
        (await (await box.lend()).run(Request(command=command))).check()

    async def fresh() -> None:
        (await manager.execute_shell("/bin/true")).full.check()

    async def python() -> None:
        (await box.python("pass")).check()

    first = Case("subprocess.run: true", bare, setup=refilled, group="bare")
    by_hand = Case("docker exec: true", plain.exec, setup=refilled, group="docker")
    by_run = Case("docker run --rm: true", plain.run, setup=refilled, group="docker")
    return [
        first,
        by_hand,
        Case("aiodocker exec: true", plain.exec_by_aiodocker, setup=refilled, group="docker"),
        by_run,
        ours("ringfence, the box alone: /bin/true", lambda: alone("/bin/true"), WARM_GOAL),
        ours("ringfence, open box: /bin/true", lambda: shell("/bin/true"), EXEC_GOAL, by_hand),
        ours("ringfence, open box: shell builtin", lambda: shell("true")),
        ours("ringfence, open box: python 'pass'", python),
        ours("ringfence, a box of the pool for each: /bin/true", fresh),
        ours("ringfence, a container for each: true", once, RUN_GOAL, by_run),
    ]


async def throughput(manager: SandboxManager, plain: Plain, console: Console) -> None:
    """Calls per second by number of sessions; docker exec from as many callers."""
    table = Table(
        "at once", "ringfence calls/s", "docker exec calls/s", "ratio", title="throughput", title_justify="left"
    )
    for count in SESSIONS:
        names = [f"load-{number}" for number in range(count)]
        await asyncio.gather(*(manager.execute_shell("true", session_id=name) for name in names))

        async def call(name: str) -> None:
            (await manager.execute_shell("true", session_id=name)).full.check()

        async def other(name: str) -> None:
            await asyncio.to_thread(asyncio.run, plain.exec())

        ours, theirs = await _rate(call, names), await _rate(other, names)
        table.add_row(str(count), f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.0f}")
        await asyncio.gather(*(manager.cleanup(name) for name in names))
    console.print(table)


async def _rate(call: Callable[[str], Awaitable[None]], names: list[str]) -> float:
    begin = time.perf_counter()

    async def work(name: str) -> int:
        done = 0
        while time.perf_counter() < begin + SECONDS:
            await call(name)
            done += 1
        return done

    calls = sum(await asyncio.gather(*map(work, names)))
    return calls / (time.perf_counter() - begin)


async def main(rounds: int) -> None:
    console = Console()
    url, image = os.environ.get("DOCKER_HOST"), os.environ.get("RINGFENCE_DOCKER_IMAGE")
    if not url or not image:
        sys.exit("set DOCKER_HOST and RINGFENCE_DOCKER_IMAGE; scripts/docker-engine.sh up DIRECTORY prints both")
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        os.environ["RINGFENCE_STATE_DIR"] = str(Path(directory) / "state")
        os.environ["RINGFENCE_WORKSPACES_DIR"] = str(Path(directory) / "workspaces")
        async with everything(url, image) as (cases, manager, plain):
            await measure(cases, rounds, console)
            report(cases, f"{rounds} interleaved rounds, as {chart.user()}, on a {chart.machine()}", console)
            await throughput(manager, plain, console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
