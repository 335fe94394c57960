"""The `ringfence` command: puts its commands together and turns our errors into messages and exit codes."""

import sys
import warnings

import typer

from ringfence.cli.exits import FAULT_CODE, INTERRUPTED_CODE, USAGE_CODE, Finished
from ringfence.cli.lazy import LazyGroup
from ringfence.cli.say import complain, note
from ringfence.errors import RingfenceError

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
        from importlib.metadata import version

        typer.echo(f"ringfence {version('ringfence')}")
        raise typer.Exit


@app.callback()
def ringfence(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Run what an agent writes inside walls that hold, and say exactly what happened."""


def main() -> None:
    """The console script."""
    warnings.showwarning = lambda message, *_: note(str(message))
    try:
        app(prog_name="ringfence")
    except Finished as end:
        sys.exit(end.code)
    except SystemExit as end:
        sys.exit(FAULT_CODE if end.code == USAGE_CODE else end.code)
    except RingfenceError as fault:
        complain(fault)
        sys.exit(FAULT_CODE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_CODE)


if __name__ == "__main__":
    main()
