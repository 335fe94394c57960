"""`ringfence audit`: read, search, verify and hand on the journal."""

import errno
import json
import os
import re
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.audit.files import CURRENT
from ringfence.audit.index import Filter, Index
from ringfence.audit.signing import Verifier, make_keys
from ringfence.audit.verify import Anchor
from ringfence.audit.verify import verify as verify_log
from ringfence.cli.audit_pages import (
    COLOURS,
    Format,
    as_line,
    as_page,
    moment,
    say_report,
    show_records,
    write_records,
)
from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.say import print_note, say_coloured, visible
from ringfence.errors import AlreadyExists, FileError, InvalidArgument
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.values.sizes import parse_duration, show_seconds

audit = make_group("Read, search and verify the journal of what was run.")

NOTHING_CODE = 1
"""Nothing was found, or the log is not whole."""
_POLL_SECONDS = 0.2
_AGO = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d)")
_RESULTS = "success, failure, refused, timeout, limit, fault, interrupted"


Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="Only this session.")]
Agent = Annotated[str | None, typer.Option("--agent", metavar="ID", help="Only this agent.")]
Tool = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only this tool.")]
Outcome = Annotated[str | None, typer.Option("--result", metavar="WORD", help=f"Only this: {_RESULTS}.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Since a time, or so long ago: 2h, 7d.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before a time, or so long ago.")]
Text = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="With this text.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of a table.")]
Where = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="Another journal's directory.", show_default=False)
]


@audit.command()
def tail(
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many records.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new ones as they come.")] = False,
    session: Session = None,
    agent: Agent = None,
    tool: Tool = None,
    result: Outcome = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    as_json: AsJson = False,
    where: Where = None,
) -> None:
    """Show the last records."""
    wanted = _filter(session, agent, tool, result, since, until, text)
    directory = _directory(where)
    with _index(directory) as index:
        found = list(index.find(wanted, limit=count))
    show_records(found, as_json=as_json)
    last = found[-1].get("seq") if found else None
    while follow:
        time.sleep(_POLL_SECONDS)
        fresh = _after(directory, wanted, last)
        for record in fresh:
            say_coloured(json.dumps(record) if as_json else as_line(record))
        last = fresh[-1].get("seq") if fresh else last


@audit.command()
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="In the command, the error or the reasons.")] = "",
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="At most so many, the newest.")] = 100,
    session: Session = None,
    agent: Agent = None,
    tool: Tool = None,
    result: Outcome = None,
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
    where: Where = None,
) -> None:
    """Find records. Exits with 0 if there are any, else with 1."""
    wanted = _filter(session, agent, tool, result, since, until, text or None)
    with _index(_directory(where)) as index:
        found = list(index.find(wanted, limit=count))
    show_records(found, as_json=as_json)
    raise Finished(0 if found else NOTHING_CODE)


@audit.command()
def show(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or a record's number.", show_default=False)],
    as_json: AsJson = False,
    where: Where = None,
) -> None:
    """Show everything that is recorded about one run. Exits with 0 if it is there, else with 1."""
    with _index(_directory(where)) as index:
        found = index.show(name)
    for record in found:
        say_coloured(json.dumps(record) if as_json else as_page(record))
    if not found:
        print_note(f"there is no record of {name}")
    raise Finished(0 if found else NOTHING_CODE)


