"""Draws what calls cost as one bar chart, for the documents.

Bars start at 1, the cost of a bare process, on a logarithmic scale: one that points to the left is cheaper than that.
"""

import os
import platform
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks.rounds import Case

OURS = "ringfence"
_COLOURS = {OURS: "#0b6bcb", "bare": "#3b3f45"}
_OTHERS = "#b4bac2"
_INCHES, _DOTS = 10.0, 200
"""Twice as many dots as a page of 1000 shows, so that it stays sharp on dense screens."""
_ROW_INCHES = 0.3
_HEAD_INCHES = 1.0


class Row(NamedTuple):
    name: str
    ratio: float
    group: str = ""
    section: str = ""
    """A heading above; rows of one section are drawn together, the quickest first."""


def rows(cases: list[Case], section: str = "", base: Case | None = None) -> list[Row]:
    """Measured cases as rows, as ratios to `base` (the first case, if it is left out)."""
    one = (base or cases[0]).median
    return [Row(case.name, case.median / one, case.group, section or case.section) for case in cases]


def draw(rows: Iterable[Row], path: Path | str, *, rounds: int) -> None:
    """Write the chart as a PNG. Without pyplot a figure draws by Agg, so no display is needed."""
    lines = _lines(list(rows))
    height = _HEAD_INCHES + 0.7 + _ROW_INCHES * len(lines)
    figure = Figure(figsize=(_INCHES, height), dpi=_DOTS)
    # The words above are not the layout's business: it would centre them over the bars and cut them off.
    figure.set_layout_engine("constrained", rect=(0.012, 0.012, 0.976, 1 - _HEAD_INCHES / height))
    axes = figure.add_subplot()
    _draw_bars(axes, lines)
    _draw_scale(axes, lines)
    heads = (
        (0.12, 'Cost of one call, as a ratio to subprocess.run(["/bin/true"]) = 1', {"fontsize": 15, "weight": "bold"}),
        (0.45, f"Median of {rounds} interleaved rounds on a {machine()}, as {user()}.", {"fontsize": 11}),
        (0.67, "Ratios of one run, not times. The scale is logarithmic; shorter is better.", {"fontsize": 11}),
    )
    for inches, words, style in heads:
        figure.text(0.02, 1 - inches / height, words, va="top", color="#1c1e21", **style)
    figure.savefig(path, metadata={"Software": None})


def machine() -> str:
    kind = "virtual machine" if "hypervisor" in _cpu_flags() else "machine"
    return f"{os.cpu_count()}-core {platform.machine()} {platform.system()} {kind}"


def user() -> str:
    return "root" if os.geteuid() == 0 else "an ordinary user"


def _cpu_flags() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def _lines(rows: list[Row]) -> list[Row | str]:
    """Rows and headings from top to bottom."""
    lines: list[Row | str] = []
    for section in dict.fromkeys(row.section for row in rows):
        if section:
            lines.append(section)
        lines += sorted((row for row in rows if row.section == section), key=attrgetter("ratio"))
    return lines


def _draw_bars(axes: Axes, lines: list[Row | str]) -> None:
    for place, line in enumerate(lines):
        if isinstance(line, str):
            continue
        colour = _COLOURS.get(line.group, _OTHERS)
        weight = "bold" if line.group == OURS else "normal"
        axes.barh(place, line.ratio - 1, left=1, height=0.72, color=colour, zorder=2)
        label = f"{line.ratio:.2f}" if line.ratio < 10 else f"{line.ratio:,.0f}"
        at = (max(line.ratio, 1), place)
        axes.annotate(
            label, at, (5, 0), textcoords="offset points", va="center", fontsize=10.5, weight=weight, color="#1c1e21"
        )
    axes.set_yticks(range(len(lines)), [line if isinstance(line, str) else line.name for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    for tick, line in zip(axes.get_yticklabels(), lines, strict=True):
        tick.set_fontsize(10.5)
        if isinstance(line, str):
            tick.set(weight="bold", fontsize=11.5)
        elif line.group == OURS:
            tick.set(weight="bold", color=_COLOURS[OURS])


def _draw_scale(axes: Axes, lines: list[Row | str]) -> None:
    ratios = [line.ratio for line in lines if isinstance(line, Row)]
    low, high = min(0.85, *(ratio * 0.85 for ratio in ratios)), max(ratios)
    axes.set_xscale("log")
    axes.set_xlim(low, high * (high / low) ** 0.1)  # room for the longest bar's label
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.axvline(1, color="#3b3f45", linewidth=1, zorder=3)
    axes.grid(axis="x", color="#e3e6ea", zorder=0)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("times the cost of a bare process", fontsize=10.5)
