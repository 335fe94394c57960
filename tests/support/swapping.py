"""A process that lets a directory and a link trade places in one system call, over and over: an agent that races us."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
one, other = map(os.fsencode, sys.argv[1:])
missing = 2
parent = os.getppid()
print("swapping", flush=True)
while os.getppid() == parent:
    for _ in range(1000):
        if libc.renameat2(here, one, here, other, exchange) != 0 and ctypes.get_errno() != missing:
            sys.exit(os.strerror(ctypes.get_errno()))
"""


@contextmanager
def swapping(directory: Path, one: str = "sub", other: str = "link") -> Iterator[None]:
    """Swap two names in a directory while the block runs; a name that is not there at the moment is waited for."""
    with subprocess.Popen(
        [sys.executable, "-c", _SWAPPER, one, other], cwd=directory, stdout=subprocess.PIPE
    ) as swapper:
        try:
            assert swapper.stdout is not None and swapper.stdout.readline() == b"swapping\n"
            yield
            assert swapper.poll() is None, "the swap ended early"
        finally:
            swapper.kill()
