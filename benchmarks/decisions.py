"""What a decision about a command line costs: full analysis and all checks, against fork and exec of /bin/true.

python -m benchmarks.decisions [rounds]
"""

import os
import sys
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from ringfence.shell import CheckContext, analyse, validate

ROUNDS = 200
SHORT = "pytest -q tests/unit -k 'not slow' --maxfail 1 -x --lf"
"""Ten words."""
MEDIUM = (
    "cd src && find . -name '*.py' -print0 | xargs -0 grep -l TODO | sort > /tmp/todo.txt; "
    'for f in $(cat /tmp/todo.txt); do sed -i "s/TODO/FIXME/" "$f" || echo "failed: $f" >&2; done; '
    "git add -A && git commit -m 'Mark what is left' && git push origin HEAD"
)
LINE = "grep -rn 'needle' src/module_a src/module_b | head -20 > out/found.txt\n"
LENGTHS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
GOAL = 1 / 5


def lines(length: int) -> str:
    return (LINE * (length // len(LINE) + 1))[:length].rpartition("\n")[0]


def decide(text: str) -> Callable[[], None]:
    context = CheckContext()

    def run() -> None:
        validate(analyse(text), context)

    return run


def fork_and_exec() -> None:
    """By posix_spawn, the cheapest way: a plain fork copies page tables, and slows down what comes after it too."""
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def measure(cases: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Seconds for each, the median over rounds in which all take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, run in cases.items():
            begin = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - begin)
    return {name: median(found) for name, found in seconds.items()}


def main(rounds: int = ROUNDS) -> bool:
    """Print the table; whether the goal was met."""
    console = Console()
    # As in use: decide, then start. The long ones come apart, since they empty the processor's caches.
    found = measure({"fork and exec of /bin/true": fork_and_exec, "short, 10 words": decide(SHORT)}, rounds)
    found |= measure({f"medium, {len(MEDIUM)} characters": decide(MEDIUM), "10 kB": decide(lines(10_000))}, rounds // 4)
    base = found["fork and exec of /bin/true"]
    table = Table(
        "case", "median", "per second", "of one fork and exec", "goal", title=f"{rounds} rounds", title_justify="left"
    )
    for name, seconds in found.items():
        goal = f"at most {GOAL:.2f}" if name.startswith("short") else ""
        table.add_row(name, f"{seconds * 1000:.3f} ms", f"{1 / seconds:,.0f}", f"{seconds / base:.2f}", goal)
    console.print(table)
    growth = measure({str(length): decide(lines(length)) for length in LENGTHS}, max(rounds // 20, 3))
    table = Table(
        "characters", "median", "microseconds per character", title="growth with length", title_justify="left"
    )
    for length, seconds in growth.items():
        table.add_row(length, f"{seconds * 1000:.2f} ms", f"{seconds * 1e6 / int(length):.2f}")
    console.print(table)
    return found["short, 10 words"] <= base * GOAL


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
