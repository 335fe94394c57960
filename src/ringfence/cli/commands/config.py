"""`ringfence config`: what is in force, and where each value comes from."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.completing import complete_roles, complete_tools
from ringfence.cli.group import make_group
from ringfence.cli.output import console, make_table, show_table
from ringfence.cli.say import print_note, visible
from ringfence.manager.in_force import DEFAULT, InForce, settings_in_force

config = make_group("Show the settings in force, and where each comes from.")


@config.command()
def show(
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="As with this configuration file.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="And with this policy.")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role in the policy.", autocompletion=complete_roles)
    ] = None,
    tool: Annotated[
        str, typer.Option(metavar="NAME", help="The tool of the policy.", autocompletion=complete_tools)
    ] = "shell_exec",
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show what is in force for a command run here: each value, and the file, line or variable that it comes from.

    A policy can only tighten what the configuration says: of two limits the lower one holds.
    """
    found = settings_in_force(os.environ, config=file, policy=policy, role=role, tool=tool)
    rows = [row for row in found.rows if not changed or not row.source.startswith((DEFAULT, "built-in"))]
    if as_json:
        document = {
            "settings": [asdict(row) for row in rows],
            "policy": [asdict(row) for row in found.policy],
            "warnings": list(found.warnings),
        }
        print(json.dumps(document, indent=2))
        return
    for text in found.warnings:
        print_note(text)
    if rows:
        _show(rows, "")
    elif not found.policy:
        print("Everything is as by default.")
    if found.policy:
        _show(found.policy, f"Policy, for {tool}" + (f" in the role {role}" if role else ""))


def _show(rows: Iterable[InForce], title: str) -> None:
    from rich.text import Text

    table = make_table("setting", "value", "from", whole=("setting",), title=visible(title))
    for row in rows:
        style = "dim" if row.source.startswith((DEFAULT, "built-in")) else "cyan"
        table.add_row(visible(row.name), Text(visible(row.value)), Text(visible(row.source), style=style))
    show_table(table, console())
