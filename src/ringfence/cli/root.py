"""The `ringfence` command as Typer sees it: its own options, and its commands."""

import typer

from ringfence.cli.lazy import LazyGroup
from ringfence.cli.output import use
from ringfence.cli.output_options import ColorOption, QuietOption
from ringfence.version import VERSION

app = typer.Typer(
    name="ringfence",
    cls=LazyGroup,
    help="Run what an agent writes inside walls that hold, and say exactly what happened.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"ringfence {VERSION}")
        raise typer.Exit


@app.callback()
def ringfence(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    color: ColorOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run what an agent writes inside walls that hold, and say exactly what happened."""
    use(color, quiet=quiet, anew=True)
