"""`ringfence doctor`: what this machine can guarantee."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.say import visible
from ringfence.manager.doctor import Report, examine
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    from ringfence.manager.checklist import Checklist


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Go through the checklists: before deployment, at run time, periodic.")
    ] = False,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --checklist: the policy that will be used.")
    ] = None,
) -> None:
    """Say what this machine can guarantee, what is missing, and how to get it.

    Exits with 0 if a plain command can be run behind a full wall here, else with 1. With --checklist, a box is opened
    and tried out; exits with 1 if something that could be checked is not as it should be.
    """
    if checklist:
        _go_through(policy, as_json=as_json)
    report = examine()
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _show(report)
    raise Finished(0 if report.healthy else 1)


def _go_through(policy: Path | None, *, as_json: bool) -> NoReturn:
    from ringfence.manager.checklist import check_all, passes

    lists = check_all(policy)
    if as_json:
        document = {
            "passes": passes(lists),
            "lists": [
                {
                    "name": each.name,
                    "items": [
                        {"claim": item.claim, "found": str(item.found), "evidence": item.evidence, "hint": item.hint}
                        for item in each.items
                    ],
                }
                for each in lists
            ],
        }
        print(json.dumps(document, indent=2))
    else:
        _show_lists(lists)
    raise Finished(0 if passes(lists) else 1)


def _show_lists(lists: "tuple[Checklist, ...]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    colours = {"yes": "green", "no": "red"}
    for each in lists:
        table = Table("", "claim", "evidence", "what to do", title=each.name.capitalize(), title_justify="left")
        for item in each.items:
            mark = Text(item.found if item.found in colours else "?", style=colours.get(item.found, "yellow"))
            table.add_row(mark, item.claim, Text(visible(item.evidence)), Text(visible(item.hint)))
        console.print(table)
    console.print("? cannot be checked here; the evidence says why.", style="dim")


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
    walls = Table("guarantee", title="Walls that can be had here", title_justify="left")
    usable = [wall for wall in report.walls if wall.usable]
    for wall in usable:
        walls.add_column(wall.name + (" (default)" if wall.default else ""), justify="center")
    for guarantee in Guarantee:
        marks = ["[green]yes[/]" if guarantee in wall.guarantees else "[dim]-[/]" for wall in usable]
        walls.add_row(guarantee.value, *marks)
    console.print(walls)
    for wall in report.walls:
        if wall.missing:
            console.print(f"[bold]{wall.name}[/] cannot be had: {wall.missing}. {wall.hint}", highlight=False)
    if report.healthy:
        console.print("[green]A plain command runs behind the full wall here.[/]")
    else:
        console.print("[red]A plain command does not run here[/]: see what to do above.")
