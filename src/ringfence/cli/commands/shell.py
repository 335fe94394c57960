"""`ringfence shell`: a person's own shell, or another program on a terminal, inside the wall."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.attaching import attach, require_terminal
from ringfence.cli.completing import complete_roles, complete_shadows
from ringfence.cli.elsewhere import URL_VARIABLE, is_on_server
from ringfence.cli.exits import Finished
from ringfence.cli.network_options import (
    AllowOption,
    PublishOption,
    ReachOption,
    SecretOption,
)
from ringfence.cli.options import typed_options
from ringfence.cli.output import is_coloured
from ringfence.cli.say import print_note
from ringfence.cli.shadows import handle, work_on
from ringfence.cli.typed_network import say_published, typed_network
from ringfence.deferred import deferred
from ringfence.errors import InvalidArgument
from ringfence.manager.options import SandboxOptions
from ringfence.manager.sandbox import Sandbox

if TYPE_CHECKING:
    from ringfence.cli.on_server import shell_there
else:
    shell_there = deferred("ringfence.cli.on_server", "shell_there")

_EITHER_SHELL = (
    "if command -v bash >/dev/null; then exec bash --norc -i; fi; PS1='(ringfence) $ '; export PS1; exec sh -i"
)
"""A start-up file would set another prompt; inside, none of the person's own is there."""


def shell(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A program and its arguments, instead of a shell: such as a coding agent's own command line.",
            show_default=False,
        ),
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="The directory to work in; default: here.")
    ] = None,
    write: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A further directory that may be written.")
    ] = None,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A further file or directory that may be read.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="The workspace can only be read.")] = False,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Hide what matches, also in what is granted.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", "-e", metavar="NAME[=VALUE]", help="A variable to set; without a value, it is copied from here."
        ),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Work on a shadow: nothing reaches the files before you commit it.")
    ] = False,
    use_shadow: Annotated[
        str | None,
        typer.Option(metavar="SHADOW", help="Work on this shadow: its id or name.", autocompletion=complete_shadows),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Use this configuration file.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Hide and grant by this policy.")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role in the policy.", autocompletion=complete_roles)
    ] = None,
    allow: AllowOption = None,
    secret: SecretOption = None,
    publish: PublishOption = None,
    reach: ReachOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr what the wall is.")] = False,
) -> None:
    """Open a shell in a sandbox, on this terminal.

    What you see is what an agent would see. The commands that you type are yours: the wall holds them, the policy's
    rules about single commands do not ask. With a command, that program has the terminal instead of a shell. It exits
    as the shell or the program exits.

    Examples:

        ringfence shell --shadow

        ringfence shell --shadow -e API_KEY -- my-agent --model large
    """
    require_terminal("a shell")
    options = typed_options(
        workspace=workspace,
        read=read,
        write=write,
        read_only=read_only,
        deny=deny,
        env=env,
        config=config,
        policy=policy,
        role=role,
        network=typed_network(allow=allow, secret=secret, publish=publish, reach=reach),
    )
    if is_on_server(os.environ):
        if shadow or use_shadow is not None:
            raise InvalidArgument("a shadow of a server's", hint=f"leave out --shadow, or unset {URL_VARIABLE}")
        words = command or ("/bin/sh", "-c", _EITHER_SHELL)
        raise Finished(shell_there(options, words, env={} if command else {"PS1": prompt(options)}, verbose=verbose))
    with work_on(options, shadow=shadow, use_shadow=use_shadow) as chosen:
        code = asyncio.run(_session(chosen, command or [], verbose=verbose))
    raise Finished(code)


async def _session(options: SandboxOptions, command: list[str], *, verbose: bool) -> int:
    async with Sandbox(options) as box:
        if verbose or (box.grant.network is not None and box.grant.network.publish):
            await box.open()
            say_published(box.published)
        if verbose and box.wall is not None:
            print_note(f"wall: {box.wall.name}; guarantees: {', '.join(sorted(box.wall.guarantees))}")
        if command:
            return await attach(box, command, typed_by_person=True)
        print_note("a shell inside the wall; `exit` ends it")
        return await attach(box, ("/bin/sh", "-c", _EITHER_SHELL), env={"PS1": prompt(options)}, typed_by_person=True)


def prompt(options: SandboxOptions) -> str:
    """What a shell shows before each line: that it is inside, on what, and in which directory."""
    where = "ringfence"
    if options.shadow is not None:
        where += f" shadow {handle(options.shadow)}"
    elif options.read_only:
        where += " read-only"
    mark = f"({where})".replace("\\", "\\\\").replace("$", "\\$").replace("`", "\\`")
    if is_coloured(sys.stdout):
        mark = rf"\[\e[33m\]{mark}\[\e[0m\]"
    return rf"{mark} \w \$ "
