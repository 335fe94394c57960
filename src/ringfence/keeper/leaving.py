"""Runs the command line in a child of a keeper, and ends the process as an interpreter would.

What an interpreter does besides when it ends, taking itself apart, is left out: the process is gone anyway. The caller
is answered as soon as nothing can change the answer any more; what is then still to be done, nobody waits for.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Protocol

_CANNOT_FLUSH = 120
"""What Python exits with if standard output could not be written to the end."""


class Afterwards(Protocol):
    """What a call leaves behind in its process."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it came to a result, and another call of its kind may follow."""

    def close(self) -> None:
        """Take down what is left, which nobody has to wait for."""


def run_to_the_end(main: Callable[[], None], tell: Callable[[int], None], after: Afterwards) -> None:
    """Returns if the process can serve a further call; else it ends.

    Args:
        tell: given the exit code, once all is written; not called where the process ends by a signal.
    """
    code = 1
    has_ended = interrupted = False
    try:
        code = _code_of(main)
        has_ended = True
    except KeyboardInterrupt:
        interrupted = True
        sys.excepthook(*sys.exc_info())
    except BaseException:
        sys.excepthook(*sys.exc_info())
    goes_on = has_ended and after.is_repeatable and _flush()
    if goes_on:
        tell(code & 0xFF)
        try:
            after.close()
        except BaseException:
            os._exit(1)  # the guardian of the box does it
        return
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of an interpreter does
    atexit._run_exitfuncs()
    if not _flush():
        code = _CANNOT_FLUSH
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    tell(code & 0xFF)
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
