"""`ringfence run` without Typer, for lines that are plain: known options, each with a value that is one.

Anything else (help, completion, a mistake, a form that is rare) is not answered here: the caller then asks Typer, which
reads the same line anew. `OPTIONS` is what Typer has, as data; a test compares them.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Kind:
    """How the value of an option is read; no dataclass or named tuple, which cost more than the reading.

    Args:
        of: text, path, number, choice; flag: it has none.
    """

    __slots__ = ("is_many", "of")

    def __init__(self, of: str, *, is_many: bool = False) -> None:
        self.of, self.is_many = of, is_many


_TEXT, _TEXTS = Kind("text"), Kind("text", is_many=True)
_PATH, _PATHS = Kind("path"), Kind("path", is_many=True)
_NUMBER, _NUMBERS = Kind("number"), Kind("number", is_many=True)
_FLAG, _COLOR = Kind("flag"), Kind("choice")

OPTIONS: Final[dict[str, tuple[str, Kind]]] = {
    "--workspace": ("workspace", _PATH),
    "-w": ("workspace", _PATH),
    "--write": ("write", _PATHS),
    "--read": ("read", _PATHS),
    "--deny": ("deny", _TEXTS),
    "--timeout": ("timeout", _TEXT),
    "--cpu-time": ("cpu_time", _TEXT),
    "--memory": ("memory", _TEXT),
    "--processes": ("processes", _NUMBER),
    "--output": ("output", _TEXT),
    "--read-only": ("read_only", _FLAG),
    "--env": ("env", _TEXTS),
    "-e": ("env", _TEXTS),
    "--language": ("language", _TEXT),
    "-l": ("language", _TEXT),
    "--python": ("python", _PATH),
    "--stdin": ("stdin", _FLAG),
    "-i": ("stdin", _FLAG),
    "--terminal": ("terminal", _FLAG),
    "-t": ("terminal", _FLAG),
    "--config": ("config", _PATH),
    "--policy": ("policy", _PATH),
    "--role": ("role", _TEXT),
    "--tool": ("tool", _TEXT),
    "--json": ("as_json", _FLAG),
    "--trace": ("trace", _TEXT),
    "--shadow": ("shadow", _FLAG),
    "--shadow-size": ("shadow_size", _TEXT),
    "--use-shadow": ("use_shadow", _TEXT),
    "--mediate-opens": ("mediate_opens", _FLAG),
    "--allow": ("allow", _TEXTS),
    "--secret": ("secret", _TEXTS),
    "--publish": ("publish", _TEXTS),
    "--reach": ("reach", _NUMBERS),
    "--ask-network": ("ask_network", _FLAG),
    "--verbose": ("verbose", _FLAG),
    "-v": ("verbose", _FLAG),
    "--color": ("color", _COLOR),
    "--quiet": ("quiet", _FLAG),
    "-q": ("quiet", _FLAG),
}
_COLORS: Final = ("auto", "always", "never")


def run_quickly(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Run the command, if it is one that is understood here; False if it is Typer's.

    Raises:
        Finished: how to exit.
        RingfenceError: as the command itself.
    """
    if "_RINGFENCE_COMPLETE" in environ:
        return False
    if list(words[:2]) == ["hook", "run"] and words[2:3] not in (["--help"], ["-h"]):
        _run_as_shell(words[2:], environ)
    if words[:1] != ["run"]:
        return False
    read = read_line(words[1:])
    if read is None:
        return False
    command, given = read
    from ringfence.cli.waiting import load_asyncio

    load_asyncio()
    from ringfence.cli.output import Color, use
    from ringfence.cli.running import run_command

    gc.freeze()
    gc.enable()

    color = given.pop("color", None)
    use(None if color is None else Color(color), quiet=given.pop("quiet", False), anew=True)
    try:
        run_command(command, **given)
    except OSError as fault:
        if fault.errno != errno.EPIPE:
            raise
        _leave_closed_pipes()
        sys.exit(1)
    return True


def _run_as_shell(words: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """`ringfence-shell`: what a shell is called with is no line of options, and nobody but us may look for some in it.

    Raises:
        Finished: how to exit.
        RingfenceError: as the command itself.
    """
    from ringfence.agents.shell_words import parse
    from ringfence.cli.exits import Finished
    from ringfence.cli.hooked import own_ledger, run_words

    gc.enable()
    raise Finished(run_words(parse(words), own_ledger(environ), environ))


def read_line(words: Sequence[str]) -> tuple[list[str], dict[str, Any]] | None:
    """The command and its options by name; None if Typer has to look."""
    given: dict[str, Any] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if word == "--":
            break
        name, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in OPTIONS:
            return None
        key, kind = OPTIONS[name]
        if kind.of == "flag":
            if has_value:
                return None
            given[key] = True
            continue
        if not has_value:
            if place == len(words):
                return None
            value = words[place]
            place += 1
        made = _value(kind, value)
        if made is None:
            return None
        if kind.is_many:
            given.setdefault(key, []).append(made)
        else:
            given[key] = made
    command = list(words[place:])
    return (command, given) if command else None


def _value(kind: Kind, text: str) -> Any:
    """None for what is better looked at by Typer: it knows how to say what is wrong."""
    if not text or text.startswith("-") or not text.isprintable():
        return None
    match kind.of:
        case "text":
            return text
        case "number":
            return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
        case "choice":
            return text if text in _COLORS else None
        case _:
            if os.path.lexists(text) and not os.access(text, os.R_OK):
                return None
            from pathlib import Path

            return Path(text)


def _leave_closed_pipes() -> None:
    """Whoever read is gone: nothing more is written, at the end of the interpreter neither."""
    nowhere = os.open("/dev/null", os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
