"""The `ringfence` command: puts its commands together and turns our errors into messages and exit codes."""

import os
import sys
import warnings

import typer

from ringfence.cli.exits import FAULT_CODE, INTERRUPTED_CODE, USAGE_CODE, Finished, exit_code_of
from ringfence.cli.lazy import LazyGroup
from ringfence.cli.output import ColorOption, QuietOption, use
from ringfence.cli.say import print_error, print_note
from ringfence.cli.standard import open_standard_streams
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
        False, "--version", "-V", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    color: ColorOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run what an agent writes inside walls that hold, and say exactly what happened."""
    use(color, quiet=quiet, anew=True)


def main() -> None:
    """The console script."""
    open_standard_streams()
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")  # Rich would still write bold and dim in help texts
    warnings.showwarning = lambda message, *_: print_note(str(message))
    try:
        app(prog_name="ringfence")
    except Finished as end:
        sys.exit(end.code)
    except SystemExit as end:
        sys.exit(FAULT_CODE if end.code == USAGE_CODE else end.code)
    except RingfenceError as fault:
        print_error(fault)
        sys.exit(exit_code_of(fault))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_CODE)


if __name__ == "__main__":
    main()
