"""`ringfence doctor`: what this machine can guarantee."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.output import console, make_table, show_table
from ringfence.cli.say import visible
from ringfence.manager.doctor import DoctorReport, examine
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    from ringfence.manager.claims import Checklist


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
    from rich.text import Text

    shown = console()
    colours = {"yes": "green", "no": "red"}
    for each in lists:
        table = make_table("", "claim", "evidence", "what to do", title=each.name.capitalize())
        for item in each.items:
            mark = Text(item.found if item.found in colours else "?", style=colours.get(item.found, "yellow"))
            table.add_row(mark, item.claim, Text(visible(item.evidence)), Text(visible(item.hint)))
        show_table(table, shown)
    shown.print("? cannot be checked here; the evidence says why.", style="dim")


def _as_json(report: DoctorReport) -> dict[str, object]:
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


def _show(report: DoctorReport) -> None:
    from rich.text import Text

    shown = console()
    checks = make_table("", "checked", "found", "what to do", title="This machine")
    for check in report.checks:
        mark = "[green]yes[/]" if check.ok else "[red]no[/]"
        checks.add_row(mark, check.name, Text(visible(check.found)), Text(visible(check.hint)))
    show_table(checks, shown)
    walls = make_table("guarantee", title="Walls that are available here")
    usable = [wall for wall in report.walls if wall.usable]
    for wall in usable:
        walls.add_column(wall.name + (" (default)" if wall.default else ""), justify="center")
    for guarantee in Guarantee:
        marks = ["[green]yes[/]" if guarantee in wall.guarantees else "[dim]-[/]" for wall in usable]
        walls.add_row(guarantee.value, *marks)
    show_table(walls, shown)
    for wall in report.walls:
        if wall.missing:
            why = f" is not available: {visible(wall.missing)}. {visible(wall.hint)}"
            shown.print(Text.assemble((wall.name, "bold"), why))
    if report.healthy:
        shown.print("[green]A plain command runs behind the full wall here.[/]")
    else:
        shown.print("[red]A plain command does not run here[/]: see what to do above.")
