"""Loads a command when it is called, so that `--help`, completion and one command do not wait for all the others."""

import os
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ringfence.cli.elsewhere import refuse_of_this_machine
from ringfence.cli.group import HELP_NAMES
from ringfence.cli.names import COMMANDS as COMMANDS
from ringfence.cli.output_options import with_output_options

_TAKES_THE_REST = ("run", "check", "shell", "wrap")
"""What follows the first word belongs to the command that is run, also if it looks like an option."""


class LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """For lists and suggestions: the name and what it does."""
        if cmd_name not in COMMANDS:
            return None
        stub = typer.Typer()
        stub.command(name=cmd_name, help=COMMANDS[cmd_name])(_nothing)
        return get_command(stub)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """For the call itself: the real one."""
        if args and args[0] in COMMANDS:
            refuse_of_this_machine(args, os.environ)
            return args[0], load(args[0]), args[1:]
        return super().resolve_command(ctx, args)


@cache
def load(name: str) -> Any:
    """A command with all its options."""
    found = getattr(import_module(f"ringfence.cli.commands.{name}"), name)
    if isinstance(found, typer.Typer):
        for command in found.registered_commands:
            if command.callback is not None and "quiet" not in signature(command.callback).parameters:
                command.callback = with_output_options(command.callback)
        return get_command(found)
    alone = typer.Typer(rich_markup_mode="rich", add_completion=False, context_settings=HELP_NAMES)
    settings = {"allow_interspersed_args": False} if name in _TAKES_THE_REST else {}
    alone.command(name=name, context_settings=settings)(with_output_options(found))
    return get_command(alone)


def _nothing() -> None: ...
