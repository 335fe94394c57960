"""Names whose module is loaded when they are first used: for parts that most calls do not need.

    if TYPE_CHECKING:
        from ringfence.policy import judging
        from ringfence.shell.analyse import analyse
    else:
        judging = deferred_module("ringfence.policy.judging")
        analyse = deferred("ringfence.shell.analyse", "analyse")

The type checker and import-linter see the import as it would stand without this. What is not called (a constant, a
class for `isinstance`) cannot be deferred by its name: defer its module.

Parts that only faults need are loaded when something has gone wrong, and that may be that no descriptors are left. One
is kept for this from the first load on: given up for as long as a module is read, and taken again.
"""

import errno
import os
import sys
from _thread import RLock  # `threading` is ten modules more

TYPE_CHECKING = False  # without `typing`, which costs more than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_lock = RLock()  # a module may load others while it is loaded
_spare: "int | None" = None


def deferred(module: str, name: str) -> "Callable[..., Any]":
    """A function, or a class that is only called, of a module that is loaded at the first call."""
    found: Callable[..., Any] | None = None

    def call(*args: "Any", **named: "Any") -> "Any":
        nonlocal found
        if found is None:
            found = getattr(load(module), name)
        return found(*args, **named)

    call.__name__ = call.__qualname__ = name
    call.__module__ = module
    return call


class _Module:
    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> "Any":
        found = sys.modules.get(self.__name__)
        if found is None or getattr(found.__spec__, "_initializing", False):  # by another thread, which is waited for
            found = load(self.__name__)
        return getattr(found, attribute)

    def __repr__(self) -> str:
        return f"<deferred module {self.__name__!r}>"


def deferred_module(name: str) -> "Any":
    """A module that is loaded when something of it is first asked for."""
    return _Module(name)


def load(name: str) -> "Any":
    """The module of that name, loaded now. A name that is needed once needs no more than this."""
    try:
        __import__(name)  # as the statement does: `importlib.import_module` is a module more
    except OSError as fault:
        if fault.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        _load_with_the_spare(name)
    if _spare is None:
        _take_spare()
    return sys.modules[name]


def _load_with_the_spare(name: str) -> None:
    global _spare
    with _lock:
        if _spare is not None:
            os.close(_spare)
            _spare = None
        try:
            __import__(name)
        finally:
            _take_spare()


def _take_spare() -> None:
    global _spare
    with _lock:
        if _spare is None:
            try:
                _spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # the next load tries again
