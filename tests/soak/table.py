"""Shows what a soak found."""

from __future__ import annotations

from dataclasses import fields
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.soak.soak import Report
from tests.soak.watch import Footprint


def show(report: Report, console: Console) -> None:
    kinds = Table("kind", "calls", "as expected", "hit by a kill", "median ms", "95 % ms", "longest ms")
    for name, kind in sorted(report.kinds.items()):
        times = sorted(kind.seconds)
        figures = (median(times), times[int(len(times) * 0.95)], times[-1]) if times else (0.0, 0.0, 0.0)
        counts = (kind.calls, kind.expected, kind.hit)
        kinds.add_row(name, *map(str, counts), *(f"{figure * 1000:.1f}" for figure in figures))
    console.print(kinds)
    prints = Table("executions", *(field.name.replace("_bytes", " MiB") for field in fields(Footprint)))
    for done, footprint in report.footprints:
        values = [getattr(footprint, field.name) for field in fields(Footprint)]
        prints.add_row(str(done), *map(str, values[:-1]), f"{values[-1] / 2**20:.1f}")
    console.print(prints)
    for line in report.lines():
        console.print(line, highlight=False)
    for fault in report.faults[:50]:
        console.print(f"[red]FAULT[/] {fault}", highlight=False, markup=True)
    console.print("[green]nothing was wrong[/]" if not report.faults else f"[red]{len(report.faults)} faults[/]")
