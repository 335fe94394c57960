"""`ringfence --help` where no colours are wanted, as Rich would draw it: the same text, without loading Rich.

For a terminal, an unusual setting or a narrow width the caller asks Rich itself. A test compares the two at many
widths.
"""

import os
import sys

from ringfence.cli.names import COMMANDS

TYPE_CHECKING = False  # without `typing`, which costs a third of a start
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ABOUT = "Run what an agent writes inside walls that hold, and say exactly what happened."
_OPTIONS = (
    ("--version", "-V", "", "Print the version and exit."),
    ("--color", "", "WHEN", "Colours: auto, always or never."),
    ("--quiet", "-q", "", "Print only errors on stderr, no notes."),
    ("--install-completion", "", "", "Install completion for the current shell."),
    ("--show-completion", "", "", "Show completion for the current shell, to copy it or customize the installation."),
    ("--help", "-h", "", "Show this message and exit."),
)
_UNUSUAL = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables by which Rich or Typer would draw something else."""
NARROWEST = 60
"""Below, Rich makes columns narrower by rules of its own."""
WIDEST = 1000
_USUAL_WIDTH = 80


def say_help(environ: "Mapping[str, str]") -> bool:
    """Print it; False if that is up to Rich."""
    stream = sys.stdout
    width = _width(environ)
    if stream.isatty() or not stream.encoding.lower().startswith("utf") or not NARROWEST <= width <= WIDEST:
        return False
    if any(name in environ for name in _UNUSUAL) or any(name.startswith(("_TYPER", "JUPYTER")) for name in environ):
        return False
    if "_RINGFENCE_COMPLETE" in environ:
        return False
    try:
        stream.write(help_text(width))
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open("/dev/null", os.O_WRONLY), stream.fileno())
        sys.exit(1)
    return True


def help_text(width: int) -> str:
    """The whole text, for so many columns."""
    lines = ["", " Usage: ringfence [OPTIONS] COMMAND [ARGS]...", ""]
    lines += [f" {line}" for line in _wrapped(ABOUT, width - 2)]
    lines += [""]
    drawn = [line.ljust(width) for line in lines]
    # Between the short name and the value Rich keeps two columns for what no option of ours has.
    options = [(name, short, "", "", value, text) for name, short, value, text in _OPTIONS]
    drawn += _panel("Options", options, width)
    drawn += _panel("Commands", tuple(COMMANDS.items()), width)
    return "\n".join((*drawn, "", ""))


def _panel(title: str, rows: "Sequence[tuple[str, ...]]", width: int) -> "Iterator[str]":
    """Rows in a frame; all columns but the last are as wide as they need to be."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    inner = width - 4
    room = inner - sum(widths) - 2 * len(widths)
    yield f"╭─ {title} {'─' * (width - len(title) - 5)}╮"
    for *heads, text in rows:
        first = "".join(f"{head.ljust(each)}  " for head, each in zip(heads, widths, strict=True))
        for number, line in enumerate(_wrapped(text, room)):
            yield f"│ {((first if number == 0 else ' ' * len(first)) + line).ljust(inner)} │"
    yield f"╰{'─' * (width - 2)}╯"


def _wrapped(text: str, width: int) -> "list[str]":
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def _width(environ: "Mapping[str, str]") -> int:
    """As Rich finds it."""
    columns = environ.get("COLUMNS", "")
    if columns.isdigit():
        return int(columns) or _USUAL_WIDTH
    for descriptor in range(3):
        try:
            return os.get_terminal_size(descriptor).columns or _USUAL_WIDTH
        except OSError:
            pass  # no terminal
    return _USUAL_WIDTH
