"""What a call in a container costs: Ringfence's boxes in Docker, and what else runs a command in a container.

python -m benchmarks.docker [rounds]

Needs a daemon that DOCKER_HOST names (scripts/docker-engine.sh up DIRECTORY), and the image RINGFENCE_DOCKER_IMAGE. All
containers run the same image without a network. "The box alone" is the engine without policy and journal; the others
have both, as a user does. Ratios are to `subprocess.run` of `/bin/true`, in one interleaved run; then come the goals,
and the same calls from several sessions at once.

llm-sandbox is measured where scripts/alternatives.sh has put it, at its best: without its set-up of an environment, in
containers that end at once, in a session that stays open, and in one of its pool, whose containers are used again and
again. It runs in a process of its own that takes orders over a pipe, which adds less than a tenth of a millisecond.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiodocker
from rich.console import Console
from rich.table import Table

from benchmarks import chart
from benchmarks.alternatives import TRUE, Place, Unavailable, python_library
from benchmarks.rounds import Case, measure, report
from ringfence import Docker, DockerExecutor, ExecutionRequest, PoolConfig, Sandbox, SandboxManager, SandboxPool
from ringfence.values.request import Request

ROUNDS = 30
SHORT_RUNS = 10
"""How often a call of a millisecond or two is run for each one that takes many: it is disturbed as easily."""
SESSIONS = (1, 2, 4, 8)
SECONDS = 3.0
WARM_GOAL = 2.0
"""A warm call, in calls of subprocess.run."""
EXEC_GOAL = 25.0
"""One of docker exec, in warm calls."""
POOL_GOAL = 2.0
"""The first call of a session with boxes waiting, in warm calls: nothing is made while it waits."""
RUN_GOAL = 1.5
"""A container for a single call, in calls of docker run."""

_LLM_SANDBOX = """
import shlex
from llm_sandbox import SandboxBackend, SandboxSession
from llm_sandbox.pool import PoolConfig, create_pool_manager

ALIKE = dict(
    lang="python",
    image=sys.argv[1],
    skip_environment_setup=True,
    runtime_configs=dict(network_mode="none", command="sleep infinity", stop_signal="SIGKILL"),
)

def session():
    return SandboxSession(backend=SandboxBackend.DOCKER, **ALIKE)

def run_in(box, command):
    output = box.execute_command(shlex.join(command))
    return [output.exit_code, output.stderr]

def run(way, command):
    if way == "open":
        return run_in(opened, command)
    with SandboxSession(pool=pool, lang="python") if way == "pool" else session() as box:
        return run_in(box, command)

kept = PoolConfig(max_pool_size=4, min_pool_size=2)
with create_pool_manager(backend=SandboxBackend.DOCKER, config=kept, **ALIKE) as pool, session() as opened:
    listen("llm-sandbox", run)
"""


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
        self._docker("exec", self._id, *TRUE)

    async def run(self) -> None:
        self._docker("run", "--rm", "--network", "none", self._image, *TRUE)

    async def exec_by_aiodocker(self) -> None:
        started = await self._client.containers.container(self._id).exec(list(TRUE))
        async with started.start(detach=False) as stream:
            while await stream.read_out() is not None:
                pass
        assert (await started.inspect())["ExitCode"] == 0

    async def close(self) -> None:
        await self._client.close()
        self._docker("rm", "--force", self._id)


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that is measured, standing."""

    plain: Plain
    manager: SandboxManager
    without_pool: SandboxManager
    """One whose pool keeps nothing ready."""
    box: Sandbox
    executor: DockerExecutor

    async def settle(self) -> None:
        """Until the pool is full again and nothing is being closed."""
        await self.manager.pool.wait_ready()
        pools = (self.manager.pool, self.without_pool.pool)
        while any(state.closing or state.starting for pool in pools for state in pool.state().values()):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.005)


@asynccontextmanager
async def standing(url: str, image: str) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        plain = Plain(url, image)
        stack.push_async_callback(plain.close)
        manager = await stack.enter_async_context(SandboxManager(docker_url=url, pool_size=2, max_instances=12))
        nothing_ready = PoolConfig(min_instances=0, max_instances=12)
        pool = await stack.enter_async_context(SandboxPool(size=nothing_ready, engine=Docker(url=url)))
        workspace = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-bench-"))
        box = await stack.enter_async_context(Sandbox(workspace, engine=Docker(url=url, image=image)))
        executor = DockerExecutor(engine=Docker(url=url, image=image))
        yield Bench(plain, manager, SandboxManager(aio_pool=pool), box, executor)


@dataclass(frozen=True, slots=True)
class Cases:
    """What is measured; those that a goal is about have names."""

    bare: Case
    by_exec: Case
    by_run: Case
    warm: Case
    first: Case
    once: Case
    short: tuple[Case, ...]
    others: tuple[Case, ...]

    @property
    def all(self) -> list[Case]:
        named = (self.by_exec, self.by_run, self.warm, self.first, self.once)
        rest = sorted((*named, *self.short, *self.others), key=lambda case: (case.group, case.name))
        return [self.bare, *rest]

    @property
    def of_a_round(self) -> list[Case]:
        again = (self.bare, self.warm, *self.short) * (SHORT_RUNS - 1)
        return [*self.all, *again]


