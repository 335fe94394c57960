"""`ringfence run`: one command in a box of its own."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ringfence.approvals.base import ConfirmationService
from ringfence.approvals.terminal import TerminalConfirmationService
from ringfence.cli.attaching import attach, require_terminal
from ringfence.cli.completing import (
    complete_languages,
    complete_roles,
    complete_shadows,
    complete_tools,
    complete_traces,
)
from ringfence.cli.exits import Finished
from ringfence.cli.network_options import (
    AllowOption,
    AskNetworkOption,
    PublishOption,
    ReachOption,
    SecretOption,
    say_published,
    typed_network,
)
from ringfence.cli.options import typed_limits, typed_options
from ringfence.cli.say import print_line, print_note
from ringfence.cli.shadows import work_on
from ringfence.dataclass import replace
from ringfence.errors import CommandNotAllowed, InvalidArgument
from ringfence.manager.assemble import has_policy
from ringfence.manager.blocking import run as run_blocking
from ringfence.manager.granting import BY_CALLER
from ringfence.manager.network_options import Network
from ringfence.manager.options import SandboxOptions
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.manager.sandbox import Sandbox
from ringfence.values.annotate import violation_lines
from ringfence.values.limits import Limit
from ringfence.values.outcome import REFUSED_CODE, Ending, Exited, LimitHit, Refused, Result, TimedOut
from ringfence.values.remedy import Door, raising
from ringfence.values.request import Overflow, Stream
from ringfence.values.sizes import parse_duration, show_seconds, show_size
from ringfence.values.violation import ViolationType


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            help="One word is a line for the shell; several are a program and its arguments.", show_default=False
        ),
    ],
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace", "-w", metavar="DIR", help="The directory it works in and may write; default: here."
        ),
    ] = None,
    write: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A further directory that it may write.")
    ] = None,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A further file or directory that it may read.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Hide what matches, also in what is granted.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="End it after this long: 30s, 5m.")] = None,
    cpu_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="CPU time of the whole process tree; default: 2.5 times the wall-clock time."
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of the whole process tree: 512MB, 2GB.")
    ] = None,
    processes: Annotated[int | None, typer.Option(metavar="N", help="Processes and threads of the whole tree.")] = None,
    output: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes of stdout, and of stderr, before it is ended.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="It can only read the workspace; its home and /tmp are writable.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="A variable to set; without a value, it is copied from here. No other is.",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="NAME",
            help="It is code in this language: python, js, ts, bash, ...",
            autocompletion=complete_languages,
        ),
    ] = None,
    python: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The interpreter for Python code; default: the first on PATH.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on to it.")] = False,
    terminal: Annotated[
        bool,
        typer.Option("--terminal", "-t", help="Give it this terminal: for programs that ask, or fill the screen."),
    ] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Use this configuration file.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Judge it by this policy.")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role in the policy.", autocompletion=complete_roles)
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="As which of the policy's tools it runs; default: shell_exec, or code_run.",
            autocompletion=complete_tools,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with everything, instead of its output.")
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="What is watched while it runs: off, changes, reads, or full (every open); default: reads.",
            autocompletion=complete_traces,
        ),
    ] = None,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Work on a shadow of the workspace; shows the changes and how to commit them."),
    ] = False,
    shadow_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="How much may be changed in the shadow: kept in memory while it runs."),
    ] = None,
    use_shadow: Annotated[
        str | None,
        typer.Option(metavar="SHADOW", help="Work on this shadow: its id or name.", autocompletion=complete_shadows),
    ] = None,
    mediate_opens: Annotated[
        bool,
        typer.Option("--mediate-opens", help="Check the blacklist at every open, for links and later files too."),
    ] = False,
    allow: AllowOption = None,
    secret: SecretOption = None,
    publish: PublishOption = None,
    reach: ReachOption = None,
    ask_network: AskNetworkOption = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on stderr what the wall was and what was used.")
    ] = False,
) -> None:
    """Run a command in a sandbox, and exit as it exits.

    Its output passes through untouched. The exit code is the command's own, or 122 if it was refused, 123 if it hit a
    limit, 124 if it timed out, 125 if it could not be run.

    Examples:

        ringfence run "pytest -q | tail"

        ringfence run --write ../cache --timeout 5m -- make -j4 all

        ringfence run --language python "sum(range(100))"

        ringfence run --allow pip -- pip install --target lib requests
    """
    if language is not None and len(command) != 1:
        raise InvalidArgument("with --language there is one argument, the code", hint="quote it")
    options = typed_options(
        workspace=workspace,
        read=read,
        write=write,
        read_only=read_only,
        deny=deny,
        env=env,
        limits=typed_limits(config, cpu_time=cpu_time, memory=memory, processes=processes, output=output),
        config=config,
        policy=policy,
        role=role,
        tool=tool or (SHELL_TOOL if language is None else CODE_TOOL),
        python=python,
        trace=trace,
        mediate_opens=mediate_opens,
        network=typed_network(allow=allow, secret=secret, publish=publish, reach=reach, ask=ask_network),
    )
    if terminal:
        _refuse_with_terminal(stdin=stdin, as_json=as_json, language=language)
    options = replace(options, confirmation=_confirmation(options, stdin=stdin))
    with work_on(options, shadow=shadow, use_shadow=use_shadow, shadow_size=shadow_size) as chosen:
        if terminal:
            code = asyncio.run(_on_terminal(command, chosen, timeout))
        else:
            result = run_blocking(
                command[0] if len(command) == 1 else command,
                chosen,
                stdin=sys.stdin.buffer.read() if stdin else None,
                timeout=None if timeout is None else parse_duration(timeout),
                language=language,
                overflow=Overflow.STOP,
                on_output=None if as_json else _pass_through,
                on_published=say_published,
            )
            code = result.exit_code
    if terminal:
        raise Finished(code)
    if as_json:
        print(result.to_json())
    else:
        _show_results(result)
        _say_how_it_ended(result, Door.POLICY if has_policy(options, os.environ) else Door.COMMAND_LINE)
    if verbose:
        _say_more(result)
    raise Finished(code)


def _refuse_with_terminal(*, stdin: bool, as_json: bool, language: str | None) -> None:
    """
    Raises:
        InvalidArgument: there is no terminal, or something that a terminal leaves no room for.
    """
    others = {"--stdin": stdin, "--json": as_json, "--language": language is not None}
    clash = next((name for name, given in others.items() if given), None)
    if clash is not None:
        raise InvalidArgument(f"{clash} and a terminal", hint=f"leave out -t or {clash}")
    require_terminal("-t")


async def _on_terminal(command: list[str], options: SandboxOptions, timeout: str | None) -> int:
    async with Sandbox.for_one_call(options) as box:
        words = command[0] if len(command) == 1 else command
        # Whoever sits at a terminal may take their time, unless somebody has set one.
        by_policy = box.terms.value("limits.wall") if box.terms is not None else None
        asked = None if timeout is None else parse_duration(timeout)
        seconds = min((each for each in (asked, by_policy) if each is not None), default=None)
        if box.grant.network is not None and box.grant.network.publish:
            await box.open()
            say_published(box.published)
        try:
            return await attach(
                box, words, seconds=seconds, asks=options.confirmation is not None, typed_by_person=True
            )
        except CommandNotAllowed as refusal:
            if not refusal.rule:
                raise
            print_line(f"refused: {refusal}")
            return REFUSED_CODE


def _confirmation(options: SandboxOptions, *, stdin: bool) -> ConfirmationService | None:
    """Whoever sits at the terminal is asked where the policy says so, or about hosts; piped input is no answer. Without
    a policy nobody is asked about the command: whoever sits there has just typed it."""
    asks = has_policy(options, os.environ) or (isinstance(options.network, Network) and options.network.ask)
    if not asks or stdin or not sys.stdin.isatty():
        return None
    return TerminalConfirmationService()


def _pass_through(stream: Stream, data: bytes) -> None:
    target = sys.stdout.buffer if stream is Stream.STDOUT else sys.stderr.buffer
    target.write(data)
    target.flush()


def _show_results(result: Result) -> None:
    """The value of the last expression, as an interactive interpreter shows it; what has no text is named."""
    for shown in result.results:
        print(shown.text if shown.text is not None else f"<{', '.join(shown.types)}>", flush=True)


def _say_how_it_ended(result: Result, door: Door) -> None:
    ending = result.ending
    if not isinstance(ending, Exited):
        print_line(_said(ending, door))
    if isinstance(ending, Refused):
        return
    hit = isinstance(ending, LimitHit)  # which has just been said
    others = (each for each in result.violations if not (hit and each.kind is ViolationType.RESOURCE_LIMIT))
    for line in violation_lines(others, door):
        print_note(line)


def _said(ending: Ending, door: Door) -> str:
    """How it ended, and which option would have let it go on."""
    match ending:
        case LimitHit():
            return f"{ending}; to allow more: {raising(ending.limit, door)}"
        case TimedOut() if not ending.capped_by or ending.capped_by == BY_CALLER:  # who has typed it
            return f"{replace(ending, capped_by='')}; to give it longer: {raising(Limit.WALL, Door.COMMAND_LINE)}"
        case _:
            return str(ending)


def _say_more(result: Result) -> None:
    wall, usage = result.wall, result.usage
    if wall is not None:
        print_note(f"wall: {wall.name}; limits by {', '.join(wall.limits_by)}")
        print_note(f"guarantees: {', '.join(sorted(wall.guarantees))}")
        for text in wall.notes:
            print_note(text)
    print_note(
        f"{result.ending}; {show_seconds(usage.wall_seconds)}, CPU {show_seconds(usage.cpu_seconds)}, "
        f"at most {show_size(usage.peak_memory_bytes)}"
    )
    print_note(f"journal: run {result.run_id}")
