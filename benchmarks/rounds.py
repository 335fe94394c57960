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
_COLUMNS = 150


@dataclass(slots=True)
class Case:
    name: str
    run: Run
    goal: str = ""
    seconds: list[float] = field(default_factory=list)
    setup: Run | None = None
    """Runs before every timed run and is not counted, such as waiting until a pool is full again."""
    group: str = ""
    """Who does the work: `ringfence`, `bare`, or an alternative's name. The chart colours by it."""
    section: str = ""
    """What it is compared with: calls of the same kind. Tables and charts show each section by itself."""
    is_charted: bool = True
    """Whether the picture shows it: not what has nothing to be compared with."""
    at_most: float | None = None
    """The goal as a number: the median ratio to `of`."""
    of: "Case | None" = None
    """What the goal is a ratio to; the first case if it is left out."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p10(self) -> float:
        """The time that one round in ten beats: closer to the true cost on a busy machine."""
        return self._at(0.10)

    @property
    def p95(self) -> float:
        """The time that one round in twenty exceeds: what somebody who waits notices."""
        return self._at(0.95)

    def _at(self, part: float) -> float:
        return sorted(self.seconds)[min(int(len(self.seconds) * part), len(self.seconds) - 1)]


def wide_console() -> Console:
    """One whose tables fit on their lines, also where nobody has a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_COLUMNS)


async def measure(cases: list[Case], rounds: int, console: Console) -> None:
    """Run every case once per round; the first round warms up and is not counted."""
    dice = random.Random(0)
    for number in track(range(rounds + 1), "measuring", console=console, transient=True):
        for case in dice.sample(cases, len(cases)):
            if case.setup:
                await case.setup()
            begin = time.perf_counter()
            await case.run()
            if number:
                case.seconds.append(time.perf_counter() - begin)


def report(cases: list[Case], title: str, console: Console) -> None:
    """Print the table; every ratio is to the first case at the same percentile."""
    base = cases[0]
    has_goals = any(case.goal or case.at_most is not None for case in cases)
    columns = ("case", "median", "ratio", "p10 ratio", "p95 ratio", *(("goal", "met") if has_goals else ()))
    table = Table(*columns, title=title, title_justify="left")
    for before, case in zip([base, *cases], cases, strict=False):
        if case.section and (case.section != before.section or case is base):
            table.add_section()
            table.add_row(case.section, style="bold")
        elif not case.section and case.group != before.group:
            table.add_section()
        ratios = (case.median / base.median, case.p10 / base.p10, case.p95 / base.p95)
        goal = _goal(case, base) if has_goals else ()
        table.add_row(case.name, f"{case.median * 1000:.2f} ms", *(f"{ratio:.2f}" for ratio in ratios), *goal)
    console.print(table)


def _goal(case: Case, base: Case) -> tuple[str, str]:
    """The goal in words, and whether it was met; neither decides anything."""
    if case.at_most is None:
        return case.goal, ""
    against = case.of or base
    words = f"at most {case.at_most:.2f}" + (f" of {case.of.name}" if case.of else "")
    return case.goal or words, "yes" if case.median <= case.at_most * against.median else "no"
