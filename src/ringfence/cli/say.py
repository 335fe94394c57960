"""What the command line says about a run, on stderr, one clear line each."""

import sys

from ringfence.cli.output import is_quiet, say_coloured
from ringfence.errors import InvalidConfig, RingfenceError
from ringfence.values.visible import visible

__all__ = ["print_error", "print_line", "print_note", "say_coloured", "visible"]


def print_line(text: str) -> None:
    """One line, whatever was asked for: why something did not happen."""
    print(f"ringfence: {visible(text)}", file=sys.stderr, flush=True)


def print_note(text: str) -> None:
    """One line that `--quiet` leaves out."""
    if not is_quiet():
        print_line(text)


def print_error(fault: RingfenceError) -> None:
    """An error, with its code and what to do; each of several in a file on a line of its own."""
    print_line(f"error [{fault.code}]: {fault.message}")
    for each in fault.faults if isinstance(fault, InvalidConfig) else ():
        print_line(str(each))
    if fault.hint:
        print_line(f"hint: {fault.hint}")
