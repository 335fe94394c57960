"""A command with commands of its own, such as `ringfence audit`."""

import typer

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def make_group(text: str) -> typer.Typer:
    """An empty group that says what it is for."""
    group = typer.Typer(
        help=text, no_args_is_help=True, rich_markup_mode="rich", add_completion=False, context_settings=HELP_NAMES
    )
    group.callback()(_nothing)  # else a group of one command would be that command
    return group


def _nothing() -> None: ...
