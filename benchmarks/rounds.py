"""Runs cases in turn, round after round in shuffled order, and reports medians as ratios to the first one.

A noisy machine slows all cases of a round alike, so ratios of one run can be compared where milliseconds cannot.
"""

import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import track
from rich.table import Table

Run = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Case:
    name: str
    run: Run
    goal: str = ""
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def tenth(self) -> float:
        """The time that one round in ten beats: closer to the true cost on a busy machine."""
        return sorted(self.seconds)[len(self.seconds) // 10]


async def measure(cases: list[Case], rounds: int, console: Console) -> None:
    """Run every case once per round; the first round warms up and is not counted."""
    dice = random.Random(0)
    for number in track(range(rounds + 1), "measuring", console=console, transient=True):
        for case in dice.sample(cases, len(cases)):
            begin = time.perf_counter()
            await case.run()
            if number:
                case.seconds.append(time.perf_counter() - begin)


def report(cases: list[Case], title: str, console: Console) -> None:
    base = cases[0]
    table = Table("case", "median", "ratio", "p10 ratio", "goal", title=title, title_justify="left")
    for case in cases:
        ratio, tenth = case.median / base.median, case.tenth / base.tenth
        table.add_row(case.name, f"{case.median * 1000:.2f} ms", f"{ratio:.2f}", f"{tenth:.2f}", case.goal)
    console.print(table)
