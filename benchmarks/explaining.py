"""What it costs to be looked at: three programs with nothing, changes, refused reads, every open, mediated opens.

python -m benchmarks.explaining [rounds]
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import Case, measure
from ringfence import Sandbox
from ringfence.values.grant import Trace

ROUNDS = 25
FILES = 2000
PYTHON = "/usr/bin/python3"

PROGRAMS = {
    f"{PYTHON} -c 'import json, http.client'": (1.1, 1.2, 1.2),
    "git status --short": (1.3, 1.4, 1.5),
    "grep -r nothing .; true": (1.1, 1.1, 2.6),
}
"""The command, and the goals for `changes`, `reads` and `full` as ratios to `off`."""
LEVELS = ("off", "changes", "reads", "full", "mediated")


def make_project(root: Path) -> None:
    """A repository of many small files, all committed."""
    for number in range(FILES):
        file = root / f"part{number % 20}" / f"file{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("a line of text\n" * 5)
    line = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b.c commit -qm one"
    subprocess.run(["/bin/sh", "-c", line], cwd=root, check=True)


def sandbox(root: Path, level: str) -> Sandbox:
    mediate_opens = level == "mediated"
    return Sandbox(root, trace=Trace.OFF if mediate_opens else Trace(level), mediate_opens=mediate_opens)


async def run(box: Sandbox, command: str) -> None:
    (await box.shell(command)).check()


async def main(rounds: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make_project(root)
        async with contextlib.AsyncExitStack() as stack:
            boxes = {level: await stack.enter_async_context(sandbox(root, level)) for level in LEVELS}
            cases = {
                (program, level): Case(program, partial(run, box, program))
                for program in PROGRAMS
                for level, box in boxes.items()
            }
            await measure(list(cases.values()), rounds, console)
    table = Table("program", *LEVELS, "goals", title="cost of being looked at, median as a ratio to `off`")
    for program, (changes, reads, full) in PROGRAMS.items():
        base = cases[program, "off"].median
        shown = (f"{cases[program, level].median / base:.2f}" for level in LEVELS)
        table.add_row(program, *shown, f"changes {changes}, reads {reads}, full {full}")
    console.print(table)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
