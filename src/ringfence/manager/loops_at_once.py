"""How many threads have an event loop for a blocking call at once: a loop takes descriptors before it has a box."""

import os
import resource
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ringfence.engines.room import TO_MAKE_A_BOX, WAIT_SECONDS
from ringfence.errors import Busy

_OF_A_LOOP: Final = 10
"""It takes three itself; the rest is for what the call reads before it has a box."""
_MOST: Final = 256
"""Threads beyond this gain nothing: their boxes would wait for processors."""


def loops_at_once() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(_MOST, soft // (TO_MAKE_A_BOX + _OF_A_LOOP)))


_places = threading.Semaphore(loops_at_once())


@contextmanager
def loop_place(work: "Coroutine[Any, Any, Any]", seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Wait in this thread until another loop may be made; `work` is closed if none may.

    Raises:
        Busy: it took too long.
    """
    places = _places  # the one that is released is the one that was acquired, also after a fork
    try:
        is_ours = places.acquire(timeout=seconds)
    except BaseException:  # Ctrl-C
        work.close()
        raise
    if not is_ours:
        work.close()
        raise Busy(
            f"{loops_at_once()} threads run something in a box, and none of them was done within {seconds:g} s",
            hint="raise `ulimit -n`, or use fewer threads",
        )
    try:
        yield
    finally:
        places.release()


def _begin_anew() -> None:
    """The threads that held places are not in the child."""
    global _places
    _places = threading.Semaphore(loops_at_once())


os.register_at_fork(after_in_child=_begin_anew)
