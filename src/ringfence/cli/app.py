"""The `ringfence` command: finds the quickest way to what was typed, and turns our errors into messages and exit codes.

Typer, Click and Rich cost more than a whole run in a box. So help for a pipe (`plain_help.py`) and a plain `ringfence
run` (`quick.py`) do without them; whatever these do not know, and every mistake, goes to Typer, which says the same.
"""

import gc
import os
import sys

from ringfence.cli.standard import open_standard_streams

TYPE_CHECKING = False  # without `typing`, which costs a third of a start
if TYPE_CHECKING:
    from typing import Any


def __getattr__(name: str) -> "Any":
    if name == "app":
        from ringfence.cli.root import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """The console script."""
    open_standard_streams()
    words = sys.argv[1:]
    if words in (["--help"], ["-h"]):
        from ringfence.cli.plain_help import say_help

        if say_help(os.environ):
            sys.exit(0)
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")  # Rich would still write bold and dim in help texts
    code = _code_of(words)
    gc.freeze()  # else the interpreter goes through everything once more before it ends
    sys.exit(code)


def main_as_shell() -> None:
    """The console script `ringfence-shell`, where there is no native front."""
    sys.argv[1:1] = ["hook", "run"]
    main()


def _code_of(words: list[str]) -> "Any":
    import warnings

    gc.disable()  # while modules are loaded: nothing of them is garbage
    from ringfence.cli.exits import FAULT_CODE, INTERRUPTED_CODE, USAGE_CODE, Finished, exit_code_of
    from ringfence.cli.quick import run_quickly
    from ringfence.cli.say import print_error, print_note
    from ringfence.errors import RingfenceError

    warnings.showwarning = lambda message, *_: print_note(str(message))
    try:
        if not run_quickly(words, os.environ):
            from ringfence.cli.root import app

            gc.enable()
            app(prog_name="ringfence")
    except Finished as end:
        return end.code
    except SystemExit as end:
        return FAULT_CODE if end.code == USAGE_CODE else end.code
    except RingfenceError as fault:
        print_error(fault)
        return exit_code_of(fault)
    except KeyboardInterrupt:
        return INTERRUPTED_CODE
    return 0


if __name__ == "__main__":
    main()
