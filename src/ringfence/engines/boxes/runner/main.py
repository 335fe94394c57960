"""Loads the part that is asked for and runs it. This text is run as it is, followed by a call of `main`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PROGRAMS = {"launch": 2, "init": 1, "version": 0}
"""How many numbers follow each."""
_USAGE = b"ringfence-box: usage: ringfence-box launch PLAN_FD OWNER_PID | init CONTROL_FD | version\n"


def main(sources: dict[str, str]) -> None:
    """Run what the arguments say.

    Args:
        sources: the text of each module of the package.
    """
    program, numbers = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if _PROGRAMS.get(program) != len(numbers) or not all(map(str.isdecimal, numbers)):
        os.write(2, _USAGE)
        os._exit(125)
    code = 125
    try:
        # In the order in which they import each other.
        shared = [_load(name, sources[name]) for name in ("words", "kernel")]
        if program == "version":
            os.write(1, b"%d\n" % shared[0]["PROTOCOL_VERSION"])
            code = 0
        else:
            run = _load(program, sources[program])[program]
            sys.path.clear()  # from here on no file may become our code, whoever wrote it
            run(*map(int, numbers))
    except BaseException as fault:  # an interpreter's own way to end would say more, and with another exit code
        os.write(2, f"ringfence-box: {type(fault).__name__}: {fault}\n".encode(errors="replace"))
    os._exit(code)


def _load(name: str, source: str) -> dict[str, Any]:
    """Make a module of a text, found by the others as if it came from a file."""
    module = type(sys)(f"ringfence_box.{name}")
    module.__package__ = "ringfence_box"
    sys.modules[module.__name__] = module
    exec(compile(source, f"ringfence-box/{name}.py", "exec"), module.__dict__)
    return module.__dict__
