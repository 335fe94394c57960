"""`ringfence pool`: the pools that processes of this user keep."""

import json
import os
from typing import Annotated, Any

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.output import make_table, show_table
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.pool_notice import read_notices


def pool(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")] = False,
) -> None:
    """Show the pools of boxes that processes of yours keep ready.

    What is shown is at most a second old. Exits with 0 if there is a pool, else with 1.
    """
    notices = read_notices(state_directory(os.environ, home_directory(os.environ)))
    if as_json:
        print(json.dumps(notices, indent=2))
    elif notices:
        _show(notices)
    else:
        print("No process of yours keeps a pool. SandboxManager and SandboxPool do, while they run.")
    raise Finished(0 if notices else 1)


def _show(notices: list[dict[str, Any]]) -> None:
    columns = ("idle", "starting", "acquiring", "busy", "closing", "waiting", "max_instances", "hits", "misses")
    named = (name.replace("_instances", "") for name in columns)
    table = make_table("pid", "for", *named, "crashed", "last fault", whole=("pid", "for"))
    for notice in notices:
        for tools, state in notice["pools"].items():
            counts = [str(state.get(name, "?")) for name in columns]
            fault = str(state.get("last_fault", ""))[:200]
            table.add_row(str(notice["pid"]), tools, *counts, str(state.get("crashed", "?")), fault)
    show_table(table)
