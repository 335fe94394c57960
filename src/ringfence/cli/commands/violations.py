"""`ringfence violations`: what was refused, from the journal."""

import json
import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.audit.violations import RecordedViolation, ViolationStore
from ringfence.cli.output import console, make_table, show_table
from ringfence.cli.say import visible
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.records import recorded_violations
from ringfence.values.remedy import Door
from ringfence.values.sizes import parse_duration
from ringfence.values.violation import Severity, ViolationType

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_MOST_READ = 100_000
"""Violations that are looked through for a query; older ones are counted and not searched."""


def violations(
    kind: Annotated[ViolationType | None, typer.Option("--type", help="Only of this type.")] = None,
    severity: Annotated[Severity, typer.Option("--severity", help="Only of this severity or higher.")] = Severity.LOW,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only from this long ago until now: 30m, 24h.")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="WORDS", help="Only with this in what, target or rule.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many of the last ones are shown.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show what was refused: by type, by severity, and the last ones.

    Reads the journal. The counts are of those that fit what is asked for.
    """
    every = ViolationStore(_MOST_READ)
    every.add(recorded_violations(state_directory(os.environ, home_directory(os.environ))))
    fitting = every.query(
        session=session,
        kind=kind,
        at_least=severity,
        since=None if since is None else time.time() - parse_duration(since),
        text=text,
    )
    shown = ViolationStore(_MOST_READ)
    shown.add(reversed(fitting))
    if as_json:
        print(json.dumps(_as_json(shown, limit), indent=2))
    elif shown.total:
        _show(shown, limit)
    else:
        print("Nothing was refused." if not every.total else "Nothing that was refused fits this.")


def _as_json(store: ViolationStore, limit: int) -> dict[str, Any]:
    return {
        "total": store.total,
        "by_type": {str(kind): count for kind, count in store.counts_by_type().items()},
        "by_severity": {str(severity): count for severity, count in store.counts_by_severity().items()},
        "recent": [entry.as_record() for entry in store.recent(limit)],
    }


_COLOURS = {Severity.LOW: "dim", Severity.MEDIUM: "yellow", Severity.HIGH: "red", Severity.CRITICAL: "bold red"}


def _show(store: ViolationStore, limit: int) -> None:
    shown = console()
    types = make_table("type", "count", title=f"{store.total} refused")
    for kind, count in sorted(store.counts_by_type().items(), key=lambda pair: -pair[1]):
        types.add_row(str(kind), str(count))
    show_table(types, shown)
    severities = make_table("severity", "count")
    for severity, count in reversed(store.counts_by_severity().items()):
        severities.add_row(_coloured(severity), str(count))
    show_table(severities, shown)
    print("The last ones:")
    for entry in store.recent(limit):
        _show_entry(shown, entry)


def _coloured(severity: Severity) -> "Text":
    from rich.text import Text

    return Text(str(severity), style=_COLOURS[severity])


def _show_entry(shown: "Console", entry: RecordedViolation) -> None:
    """A few lines each: what and rule are sentences, and a table would leave each of them a narrow column."""
    from rich.text import Text

    violation = entry.violation
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
    times = f" ({violation.count} times)" if violation.count > 1 else ""
    shown.print()
    shown.print(Text.assemble(f"{when}  ", _coloured(violation.severity), f"  {violation.kind}"), soft_wrap=True)
    lines = [f"{violation.what}{times}", f"rule: {violation.rule_and_place}"]
    if remedy := violation.remedy(Door.COMMAND_LINE):
        lines.append(f"to allow it: {remedy}")
    for line in lines:
        # Text, and not markup: square brackets in a file's name mean nothing.
        shown.print(Text(f"  {visible(line)}"), soft_wrap=True)
