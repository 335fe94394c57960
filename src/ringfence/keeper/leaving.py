"""Runs the command line in a child of a keeper, and ends the process as an interpreter would.

What an interpreter does besides when it ends, taking itself apart, is left out: the process is gone anyway.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

_CANNOT_FLUSH = 120
"""What Python exits with if standard output could not be written to the end."""


def run_to_the_end(main: Callable[[], None]) -> NoReturn:
    code = 1
    interrupted = False
    try:
        code = _code_of(main)
    except KeyboardInterrupt:
        interrupted = True
        sys.excepthook(*sys.exc_info())
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of an interpreter does
    atexit._run_exitfuncs()
    if not _flush():
        code = _CANNOT_FLUSH
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _code_of(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return end.code
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _flush() -> bool:
    done = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError) as fault:
            done = False
            if stream is sys.stdout:
                print(f"Exception ignored in: {stream!r}\n{type(fault).__name__}: {fault}", file=sys.stderr)
    return done
