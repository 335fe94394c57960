"""`ringfence mcp`: the sandbox as a server of the Model Context Protocol, and how clients are told of it."""

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ringfence.agents.settings_files import Scope
from ringfence.cli.changing_settings import own_program, show_or_write
from ringfence.cli.completing import complete_roles, complete_shadows
from ringfence.cli.exits import Finished
from ringfence.cli.group import HELP_NAMES
from ringfence.cli.network_options import (
    AllowOption,
    AskNetworkOption,
    PublishOption,
    ReachOption,
    SecretOption,
)
from ringfence.cli.options import typed_limits, typed_options
from ringfence.cli.output_options import with_output_options
from ringfence.cli.say import print_line, print_note
from ringfence.cli.typed_network import typed_network
from ringfence.errors import InvalidArgument, NotInstalled
from ringfence.manager.assemble import has_policy
from ringfence.manager.granting import current_directory
from ringfence.mcp.clients import CLIENTS, Command
from ringfence.mcp.installing import plan
from ringfence.values.outcome import SIGNAL_BASE
from ringfence.values.sizes import parse_size

mcp = typer.Typer(
    help="Serve the sandbox to an agent as tools of MCP, over stdio; or tell a client of it.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    add_completion=False,
    context_settings=HELP_NAMES,
)


@mcp.callback()
@with_output_options
def serve(
    context: typer.Context,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-w", metavar="DIR", help="The directory that tools work in; default: here."),
    ] = None,
    roots: Annotated[bool, typer.Option("--roots", help="The client's first root is the workspace.")] = False,
    write: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A further directory that tools may write.")
    ] = None,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A further file or directory that tools may read.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Hide what matches, also in what is granted.")
    ] = None,
    cpu_time: Annotated[str | None, typer.Option(metavar="TIME", help="CPU time of a command's process tree.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of a sandbox: 512MB, 2GB.")] = None,
    processes: Annotated[int | None, typer.Option(metavar="N", help="Processes and threads of a sandbox.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Tools can only read the workspace.")] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="A variable to set; without a value, it is copied from here. No other is.",
        ),
    ] = None,
    python: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The interpreter for Python code; default: the first on PATH.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Use this configuration file.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Judge calls by this policy.")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role in the policy.", autocompletion=complete_roles)
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Work on a shadow of the workspace: look first, then commit.")
    ] = False,
    shadow_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="How much may be changed in the shadow: kept in memory.")
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
) -> None:
    """Serve the sandbox to an agent as tools of MCP, over stdio; or tell a client of it.

    A client starts this and speaks on its standard input and output. The options are those of `ringfence run`: what is
    not granted here, no tool gives.

    Examples:

        ringfence mcp --workspace ~/project --allow pip

        ringfence mcp install claude-code -- --shadow
    """
    if context.invoked_subcommand is not None:
        return
    if roots and workspace is not None:
        raise InvalidArgument("--roots and --workspace", hint="give one of them")
    if shadow and use_shadow is not None:
        raise InvalidArgument(
            "a new shadow, or one that exists already", hint="give --shadow or --use-shadow, not both"
        )
    if shadow_size is not None and not (shadow or use_shadow):
        raise InvalidArgument("--shadow-size without a shadow", hint="add --shadow, or --use-shadow SHADOW")
    options = typed_options(
        workspace=workspace,
        read=read,
        write=write,
        read_only=read_only,
        deny=deny,
        env=env,
        limits=typed_limits(config, cpu_time=cpu_time, memory=memory, processes=processes),
        config=config,
        policy=policy,
        role=role,
        python=python,
        mediate_opens=mediate_opens,
        network=typed_network(allow=allow, secret=secret, publish=publish, reach=reach, ask=ask_network),
    )
    if any(find_spec(name) is None for name in ("mcp", "jsonschema")):
        raise NotInstalled("the MCP server needs packages", hint="pip install 'ringfence[mcp]'")
    from ringfence.mcp.boxes import Settings, find_powers
    from ringfence.mcp.early import Early
    from ringfence.mcp.lines import claim_standard_streams

    settings = Settings(
        options=options,
        asks=ask_network or has_policy(options, os.environ),
        on_shadow=shadow,
        shadow_bytes=0 if shadow_size is None else parse_size(shadow_size),
        use_shadow=use_shadow,
        from_roots=roots,
    )
    if sys.stdin.isatty():
        print_note("this speaks MCP on stdin and stdout; a client starts it: `ringfence mcp install CLIENT`")
    source, target = claim_standard_streams()
    backlog = Early(
        source,
        target,
        lambda: find_powers(settings, lambda fault: print_line(f"error [{fault.code}]: {fault}")),
        with_shadow=settings.has_shadow,
    ).answer()
    if backlog.is_over:
        raise Finished(0)
    from ringfence.mcp.serving import serve as serve_stdio  # seconds, and by now loaded

    ended_by = asyncio.run(serve_stdio(settings, source, target, print_line, backlog))
    raise Finished(SIGNAL_BASE + ended_by if ended_by else 0)


@mcp.command()
def install(
    client: Annotated[
        str,
        typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.", autocompletion=lambda: list(CLIENTS)),
    ],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION...", help="After --, what `ringfence mcp` is given.")
    ] = None,
    scope: Annotated[
        Scope | None,
        typer.Option(metavar="SCOPE", help="For this project, or for the user; default: what the client has."),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="What the client calls the server.")] = "ringfence",
    write: Annotated[bool, typer.Option("--write", help="Make the change; else it is only shown.")] = False,
) -> None:
    """Show the change that tells a client of the server; with --write, make it.

    Nothing in the client's file is lost: what cannot be kept is not written, and the old file stays beside the new one.

    Example:

        ringfence mcp install claude-code --write -- --shadow --allow pip
    """
    found = CLIENTS.get(client)
    if found is None:
        raise InvalidArgument(f"there is no client {client!r} here", hint=f"one of {', '.join(CLIENTS)}")
    chosen = scope or found.scopes[0]
    here = current_directory()
    change = plan(found, chosen, name, _server_command(options or [], chosen, here), here, Path.home())
    show_or_write(change, write=write, note=found.note)


def _server_command(options: list[str], scope: Scope, here: Path) -> Command:
    """Ourselves, by a path that does not depend on the client's PATH; with the workspace, where the client may be
    anywhere when it starts us."""
    program = own_program()
    named = any(word in ("-w", "--workspace", "--roots") or word.startswith("--workspace=") for word in options)
    place = ["--workspace", os.fspath(here)] if scope is Scope.USER and not named else []
    return Command(program[0], (*program[1:], "mcp", *place, *options))
