"""Loads `asyncio` without what most command lines never touch: TLS, and the reading of source code.

`asyncio` imports `ssl` and `inspect` at once, a third of its cost, and uses them late if at all. Here they stand in the
list of modules as ones that load themselves when something of them is first asked for, whoever asks. For the process of
a command line alone: a library does not decide that for its program.
"""

import sys
from _thread import RLock
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

_lock = RLock()


class _Waiting(ModuleType):
    """A module that loads itself at the first look; other threads wait until that is done."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__spec__", "__class__", "__dict__"):  # the import system looks at these
            return ModuleType.__getattribute__(self, name)
        with _lock:
            about = ModuleType.__getattribute__(self, "__dict__")
            spec = about.pop("_waits", None)  # gone while it loads: what it imports may look back at it
            if spec is not None:
                spec.loader.exec_module(self)
                self.__class__ = ModuleType  # type: ignore[assignment]  # from now on an ordinary one
        return ModuleType.__getattribute__(self, name)


def load_asyncio() -> None:
    """Nothing happens to what is loaded already."""
    if "asyncio" in sys.modules:
        return
    package = PathFinder.find_spec("asyncio")
    if package is None or package.submodule_search_locations is None:
        return
    _let_wait("ssl")
    _let_wait("inspect")
    _let_wait("asyncio.sslproto", package.submodule_search_locations)  # looks at `ssl` while it is loaded
    import asyncio

    if "asyncio.sslproto" in sys.modules:
        asyncio.sslproto = sys.modules["asyncio.sslproto"]  # type: ignore[attr-defined]  # as importing it would


def _let_wait(name: str, path: Any = None) -> None:
    spec = None if name in sys.modules else PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return
    module = _Waiting(name)
    vars(module).update(
        _waits=spec, __spec__=spec, __loader__=spec.loader, __file__=spec.origin, __package__=spec.parent
    )
    sys.modules[name] = module
