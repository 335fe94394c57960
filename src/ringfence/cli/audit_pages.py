"""Shows records of the journal: in a table that fits the terminal, on a page each, or written out for programs."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, TextIO

import typer

from ringfence.audit.verify import Report
from ringfence.cli.output import console, make_table, say_coloured, show_table
from ringfence.cli.say import visible

COLOURS = {
    "success": "green",
    "failure": "yellow",
    "refused": "red",
    "timeout": "magenta",
    "limit": "magenta",
    "fault": "red",
    "interrupted": "red",
}
_WIDE = 110
"""Columns of a terminal from which on all of the table fits. Below it, what leads to the run (its number), when it was,
how it ended and the command: the rest is in `audit show` and `--json`."""
_NARROW = ("seq", "time", "result", "exit", "command")
_ALL = ("seq", "time", "tool", "result", "exit", "ms", "who", "command")
_CLOCK = slice(11, 19)
_LONGEST = 2000
"""Characters of a command in a table; `audit show` has all of it."""
_CSV = (
    "seq",
    "timestamp",
    "event_type",
    "run",
    "session_id",
    "agent_id",
    "org_id",
    "sandbox_id",
    "tool",
    "language",
    "code_hash",
    "command",
    "verdict",
    "rule",
    "result",
    "exit_code",
    "error",
    "execution_time_ms",
    "cpu_time_ms",
    "memory_used_mb",
    "network_bytes_sent",
    "network_bytes_recv",
    "files_read",
    "files_written",
    "wall",
    "hash",
)


class Format(StrEnum):
    """How records are handed on."""

    JSONL = "jsonl"
    CSV = "csv"


def show_records(found: Iterable[dict[str, Any]], *, as_json: bool) -> None:
    """All of them: a table on a terminal, one whole line each elsewhere."""
    if as_json:
        for record in found:
            print(json.dumps(record))
        return
    from rich.text import Text

    records, shown = list(found), console()
    is_terminal = sys.stdout.isatty()
    columns = _NARROW if is_terminal and shown.width < _WIDE else _ALL
    table = make_table(*columns, whole=columns[:-1])
    table.box, table.pad_edge = None, False
    if is_terminal:
        table.expand = True
        table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
        table.columns[-1].ratio = 1  # what the others leave; without it, a long command would push them out
    days = {str(record.get("timestamp"))[:10] for record in records}
    for record in records:
        cells = _cells(record)
        if columns is _NARROW and len(days) == 1:
            cells["time"] = cells["time"][_CLOCK]
        elif columns is _NARROW:
            cells["time"] = cells["time"][5:]  # the year is in `--json`, and in `audit show`
        style = COLOURS.get(cells["result"], "dim")
        table.add_row(*(Text(cells[name], style=style if name == "result" else "") for name in columns))
    show_table(table, shown)


def _cells(record: dict[str, Any]) -> dict[str, str]:
    who = record.get("agent_id") or record.get("session_id")
    if who == record.get("sandbox_id"):
        who = None  # nobody gave the session a name
    took = record.get("execution_time_ms")
    found = {
        "seq": record.get("seq"),
        "time": moment(str(record.get("timestamp") or "-")),
        "tool": record.get("tool"),
        "result": record.get("result") or record.get("ending") or record.get("event_type"),
        "exit": record.get("exit_code"),
        "ms": round(took, 1) if isinstance(took, float) else took,
        "who": who,
        "command": str(record.get("command") or record.get("error") or "")[:_LONGEST],
    }
    return {name: "-" if cell is None else visible(str(cell)) for name, cell in found.items()}


def as_line(record: dict[str, Any]) -> str:
    """One record that has just come."""
    cells = _cells(record)
    cells["result"] = typer.style(cells["result"], fg=COLOURS.get(cells["result"]))
    return "  ".join(cells[name] for name in _ALL)


def as_page(record: dict[str, Any]) -> str:
    """Everything about one record, a line for each field."""
    width = max(map(len, record), default=0)
    rows = []
    for name, value in record.items():
        text = value if isinstance(value, str) else json.dumps(value)
        rows.append(f"{typer.style(visible(name).ljust(width), bold=True)}  {visible(text)}")
    return "\n".join(rows) + "\n"


def moment(timestamp: str) -> str:
    """As records hold it, for people; in UTC."""
    return visible(timestamp[:19].replace("T", " "))


def say_report(report: Report) -> None:
    """What verifying found."""
    verdict, _, rest = str(report).partition(":")
    say_coloured(typer.style(verdict, fg="green" if report.ok else "red", bold=True) + f":{visible(rest)}")
    if report.ok:
        print(f"last: {report.last_seq}:{report.last_hash}")
    for text in report.notes:
        print(f"note: {visible(text)}")


def write_records(found: Iterator[dict[str, Any]], form: Format, file: TextIO) -> None:
    """As JSON lines, or as a table for a spreadsheet."""
    if form is Format.JSONL:
        for record in found:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
        return
    table = csv.writer(file)
    table.writerow(_CSV)
    for record in found:
        table.writerow([_cell(record.get(name)) for name in _CSV])


def _cell(value: Any) -> Any:
    """As a spreadsheet takes it as text and never as a formula; control characters and half characters are shown."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    text = visible(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") and not isinstance(value, int | float) else text
