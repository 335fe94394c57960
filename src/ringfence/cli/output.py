"""How the command line speaks: in colours or not, with notes or not, in tables that cut nothing.

Every command takes `--color` and `--quiet` (`output_options.py`), and so does `ringfence` before the command. Where
the output is no terminal, or NO_COLOR is set (no-color.org), no escape sequence is written.
"""

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import IO, TYPE_CHECKING

from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred_module

if TYPE_CHECKING:
    import typer
    from rich.console import Console
    from rich.table import Table
else:
    typer = deferred_module("typer")

_UNBOUNDED = 100_000
"""Columns of what is no terminal: whoever reads a pipe cuts for themselves."""


class Color(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class _Manner:
    color: Color = Color.AUTO
    is_quiet: bool = False


_manner = _Manner()


def use(color: Color | None, *, quiet: bool, anew: bool = False) -> None:
    """Speak so from now on. What is not given stays as it is.

    Args:
        anew: forget what was said before; for the first call of a process.
    """
    global _manner
    before = _Manner() if anew else _manner
    _manner = replace(before, color=color or before.color, is_quiet=quiet or before.is_quiet)


def is_quiet() -> bool:
    return _manner.is_quiet


def is_coloured(stream: IO[str]) -> bool:
    """Whether escape sequences may be written there."""
    if _manner.color is not Color.AUTO:
        return _manner.color is Color.ALWAYS
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say_coloured(text: str) -> None:
    """Text with colours, to stdout; without them where they do not belong."""
    typer.echo(text, color=is_coloured(sys.stdout))


def console(*, stderr: bool = False) -> "Console":
    """For what Rich draws; as wide as the terminal, without an end elsewhere."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _UNBOUNDED
    if is_coloured(stream):
        return Console(stderr=stderr, force_terminal=True, highlight=False, width=width)
    # A terminal without colours stays one for its width; `color_system=None` leaves every style out.
    return Console(stderr=stderr, force_terminal=False, color_system=None, highlight=False, width=width)


def make_table(*columns: str, whole: Sequence[str] = (), title: str = "") -> "Table":
    """An empty table. On a terminal with lines around it; elsewhere one line for each row.

    Args:
        whole: columns whose text is never cut or folded, such as ids that somebody copies.
    """
    from rich import box
    from rich.table import Table

    lines = box.ROUNDED if sys.stdout.isatty() else None
    table = Table(box=lines, title=title or None, title_justify="left", header_style="bold", pad_edge=bool(lines))
    for name in columns:
        table.add_column(name, no_wrap=name in whole, overflow="fold")
    return table


def show_table(table: "Table", on: "Console | None" = None) -> None:
    """Print a table; lines that cannot be made short enough run over, and lose nothing."""
    for column in table.columns:
        if column.no_wrap and column.overflow == "fold":
            column.min_width = max((len(str(column.header)), *(len(str(cell)) for cell in column.cells)))
    shown = on or console()
    if sys.stdout.isatty():
        shown.print(table, crop=False, no_wrap=True, overflow="ignore")
        return
    with shown.capture() as drawn:
        shown.print(table)
    for line in drawn.get().splitlines():
        print(line.rstrip())  # Rich fills the last column up
