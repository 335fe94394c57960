"""What a command line costs: with a keeper, without, and for a page of help; ratios to a bare `true`, interleaved.

    python -m benchmarks.keeper [ROUNDS]

The front of this checkout is measured, with a home, a runtime directory and a keeper of its own, which is
stopped afterwards.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from benchmarks.rounds import Case, Run, measure, report

FRONT = Path(sys.executable).with_name("ringfence")
GOAL_KEEPER, GOAL_PLAIN, GOAL_HELP = 4, 80, 30
_PATIENCE_SECONDS = 60.0


def runs(words: list[str], env: dict[str, str], place: Path) -> Run:
    async def run() -> None:
        subprocess.run(words, env=env, cwd=place, stdout=subprocess.DEVNULL, check=True)

    return run


def start_keeper(env: dict[str, str], place: Path) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while subprocess.run([FRONT, "keeper", "status"], env=env, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > until:
            sys.exit("no keeper has started")
        subprocess.run([FRONT, "--version"], env=env, cwd=place, capture_output=True, check=True)
        time.sleep(0.2)


async def main(rounds: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        top = Path(directory)
        for name in ("home", "project", "run"):
            (top / name).mkdir(mode=0o700)
        place = top / "project"
        on = {
            "PATH": os.environ["PATH"],
            "HOME": str(top / "home"),
            "XDG_RUNTIME_DIR": str(top / "run"),
            "RINGFENCE_KEEPER": "on",
        }
        off = on | {"RINGFENCE_KEEPER": "off"}
        front = str(FRONT)
        cases = [
            Case("/bin/true", runs(["/bin/true"], on, place), group="bare"),
            Case("python -c pass", runs([sys.executable, "-c", "pass"], on, place), group="bare"),
        ]
        for name, words, env, goal in (
            ("ringfence run true, keeper", ["run", "true"], on, GOAL_KEEPER),
            ("ringfence run true, plain", ["run", "true"], off, GOAL_PLAIN),
            ("ringfence --help, keeper", ["--help"], on, GOAL_HELP),
            ("ringfence --help, plain", ["--help"], off, None),
            ("ringfence --version, keeper", ["--version"], on, None),
        ):
            cases.append(Case(name, runs([front, *words], env, place), group="ringfence", at_most=goal))
        start_keeper(on, place)
        try:
            await measure(cases, rounds, console)
        finally:
            subprocess.run([front, "keeper", "stop"], env=on, capture_output=True, check=False)
        report(cases, "the command line", console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
