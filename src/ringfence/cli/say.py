"""What the command line says about a run, on stderr, one clear line each."""

import sys
import unicodedata

from ringfence.errors import RingfenceError


def visible(text: str) -> str:
    """A text with its control characters shown, so that a file name cannot paint the terminal."""
    return "".join(char if char == " " or char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if unicodedata.category(char) in ("Cf", "Zl", "Zp") or ord(char) > 0xFF:
        return f"\\u{ord(char):04x}"
    return f"\\x{ord(char):02x}"


def note(text: str) -> None:
    """One line."""
    print(f"ringfence: {visible(text)}", file=sys.stderr, flush=True)


def complain(fault: RingfenceError) -> None:
    """An error, with its code and what to do."""
    note(f"error [{fault.code}]: {fault.message}")
    if fault.hint:
        note(f"hint: {fault.hint}")
