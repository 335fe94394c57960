"""Writes the figures of a run into README, between two marks: the text and the picture then are of the same run."""

from pathlib import Path

from benchmarks import chart
from benchmarks.rounds import Case
from benchmarks.sections import ORDER

BEGIN, END = "<!-- figures: written by make bench CHART=docs/bench.png -->", "<!-- end of figures -->"


def write_figures(cases: list[Case], path: Path, *, rounds: int) -> None:
    """Replace what is between the marks.

    Raises:
        ValueError: the file has no such marks.
    """
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for figures: it needs {BEGIN} and {END}")
    path.write_text(f"{before}{begin}\n{table(cases, rounds)}\n{end}{after}")


def table(cases: list[Case], rounds: int) -> str:
    """A row for each section: ours, then others, each the quickest first, as ratios to the first case."""
    one = cases[0].median
    lines = [
        f"Medians of {rounds} interleaved rounds, as {chart.user()}, on a {chart.machine()}:",
        "",
        "| compared | Ringfence | others |",
        "|---|---|---|",
    ]
    for section in ORDER:
        shown = sorted((case for case in cases if case.section == section and case.is_charted), key=lambda c: c.median)
        ours = [case for case in shown if case.group == chart.OURS]
        others = [case for case in shown if case.group != chart.OURS]
        if shown:
            lines.append(f"| {section} | {_named(ours, one)} | {_named(others, one)} |")
    return "\n".join(lines)


def _named(cases: list[Case], one: float) -> str:
    return "; ".join(f"{case.name.removeprefix('ringfence, ')} **{_ratio(case.median / one)}**" for case in cases)


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
