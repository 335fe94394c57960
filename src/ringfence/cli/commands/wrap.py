"""`ringfence wrap`: a whole coding agent inside the wall, with its network by name and its key as a placeholder."""

import asyncio
import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ringfence.agents.homes import agent_home
from ringfence.agents.known import AGENTS, BY_NAME, KnownAgent, agent_of
from ringfence.agents.wrapping import Wrapped, session_limits, wrapped
from ringfence.cli.attaching import attach
from ringfence.cli.completing import complete_roles, complete_shadows
from ringfence.cli.exits import Finished
from ringfence.cli.network_options import AllowOption, PublishOption, ReachOption, SecretOption
from ringfence.cli.options import typed_limits, typed_options, typed_variables
from ringfence.cli.piping import pipe
from ringfence.cli.say import print_line, print_note
from ringfence.cli.shadows import work_on
from ringfence.cli.typed_network import say_published, typed_network
from ringfence.dataclass import replace
from ringfence.errors import CommandNotAllowed, InvalidArgument, NotFound
from ringfence.manager.configuring import home_directory, load_config
from ringfence.manager.granting import current_directory
from ringfence.manager.options import SandboxOptions
from ringfence.manager.sandbox import Sandbox
from ringfence.values.outcome import REFUSED_CODE


def wrap(
    command: Annotated[
        list[str], typer.Argument(help="The agent's command line, such as `claude` or `codex exec ...`.")
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Which agent it is, if its name does not say so: {', '.join(BY_NAME)}.",
            autocompletion=lambda: list(BY_NAME),
        ),
    ] = None,
    login: Annotated[
        bool, typer.Option("--login", help="Open the hosts at which one signs in; the account's token is then inside.")
    ] = False,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="The project; default: here.")
    ] = None,
    write: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A further directory that it may write.")
    ] = None,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A further file or directory that it may read.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="The project can only be read.")] = False,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Hide what matches, also in what is granted.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="A variable to set; without a value, it is copied from here. No other is.",
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of the agent and all that it runs; default: 4GB.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="Its processes and threads; default: 2048.")
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Work on a shadow: nothing reaches the project before you commit it.")
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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr what it was given.")] = False,
) -> None:
    """Run a coding agent inside the wall: all of it, with every command that it starts.

    A known agent gets its model's hosts, its key as a placeholder that the proxy replaces, and a copy of its settings.
    It has the terminal, or, in a script, standard input and output. It exits as the agent exits.

    Examples:

        ringfence wrap -- claude

        ringfence wrap --shadow --allow pip -- codex exec "make the tests pass"
    """
    chosen = _agent(agent, command[0])
    place = workspace if workspace is not None else current_directory()
    home = home_directory(os.environ)
    with agent_home(chosen, place, os.environ, home) if chosen is not None else nullcontext() as copy:
        typed = typed_network(allow=allow, secret=secret, publish=publish, reach=reach)
        inside = wrapped(chosen, [_program(command[0]), *command[1:]], copy, os.environ, typed, login=login)
        options = typed_options(
            workspace=workspace,
            read=read,
            write=[*(write or ()), *map(Path, inside.write)],
            read_only=read_only,
            deny=deny,
            config=config,
            policy=policy,
            role=role,
            network=inside.network,
        )
        limits = typed_limits(config, memory=memory, processes=processes)
        configured = limits or load_config(os.environ, home, config).limits
        session = session_limits(configured)
        if limits is not None:  # what was typed counts, also if it is less
            session = replace(
                session,
                memory_bytes=limits.memory_bytes if memory is not None else session.memory_bytes,
                processes=limits.processes if processes is not None else session.processes,
            )
        options = replace(
            options,
            limits=session,
            env=(*inside.env, *typed_variables(env or ()).items()),
            agent_id=chosen.name if chosen is not None else None,
        )
        if verbose or chosen is None:
            for note in inside.notes:
                print_note(note)
        with work_on(options, shadow=shadow, use_shadow=use_shadow) as on:
            code = asyncio.run(_session(on, inside, verbose=verbose))
    raise Finished(code)


async def _session(options: SandboxOptions, inside: Wrapped, *, verbose: bool) -> int:
    async with Sandbox(options) as box:
        if verbose or (box.grant.network is not None and box.grant.network.publish):
            await box.open()
            say_published(box.published)
        if verbose and box.wall is not None:
            print_note(f"wall: {box.wall.name}; guarantees: {', '.join(sorted(box.wall.guarantees))}")
        try:
            if sys.stdin.isatty() and sys.stdout.isatty():
                return await attach(box, inside.argv, typed_by_person=True)
            code, _ = await pipe(box, inside.argv, typed_by_person=True)
            return code
        except CommandNotAllowed as refusal:
            if not refusal.rule:
                raise
            print_line(f"refused: {refusal}")
            return REFUSED_CODE


def _agent(name: str | None, program: str) -> KnownAgent | None:
    if name is None:
        return agent_of(program)
    if name not in BY_NAME:
        raise InvalidArgument(f"there is no agent {name!r} here", hint=f"one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _program(word: str) -> str:
    """Where it is: a mistake is said before anything is built."""
    found = shutil.which(word)
    if found is None:
        known = ", ".join(program for agent in AGENTS for program in agent.programs)
        raise NotFound(f"there is no program {word!r} on PATH", hint=f"install it; known agents are {known}")
    return word if os.path.dirname(word) == "" else os.path.abspath(word)
