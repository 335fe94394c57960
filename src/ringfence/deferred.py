"""Names whose module is loaded when they are first used: for parts that most calls do not need.

    if TYPE_CHECKING:
        from ringfence.policy import judging
        from ringfence.shell.analyse import analyse
    else:
        judging = deferred_module("ringfence.policy.judging")
        analyse = deferred("ringfence.shell.analyse", "analyse")

The type checker and import-linter see the import as it would stand without this. What is not called (a constant, a
class for `isinstance`) cannot be deferred by its name: defer its module.
"""

import sys

TYPE_CHECKING = False  # without `typing`, which costs more than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


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
        return getattr(sys.modules.get(self.__name__) or load(self.__name__), attribute)

    def __repr__(self) -> str:
        return f"<deferred module {self.__name__!r}>"


def deferred_module(name: str) -> "Any":
    """A module that is loaded when something of it is first asked for."""
    return _Module(name)


def load(name: str) -> "Any":
    """The module of that name, loaded now. A name that is needed once needs no more than this."""
    __import__(name)  # as the statement does: `importlib.import_module` is a module more
    return sys.modules[name]