@audit.command()
def verify(
    keys: Annotated[
        list[Path] | None,
        typer.Option("--public-key", metavar="FILE", help="Check signatures by this key; may be repeated."),
    ] = None,
    anchors: Annotated[
        list[str] | None,
        typer.Option("--anchor", metavar="SEQ:HASH", help="A record that has to be there; may be repeated."),
    ] = None,
    from_oldest: Annotated[
        bool, typer.Option("--from-oldest", help="Older files were removed on purpose: begin with what is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    where: Where = None,
) -> None:
    """Check that no record was changed, removed, added or moved. Exits with 0 if so, else with 1.

    Prints the last record's number and hash: keep them elsewhere, and give them to `--anchor` next time.
    """
    verifier = Verifier(tuple(keys)) if keys else None
    directory = _directory(where)
    try:
        report = verify_log(
            directory, keys=verifier, anchors=tuple(map(_anchor, anchors or ())), from_oldest=from_oldest
        )
    except OSError as fault:
        raise _unreadable(directory, fault) from None
    if as_json:
        print(json.dumps(asdict(report) | {"ok": report.ok}))
    else:
        say_report(report)
    raise Finished(0 if report.ok else NOTHING_CODE)


@audit.command()
def stats(
    session: Session = None,
    agent: Agent = None,
    tool: Tool = None,
    result: Outcome = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    where: Where = None,
) -> None:
    """Count executions by result, tool and agent."""
    with _index(_directory(where)) as index:
        found = index.stats(_filter(session, agent, tool, result, since, until, text))
    if as_json:
        print(json.dumps(asdict(found)))
        return
    span = f", {moment(found.first)} to {moment(found.last)} UTC" if found.first and found.last else ""
    print(f"{found.records} execution{'' if found.records == 1 else 's'}{span}")
    if found.mean_ms is not None and found.most_ms is not None:
        print(f"time: {show_seconds(found.mean_ms / 1000)} on average, {show_seconds(found.most_ms / 1000)} at most")
    if found.most_mb is not None:
        print(f"memory: {found.most_mb:.1f} MB at most")
    for title, counts in (("result", found.by_result), ("tool", found.by_tool), ("agent", found.by_agent)):
        if counts.keys() - {"-"}:  # nothing but runs that name no agent says nothing
            print(f"{title}: " + ", ".join(f"{_named(name)} {number}" for name, number in counts.items()))


@audit.command()
def export(
    form: Annotated[Format, typer.Option("--format", help="JSON lines, as they are, or a table.")] = Format.JSONL,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Instead of stdout; never over a file.")
    ] = None,
    session: Session = None,
    agent: Agent = None,
    tool: Tool = None,
    result: Outcome = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    where: Where = None,
) -> None:
    """Write records out, oldest first. The chain of an extract cannot be verified; that of a copy of all files can."""
    wanted = _filter(session, agent, tool, result, since, until, text)
    with _index(_directory(where)) as index:
        found = index.find(wanted, newest=False)
        if output is None:
            write_records(found, form, sys.stdout)
            return
        try:
            with open(output, "x", encoding="utf-8", newline="") as file:
                write_records(found, form, file)
        except FileExistsError:
            raise AlreadyExists("exists already", path=str(output), hint="give another name") from None
        except OSError as fault:
            raise FileError.of(
                fault.errno or 0, str(output), f"cannot be written: {fault.strerror}", hint="give another place"
            ) from None


@audit.command()
def keygen(
    path: Annotated[Path | None, typer.Argument(metavar="FILE", help="Where the private key goes.")] = None,
) -> None:
    """Make a key that signs checkpoints of the journal; never over a file that is there."""
    target = path if path is not None else Path(home_directory(os.environ)) / ".ringfence" / "audit.key"
    public = make_keys(target.absolute())
    print_note(f"wrote {target} and {public}")
    print(f"export RINGFENCE_AUDIT_KEY={visible(str(target.absolute()))}")
    print_note(f"keep the public one where nobody can exchange it: ringfence audit verify --public-key {public}")


# --- asking -----------------------------------------------------------------------------------------------------------


def _directory(where: Path | None) -> Path:
    return where if where is not None else state_directory(os.environ, home_directory(os.environ))


def _index(directory: Path) -> Index:
    try:
        return Index(directory)
    except OSError as fault:
        raise _unreadable(directory, fault) from None


def _unreadable(directory: Path, fault: OSError) -> FileError:
    why = "there is none" if isinstance(fault, FileNotFoundError) else fault.strerror
    return FileError.of(
        fault.errno or errno.EIO,
        str(directory / CURRENT),
        f"the journal cannot be read: {why}",
        hint="run something first, or name one with --dir",
    )


def _filter(
    session: str | None,
    agent: str | None,
    tool: str | None,
    result: str | None,
    since: str | None,
    until: str | None,
    text: str | None,
) -> Filter:
    if result is not None and result not in COLOURS:
        raise InvalidArgument(f"{result!r} is not a result", hint=f"one of {_RESULTS}")
    return Filter(
        session_id=session,
        agent_id=agent,
        tool=tool,
        result=result,
        since=_time(since) if since is not None else None,
        until=_time(until) if until is not None else None,
        text=text,
    )


def _time(text: str) -> str:
    """As records hold it, from a time, a date, or how long ago. A time without a zone is UTC.

    Raises:
        InvalidArgument: it is none of these.
    """
    if _AGO.fullmatch(text):
        days = text.endswith("d")
        seconds = float(text[:-1]) * 86400 if days else parse_duration(text)
        at = datetime.now(UTC) - timedelta(seconds=min(seconds, 3e9))
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            hint = "write it as 2025-02-07, 2025-02-07T12:00:00Z, or 2h for two hours ago"
            raise InvalidArgument(f"{text!r} is not a time", hint=hint) from None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _anchor(text: str) -> Anchor:
    seq, _, digest = text.partition(":")
    if not (seq.isascii() and seq.isdigit() and re.fullmatch(r"[0-9a-f]{64}", digest)):
        raise InvalidArgument(
            f"{text!r} is not an anchor", hint="a number, a colon and a hash, as `verify` prints them"
        )
    return Anchor(int(seq), digest)


def _after(directory: Path, wanted: Filter, last: int | None) -> list[dict[str, Any]]:
    """What came since, of which there is little."""
    with _index(directory) as index:
        found = list(index.find(wanted, limit=1000))
    return [record for record in found if last is None or (record.get("seq") or 0) > last]


def _named(name: object) -> str:
    return "not named" if name == "-" else visible(str(name))
