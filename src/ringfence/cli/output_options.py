"""`--color` and `--quiet`, which every command has."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ringfence.cli.output import Color, use

ColorOption = Annotated[
    Color | None,
    typer.Option("--color", metavar="WHEN", help="Colours: auto, always or never.", show_default=False),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on stderr, no notes.")]


def with_output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with `--color` and `--quiet` after its own options."""
    signature = inspect.signature(command)
    own = [
        inspect.Parameter("color", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ColorOption),
        inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=QuietOption),
    ]

    @functools.wraps(command)
    def wrapped(*args: Any, color: Color | None, quiet: bool, **given: Any) -> Any:
        use(color, quiet=quiet)
        return command(*args, **given)

    wrapped.__doc__ = _flowing(inspect.getdoc(command) or "")
    wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *own])  # type: ignore[attr-defined]  # read by inspect
    wrapped.__annotations__ = {**command.__annotations__, "color": ColorOption, "quiet": QuietOption}
    return wrapped


def _flowing(text: str) -> str:
    """A docstring whose paragraphs fill the width of the terminal; what is indented stays as it is written."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else " ".join(each.split()) for each in paragraphs)
