"""`ringfence violations`: what was refused, from the journal."""

import json
import os
import time
from typing import Annotated, Any

import typer

from ringfence.audit.violations import RecordedViolation, ViolationStore
from ringfence.cli.say import visible
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.records import recorded_violations
from ringfence.values.sizes import parse_duration
from ringfence.values.violation import Severity, ViolationType

_MOST_READ = 100_000
"""Violations that are looked through for a query; older ones are counted and not searched."""


def violations(
    kind: Annotated[ViolationType | None, typer.Option("--type", help="Only of this type.")] = None,
    severity: Annotated[Severity, typer.Option("--severity", help="Only as grave as this, or graver.")] = Severity.LOW,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only of the last so long: 30m, 24h.")] = None,
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    types = Table("type", "count", title=f"{store.total} refused", title_justify="left")
    for kind, count in sorted(store.counts_by_type().items(), key=lambda pair: -pair[1]):
        types.add_row(str(kind), str(count))
    console.print(types)
    severities = Table("severity", "count")
    for severity, count in reversed(store.counts_by_severity().items()):
        severities.add_row(Text(str(severity), style=_COLOURS[severity]), str(count))
    console.print(severities)
    last = Table("when", "severity", "type", "what", "rule", "to allow it", title="The last ones", title_justify="left")
    for entry in store.recent(limit):
        last.add_row(*_row(entry), style=_COLOURS[entry.violation.severity] if console.is_terminal else None)
    console.print(last)


def _row(entry: RecordedViolation) -> tuple[Any, ...]:
    from rich.text import Text

    violation = entry.violation
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
    times = f" ({violation.count} times)" if violation.count > 1 else ""
    texts = (f"{violation.what}{times}", violation.rule_and_place, violation.allow_by)
    # Text, and not markup: square brackets in a file's name mean nothing.
    return (when, str(violation.severity), str(violation.kind), *(Text(visible(text)) for text in texts))
