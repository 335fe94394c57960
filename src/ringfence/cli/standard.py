"""Makes sure that standard input, output and error are something, whoever started us.

A program that is started with one of them closed (`<&-`, some service managers) gets that number for the next file it
opens: what it means to print lands in the journal, or what it opens is read as its input. So a closed one becomes
/dev/null before anything else is opened.
"""

import os
import sys

_NUMBERS = {"stdin": 0, "stdout": 1, "stderr": 2}


def open_standard_streams() -> None:
    for name, number in _NUMBERS.items():
        try:
            os.fstat(number)
        except OSError:
            opened = os.open("/dev/null", os.O_RDWR)  # the lowest number that is free
            if opened != number:
                os.dup2(opened, number, inheritable=True)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(number, "r" if number == 0 else "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
