"""`ringfence hook`: what a coding agent calls before and after its shell; how it is installed; what it has run."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ringfence.agents.hooks.deciding import Hook
from ringfence.agents.hooks.dialects import BLOCK, DIALECTS, Answer
from ringfence.agents.hooks.installing import FILES, plan_hook
from ringfence.agents.settings_files import Scope
from ringfence.agents.shell_words import parse
from ringfence.cli.changing_settings import own_program, show_or_write
from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.hooked import judge_by, own_ledger, run_words
from ringfence.cli.say import print_note
from ringfence.errors import InvalidArgument, RingfenceError
from ringfence.manager.granting import current_directory
from ringfence.manager.nesting import is_inside_own_wall

hook = make_group(
    "What a coding agent calls before its shell, so that commands run inside the wall; how to install it."
)
_REST = {"allow_interspersed_args": False, "ignore_unknown_options": True, "allow_extra_args": True}
_TRUST = "--trust-wall"


@hook.command()
def install(
    client: Annotated[
        str,
        typer.Argument(metavar="CLIENT", help=f"One of {', '.join(FILES)}.", autocompletion=lambda: list(FILES)),
    ],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION...", help="After --, options of `ringfence run`.")
    ] = None,
    scope: Annotated[
        Scope | None,
        typer.Option(metavar="SCOPE", help="For this project, or for the user; default: what the client has."),
    ] = None,
    trust_wall: Annotated[
        bool, typer.Option(_TRUST, help="The client asks nobody about what runs inside and the policy allows.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Make the change; else it is only shown.")] = False,
) -> None:
    """Show the change that makes a client call the hook; with --write, make it.

    Example:

        ringfence hook install claude-code --write -- --allow pip
    """
    if client not in FILES:
        raise InvalidArgument(f"there is no client {client!r} here", hint=f"one of {', '.join(FILES)}")
    _check(options or [])
    words = [*own_program(), "hook", client, *([_TRUST] if trust_wall else []), *(options or [])]
    change = plan_hook(client, scope, words, current_directory(), Path.home())
    show_or_write(change, write=write, note=FILES[client].note)


@hook.command(context_settings=_REST)
def run(context: typer.Context) -> None:
    """Run a command inside the wall, in the forms in which a shell is called: `ringfence-shell` is this.

    With --token, it is one that a hook has rewritten. Options of `ringfence run` are in RINGFENCE_SHELL_OPTIONS.
    """
    raise Finished(run_words(parse(context.args), own_ledger(os.environ), os.environ))


@hook.command()
def status() -> None:
    """Show what ran without proof that it was inside the wall, as clients tell it; exits with 1 if anything did."""
    found = own_ledger(os.environ).alarms()
    for handle, why in found:
        print(f"{handle}  {why}")
    if not found:
        print_note("no command ran unproven")
    raise Finished(1 if found else 0)


@hook.command()
def clear() -> None:
    """Let agents go on after something ran without proof, once you have looked at it."""
    own_ledger(os.environ).clear()


def _check(options: list[str]) -> None:
    """What would fail at every call is said now."""
    judge_by(tuple(options))


def _serve(client: str, words: list[str]) -> None:
    """One call of a client. Whatever fails is a refusal: clients take every exit code but 2 for a yes."""
    try:
        said = _answer(client, words)
    except BaseException as fault:  # the outermost edge, where a crash would mean yes
        said = Answer(stderr=f"ringfence: the hook failed, so nothing runs: {_why(fault)}", code=BLOCK)
    try:
        if said.stderr:
            print(said.stderr, file=sys.stderr, flush=True)
        if said.stdout:
            print(said.stdout, flush=True)
    except OSError:
        os._exit(BLOCK)
    raise Finished(said.code)


def _why(fault: BaseException) -> str:
    if not isinstance(fault, RingfenceError):
        return f"{type(fault).__name__}: {fault}"
    parts = [fault.message, *(each.message for each in getattr(fault, "faults", ())), fault.hint]
    return "; ".join(part for part in parts if part)


def _answer(client: str, words: list[str]) -> Answer:
    data = sys.stdin.buffer.read()
    if is_inside_own_wall():  # all of the agent is inside: its commands are, too
        return Answer()
    options = tuple(word for word in words if word != _TRUST)
    made = Hook(
        dialect=DIALECTS[client],
        program=_shell_program(),
        options=options,
        trusts_wall=_TRUST in words,
    )
    return made.answer(data, lambda: own_ledger(os.environ), judge_by(options))


def _shell_program() -> tuple[str, ...]:
    found = own_program("ringfence-shell")
    return tuple(found) if len(found) == 1 else (*found, "hook", "run")


def _add(name: str, title: str) -> None:
    def serve(context: typer.Context) -> None:
        _serve(name, context.args)

    hook.command(name=name, help=f"What {title} calls: reads its call on stdin and answers.", context_settings=_REST)(
        serve
    )


for _dialect in DIALECTS.values():
    _add(_dialect.name, _dialect.title)
