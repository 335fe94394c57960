"""What it costs to begin: importing Ringfence, its command line without a keeper, and which step of a run costs what.

python -m benchmarks.starting [rounds]

Two tables. The first has every case in turn, by the clock and by the processor time of the whole tree, as ratios to
`subprocess.run(["/bin/true"])` and to `python -c pass`. The second takes one `ringfence run true` apart.
"""

import ast
import compileall
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import ringfence

ROUNDS = 25
COMMAND = str(Path(sys.executable).parent / "ringfence")
STEPS = """
import time
begin = time.process_time()
def step(name):
    now = time.process_time()
    marks.append((name, now))
marks = [("the interpreter", begin)]
import gc
gc.disable()
from ringfence.cli.waiting import load_asyncio
load_asyncio()
step("asyncio")
import ringfence.manager.sandbox, ringfence.cli.running
step("Ringfence's modules")
gc.freeze()
gc.enable()
import ringfence
ringfence.run(["/bin/true"])
step("the first call: decision, box, record")
ringfence.run(["/bin/true"])
step("for comparison, a second call")
import resource
children = resource.getrusage(resource.RUSAGE_CHILDREN)
marks.append(("both calls' launchers and boxes", marks[-1][1] + children.ru_utime + children.ru_stime))
print(marks)
"""


@dataclass(slots=True)
class Start:
    name: str
    line: list[str]
    goal: str = ""
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self, where: str, *, counts: bool) -> None:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(self.line, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=where)
        end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        if counts:
            self.seconds.append(end - begin)
            self.processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def cases() -> list[Start]:
    def python(name: str, code: str, goal: str = "") -> Start:
        return Start(name, [sys.executable, "-c", code], goal)

    return [
        Start("true", ["/bin/true"]),
        python("python -c pass", "pass"),
        python("import asyncio", "import asyncio"),
        python("import ringfence; ringfence.run", "import ringfence; ringfence.run", "3 times python -c pass"),
        python("the same and Sandbox", "import ringfence; ringfence.Sandbox"),
        python("the same and SandboxManager", "import ringfence; ringfence.SandboxManager"),
        python("ringfence.run(['/bin/true'])", "import ringfence; ringfence.run(['/bin/true'])"),
        Start("ringfence --help", [COMMAND, "--help"], "30"),
        Start("ringfence run --help (by Typer)", [COMMAND, "run", "--help"]),
        Start("ringfence run true", [COMMAND, "run", "true"], "80"),
    ]


def report(every: list[Start], console: Console) -> None:
    table = Table("case", "to true", "to python", "processor: to true", "to python", "goal", title="To begin")
    table.columns[0].no_wrap = True
    true, bare = every[0], every[1]
    for case in every:
        clock, used = statistics.median(case.seconds), statistics.median(case.processor)
        table.add_row(
            case.name,
            f"{clock / statistics.median(true.seconds):.1f}",
            f"{clock / statistics.median(bare.seconds):.1f}",
            f"{used / statistics.median(true.processor):.1f}",
            f"{used / statistics.median(bare.processor):.1f}",
            case.goal,
        )
    console.print(table)


def report_steps(rounds: int, where: str, console: Console) -> None:
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", STEPS], check=True, capture_output=True, cwd=where)
        before = 0.0
        for name, at in ast.literal_eval(done.stdout.decode()):
            taken.setdefault(name, []).append(at - before)
            before = at
    bare = statistics.median(taken["the interpreter"])
    table = Table("step of one run", "processor time, ratio to the interpreter's start", title="What costs what")
    for name, each in taken.items():
        table.add_row(name, f"{statistics.median(each) / bare:.1f}")
    console.print(table)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    console = Console()
    for package in Path(ringfence.__file__).parent, Path(__file__).parent:
        compileall.compile_dir(package, quiet=2)  # as an installation has it
    dice, every = random.Random(0), cases()
    with tempfile.TemporaryDirectory() as where:
        os.environ.setdefault("RINGFENCE_STATE_DIR", os.path.join(where, "state"))
        os.mkdir(workspace := os.path.join(where, "workspace"))
        for number in track(range(rounds + 1), "measuring", console=console, transient=True):
            for case in dice.sample(every, len(every)):
                case.run(workspace, counts=number > 0)
        report(every, console)
        report_steps(rounds, workspace, console)


if __name__ == "__main__":
    main()