def make_cases(bench: Bench, others: list[Case]) -> Cases:
    plain, manager, box = bench.plain, bench.manager, bench.box
    turn = iter(range(1_000_000))

    async def bare() -> None:
        subprocess.run(TRUE, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={})

    async def once() -> None:
        (await bench.executor.execute(ExecutionRequest(command="/bin/true"))).check()

    async def shell(command: str) -> None:
        (await box.shell(command)).check()

    async def alone() -> None:
        (await (await box.lend()).run(Request(command="/bin/true"))).check()

    async def fresh() -> None:
        (await manager.execute_shell("/bin/true")).check()

    async def first_of(chosen: SandboxManager) -> None:
        name = f"session-{next(turn)}"
        (await chosen.execute_shell("/bin/true", session_id=name)).check()
        ended.append((chosen, name))

    ended: list[tuple[SandboxManager, str]] = []

    async def settle() -> None:
        while ended:
            chosen, name = ended.pop()
            await chosen.cleanup(name)
        await bench.settle()

    async def python() -> None:
        (await box.python("pass")).check()

    def case(group: str, name: str, run: Callable[[], Awaitable[None]]) -> Case:
        return Case(f"{group}{': ' if group == 'subprocess.run' else ', '}{name}", run, setup=settle, group=group)

    for other in others:
        other.setup = settle
    return Cases(
        bare=case("subprocess.run", "/bin/true", bare),
        by_exec=case("docker", "exec: /bin/true", plain.exec),
        by_run=case("docker", "run --rm: /bin/true", plain.run),
        warm=case("ringfence", "open box: /bin/true", lambda: shell("/bin/true")),
        first=case("ringfence", "first call of a session, boxes wait: /bin/true", lambda: first_of(manager)),
        once=case("ringfence", "a container for each: /bin/true", once),
        short=(
            case("ringfence", "the box alone: /bin/true", alone),
            case("ringfence", "open box: shell builtin", lambda: shell("true")),
            case("ringfence", "open box: python 'pass'", python),
        ),
        others=(
            case("docker", "exec by aiodocker: /bin/true", plain.exec_by_aiodocker),
            case("ringfence", "a box of the pool for each: /bin/true", fresh),
            case("ringfence", "first call of a session, no box waits: /bin/true", lambda: first_of(bench.without_pool)),
            *others,
        ),
    )


def llm_sandbox(place: Place, stack: ExitStack, image: str, console: Console) -> list[Case]:
    """Its cases, if it is installed and runs commands."""
    ways = {
        "open": "session kept open: /bin/true",
        "pool": "session of its pool, containers used again: /bin/true",
        "once": "a container for each: /bin/true",
    }
    try:
        library = python_library(place, stack, _LLM_SANDBOX, image)
        for way in ways:
            for code in (0, 7):
                ended = library.way(way)(("sh", "-c", f"exit {code}"))
                if ended.code != code:
                    raise Unavailable(ended.reason)
    except Unavailable as why:
        console.print(f"left out: llm-sandbox with Docker: {why} (scripts/alternatives.sh installs it)", markup=False)
        return []

    def case(way: str, name: str) -> Case:
        async def run() -> None:
            ended = library.way(way)(TRUE)
            assert ended.code == 0, ended.reason

        return Case(f"llm-sandbox {library.version}, {name}", run, group="llm-sandbox")

    return [case(way, name) for way, name in ways.items()]


def show_goals(cases: Cases, console: Console) -> None:
    """The goals, what was measured, and whether it is enough; decides nothing."""
    warm = cases.warm.median
    rows = (
        ("warm call, in calls of subprocess.run", warm / cases.bare.median, "at most", WARM_GOAL),
        ("docker exec, in warm calls", cases.by_exec.median / warm, "at least", EXEC_GOAL),
        ("first call of a session while boxes wait, in warm calls", cases.first.median / warm, "at most", POOL_GOAL),
        (
            "a container for each call, in calls of docker run",
            cases.once.median / cases.by_run.median,
            "at most",
            RUN_GOAL,
        ),
    )
    table = Table("goals, by medians", "ratio", "goal", "met")
    for what, ratio, how, goal in rows:
        is_met = ratio <= goal if how == "at most" else ratio >= goal
        table.add_row(what, f"{ratio:.2f}", f"{how} {goal:g}", "yes" if is_met else "no")
    console.print(table)


async def throughput(manager: SandboxManager, plain: Plain, console: Console) -> None:
    """Calls per second by number of sessions; docker exec from as many callers."""
    table = Table(
        "at once", "ringfence calls/s", "docker exec calls/s", "ratio", title="throughput", title_justify="left"
    )
    for count in SESSIONS:
        names = [f"load-{number}" for number in range(count)]
        await asyncio.gather(*(manager.execute_shell("true", session_id=name) for name in names))

        async def call(name: str) -> None:
            (await manager.execute_shell("true", session_id=name)).check()

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
        place = Place(Path(tempfile.mkdtemp(dir=directory)))
        place.env["DOCKER_HOST"] = url
        with ExitStack() as stack:
            others = llm_sandbox(place, stack, image, console)
            async with standing(url, image) as bench:
                cases = make_cases(bench, others)
                await measure(cases.of_a_round, rounds, console)
                title = f"{rounds} interleaved rounds, as {chart.user()}, on a {chart.machine()}"
                report(cases.all, title, console)
                show_goals(cases, console)
                await throughput(bench.manager, bench.plain, console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
