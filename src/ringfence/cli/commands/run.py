"""`ringfence run`: one command in a box of its own. Its options; what it does is in `running.py`."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.completing import (
    complete_languages,
    complete_roles,
    complete_shadows,
    complete_tools,
    complete_traces,
)
from ringfence.cli.network_options import (
    AllowOption,
    AskNetworkOption,
    PublishOption,
    ReachOption,
    SecretOption,
)
from ringfence.cli.running import run_command


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
    run_command(
        command,
        workspace=workspace,
        write=write,
        read=read,
        deny=deny,
        timeout=timeout,
        cpu_time=cpu_time,
        memory=memory,
        processes=processes,
        output=output,
        read_only=read_only,
        env=env,
        language=language,
        python=python,
        stdin=stdin,
        terminal=terminal,
        config=config,
        policy=policy,
        role=role,
        tool=tool,
        as_json=as_json,
        trace=trace,
        shadow=shadow,
        shadow_size=shadow_size,
        use_shadow=use_shadow,
        mediate_opens=mediate_opens,
        allow=allow,
        secret=secret,
        publish=publish,
        reach=reach,
        ask_network=ask_network,
        verbose=verbose,
    )
