"""`ringfence doctor`: what this machine can guarantee."""

import json
from typing import Annotated

import typer

from ringfence.cli.exits import Finished
from ringfence.manager.doctor import Report, examine
from ringfence.values.guarantee import Guarantee


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Say what this machine can guarantee, what is missing, and how to get it.

    Exits with 0 if a plain command can be run behind a full wall here, else with 1.
    """
    report = examine()
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _show(report)
    raise Finished(0 if report.healthy else 1)


def _as_json(report: Report) -> dict[str, object]:
    return {
        "healthy": report.healthy,
        "checks": [{"name": c.name, "ok": c.ok, "found": c.found, "hint": c.hint} for c in report.checks],
        "walls": [
            {
                "name": wall.name,
                "usable": wall.usable,
                "default": wall.default,
                "guarantees": sorted(wall.guarantees),
                "missing": wall.missing,
                "hint": wall.hint,
            }
            for wall in report.walls
        ],
    }


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    checks = Table("", "checked", "found", "what to do", title="This machine", title_justify="left")
    for check in report.checks:
        checks.add_row("[green]yes[/]" if check.ok else "[red]no[/]", check.name, check.found, check.hint)
    console.print(checks)
    walls = Table("guarantee", title="Walls, strongest first", title_justify="left")
    for wall in report.walls:
        walls.add_column(wall.name + (" (default)" if wall.default else ""), justify="center")
    for guarantee in Guarantee:
        marks = ["[green]yes[/]" if guarantee in wall.guarantees else "[dim]-[/]" for wall in report.walls]
        walls.add_row(guarantee.value, *marks)
    console.print(walls)
    for wall in report.walls:
        if wall.missing:
            console.print(f"[bold]{wall.name}[/]: {wall.missing}. {wall.hint}", highlight=False)
    if report.healthy:
        console.print("[green]A plain command runs behind the full wall here.[/]")
    else:
        console.print("[red]A plain command does not run here[/]: see what to do above.")
