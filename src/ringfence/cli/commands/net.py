"""`ringfence net`: what a box may reach, what was reached, and which policy would allow it."""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.commands.check import CODES
from ringfence.cli.completing import complete_roles, complete_tools
from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.network_options import AllowOption, ReachOption, SecretOption
from ringfence.cli.options import typed_options
from ringfence.cli.output import make_table, show_table
from ringfence.cli.say import print_note, say_coloured, visible
from ringfence.cli.typed_network import typed_network
from ringfence.errors import AlreadyExists
from ringfence.manager.blocking import run as run_blocking
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.network_pages import PresetPage, check_url, learned_from, network_log, preset_pages
from ringfence.values.request import Overflow, Stream
from ringfence.values.sizes import parse_duration, show_size
from ringfence.values.verdict import Verdict

net = make_group("What a box may reach, what was reached, and which policy would allow it.")

_POLL_SECONDS = 0.2
_COLOURS = {Verdict.ALLOW: typer.colors.GREEN, Verdict.ASK: typer.colors.YELLOW, Verdict.DENY: typer.colors.RED}

PolicyOption = Annotated[Path | None, typer.Option("--policy", metavar="FILE", help="Judge by this policy.")]
WorkspaceOption = Annotated[
    Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="Where the box would be; default: here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@net.command()
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://host/path, or host:port.", show_default=False)],
    method: Annotated[str, typer.Option("--method", "-X", metavar="METHOD", help="With this method.")] = "GET",
    allow: AllowOption = None,
    reach: ReachOption = None,
    policy: PolicyOption = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role in the policy.", autocompletion=complete_roles)
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The tool; default: shell_exec.", autocompletion=complete_tools),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a box would reach a URL, by which rule, and what would allow it. Nothing is connected to.

    The addresses of a host are judged when it is connected to: a private one needs a rule that names it.

    Exits with 0 if it would, 10 if a person would be asked, 11 if it is refused.

    Examples:

        ringfence net check --allow pip https://pypi.org/simple/requests/

        ringfence net check --policy policy.yaml -X POST https://api.example.com/v1/items
    """
    options = typed_options(
        workspace=workspace, policy=policy, role=role, tool=tool, network=typed_network(allow=allow, reach=reach)
    )
    found = check_url(url, options, os.environ, method=method)
    judged = found.judged
    word = judged.verdict.name.lower()
    if as_json:
        page = {
            "verdict": word,
            "target": found.target,
            "reason": judged.reason,
            "rule": judged.rule or None,
            "place": judged.place or None,
            "allow_by": judged.allow_by or None,
            "inspected": judged.inspect,
        }
        print(json.dumps(page))
    else:
        coloured = typer.style(word, fg=_COLOURS[judged.verdict], bold=True)
        say_coloured(f"{coloured}  {visible(found.target)}: {visible(judged.reason)}")
        if judged.rule:
            print(f"  rule: {visible(judged.rule)}" + (f" at {visible(judged.place)}" if judged.place else ""))
        if judged.verdict is not Verdict.ALLOW and judged.allow_by:
            print(f"  to allow it: {visible(judged.allow_by)}")
        if judged.verdict is Verdict.ALLOW:
            print(f"  {'looked into: it ends at the proxy' if judged.inspect else 'passed on without looking into it'}")
    raise Finished(CODES[judged.verdict])


@net.command()
def log(
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last ones.")] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new ones as they come.")] = False,
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False,
    host: Annotated[str | None, typer.Option(metavar="TEXT", help="Only hosts with this in their name.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of a table.")] = False,
) -> None:
    """Show what boxes asked of the network, by which rule it passed or not, and what came of it.

    Reads the journal, which holds one record for each request: queries only as a hash, secrets only by their names.
    """
    state = state_directory(os.environ, home_directory(os.environ))

    def fits(record: dict[str, Any]) -> bool:
        return (
            (not refused or record.get("result") == "refused")
            and (host is None or host in str(record.get("host", "")))
            and (session is None or record.get("session_id") == session)
        )

    every = [record for record in network_log(state) if fits(record)]
    shown = every[-count:] if count else []
    if as_json:
        for record in shown:
            print(json.dumps(record))
    elif shown:
        table = make_table("time", "verdict", "request", "status", "out", "in", "rule", "secrets")
        for record in shown:
            table.add_row(*_cells(record))
        show_table(table)
    elif not follow:
        print("No request to the network is recorded." if not every and not refused else "Nothing fits this.")
    sys.stdout.flush()
    last = max((int(record.get("seq") or 0) for record in every), default=-1)
    while follow:
        time.sleep(_POLL_SECONDS)
        for record in network_log(state):
            if int(record.get("seq") or 0) > last and fits(record):
                print(json.dumps(record) if as_json else "  ".join(filter(None, _cells(record))), flush=True)
                last = int(record.get("seq") or 0)


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    target = f"{record.get('host', '')}:{record.get('port', '')}"
    request = f"{record.get('method', record.get('door', ''))} {target}{record.get('path', '')}"
    verdict = str(record.get("final_verdict") or record.get("verdict", ""))
    if record.get("canary"):
        verdict += f" (canary {record['canary']})"
    return (
        visible(str(record.get("timestamp", ""))[:19].replace("T", " ")),
        visible(verdict),
        visible(request),
        str(record.get("status") or ""),
        show_size(int(record.get("network_bytes_sent") or 0)),
        show_size(int(record.get("network_bytes_recv") or 0)),
        visible(str(record.get("rule") or record.get("why") or "")),
        visible(", ".join(map(str, record.get("secrets") or ()))),
    )


@net.command(context_settings={"allow_interspersed_args": False})
def learn(
    command: Annotated[
        list[str], typer.Argument(help="What to run: a line for the shell, or a program and arguments.")
    ],
    workspace: WorkspaceOption = None,
    allow: AllowOption = None,
    secret: SecretOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the policy here; default: stdout.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="End it after this long: 30s, 5m.")] = None,
) -> None:
    """Run a command with everything let through that is not denied or private, and write the smallest policy for it.

    The command's own output goes to stderr. Exits as the command does.

    Example:

        ringfence net learn -o policy.yaml -- pip download requests
    """
    if output is not None and output.exists():
        raise AlreadyExists("it is there already", path=os.fspath(output), hint="name another file")
    options = typed_options(workspace=workspace, network=typed_network(allow=allow, secret=secret, learn=True))
    state = state_directory(os.environ, home_directory(os.environ))
    before = {record.get("seq") for record in network_log(state)}
    result = run_blocking(
        command[0] if len(command) == 1 else command,
        options,
        timeout=None if timeout is None else parse_duration(timeout),
        overflow=Overflow.STOP,
        on_output=_to_stderr,
    )
    fresh = [record for record in network_log(state) if record.get("seq") not in before]
    text = learned_from(fresh)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
        print_note(f"{len(fresh)} requests; the policy is in {output}")
    raise Finished(result.exit_code)


def _to_stderr(stream: Stream, data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


@net.command()
def presets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One preset, with its hosts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the presets: what each is for, what can still leave by it, and with a name, the hosts it opens here.

    Hosts are those that your own pip, npm, apt and so on are configured for.
    """
    pages = [page for page in preset_pages(os.environ) if name is None or name in (page.name, *page.aliases)]
    if as_json:
        print(json.dumps([_preset(page) for page in pages], indent=2))
    elif name is None:
        table = make_table("preset", "for", "what can still leave or come in", whole=("preset",))
        for page in pages:
            table.add_row(_titled(page), page.reason, page.risk)
        show_table(table)
    for page in pages if name is not None and not as_json else ():
        print(f"{_titled(page)}: {page.reason}\nrisk: {page.risk}")
        _list(page.rules)
        for note in page.notes:
            print_note(note)
    if not pages:
        print(f"There is no preset {visible(name or '')}; `ringfence net presets` shows all.")
        raise Finished(1)


def _preset(page: PresetPage) -> dict[str, Any]:
    return {
        "name": page.name,
        "aliases": list(page.aliases),
        "argument": page.argument or None,
        "reason": page.reason,
        "risk": page.risk,
        "rules": list(page.rules),
        "notes": list(page.notes),
    }


def _titled(page: PresetPage) -> str:
    title = f"{page.name} {page.argument}".strip()
    return f"{title} ({', '.join(page.aliases)})" if page.aliases else title


def _list(rules: Iterable[str]) -> None:
    for rule in rules:
        print(f"  {visible(rule)}")
