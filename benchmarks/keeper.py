"""What a command line costs: with a keeper, without, and for a page of help; ratios to a bare `true`, interleaved.

    python -m benchmarks.keeper [ROUNDS]

The front beside this interpreter is measured, with a home, a runtime directory and a keeper of its own, which is
stopped afterwards. As a user has it, that is an installed one: for a checkout, every call looks at each of its files.
Nobody is measured while a box is being made for the next call; "no box" is a keeper that makes none.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.rounds import Case, Run, measure, report, wide_console
from ringfence.keeper.asking import ask_keepers

FRONT = Path(sys.executable).with_name("ringfence")
GOAL_KEEPER, GOAL_PLAIN, GOAL_HELP = 4, 80, 30
_PATIENCE_SECONDS = 60.0
_AGAIN_SECONDS = 3.0


def runs(words: list[str], env: dict[str, str], place: Path) -> Run:
    async def run() -> None:
        subprocess.run(words, env=env, cwd=place, stdout=subprocess.DEVNULL, check=True)

    return run


def box_ready(line: list[str], env: Mapping[str, str], place: Path) -> Run:
    """Waits until the keeper has a box for the next such call; what it has begun after the last one is done then."""

    async def wait() -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        again = 0.0
        while not any(each["boxes"] for each in ask_keepers(env, stop=False)):
            if time.monotonic() > until:
                sys.exit("no box is made ahead")
            if time.monotonic() > again:  # none is made where something changed meanwhile, until the next call
                subprocess.run(line, env=env, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, check=True)
                again = time.monotonic() + _AGAIN_SECONDS
            await asyncio.sleep(0.02)

    return wait


def start_keeper(env: dict[str, str], place: Path) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while subprocess.run([FRONT, "keeper", "status"], env=env, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > until:
            sys.exit("no keeper has started")
        subprocess.run([FRONT, "--version"], env=env, cwd=place, capture_output=True, check=True)
        time.sleep(0.2)
    time.sleep(1)  # of the second, status shows the first


async def main(rounds: int) -> None:
    console = wide_console()
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
        none = on | {"RINGFENCE_KEEPER_BOXES": "0"}
        front = str(FRONT)
        cases = [
            Case("/bin/true", runs(["/bin/true"], on, place), group="bare"),
            Case("python -c pass", runs([sys.executable, "-c", "pass"], on, place), group="bare"),
        ]
        for name, words, env, goal in (
            ("ringfence run true, keeper", ["run", "true"], on, GOAL_KEEPER),
            ("ringfence run true, keeper, no box", ["run", "true"], none, None),
            ("ringfence run true, plain", ["run", "true"], off, GOAL_PLAIN),
            ("ringfence --help, keeper", ["--help"], on, GOAL_HELP),
            ("ringfence --help, plain", ["--help"], off, None),
            ("ringfence --version, keeper", ["--version"], on, None),
        ):
            cases.append(Case(name, runs([front, *words], env, place), group="ringfence", at_most=goal))
        for env in (on, none):
            start_keeper(env, place)
            subprocess.run([front, "run", "true"], env=env, cwd=place, check=True)
        for case in cases:
            case.setup = box_ready([front, "run", "true"], on, place)
        try:
            await measure(cases, rounds, console)
        finally:
            subprocess.run([front, "keeper", "stop"], env=on, capture_output=True, check=False)
        report(cases, "the command line", console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
