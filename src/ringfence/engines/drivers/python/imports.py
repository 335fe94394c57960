"""Modules of the standard library that are imported late, and those that the code imports and that need completing.

A part of one text: `__init__.py`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

    from ringfence.engines.drivers.python.beginning import modules, sources
    from ringfence.engines.drivers.python.cells import remember_lines
    from ringfence.engines.drivers.python.displays import (
        clear_output,
        display,
        get_ipython,
        publish_display_data,
        show_figures,
        shown_names,
    )
    from ringfence.engines.drivers.python.life import arrivals, own_path, stand_ins

    linecache: Any  # of `beginning`; set here

late: dict[str, ModuleType] = {}
displaced: dict[str, ModuleType] = {}  # modules of the library whose names belong to modules of the code


def trusted_path() -> list[str]:
    """Where modules come from, without what the workspace has a say in."""
    asked_for = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in sys.path if entry not in ("", ".") and entry not in asked_for]


class Library:
    """While entered, the standard library is what is imported, also by its own modules when they are called."""

    def __enter__(self) -> None:
        self.path = sys.path
        self.impostors = {name: modules[name] for name in list(modules) if is_impostor(name)}
        for name in self.impostors:
            if name in displaced:
                modules[name] = displaced[name]
            else:
                del modules[name]
        sys.path = own_path

    def __exit__(self, *_: object) -> None:
        sys.path = self.path
        for name, impostor in self.impostors.items():
            if name in modules:
                displaced[name] = modules[name]
            modules[name] = impostor


def stdlib(name: str) -> Any:
    """Import a module of the standard library, whatever modules the workspace has and the code has imported."""
    found = late.get(name)
    if found is None:
        with Library():
            __import__(name)
            found = late[name] = modules[name]
    return found


def is_impostor(name: str) -> bool:
    """Whether the loaded module has the name of one of the standard library, and is not it."""
    if name.partition(".")[0] not in getattr(sys, "stdlib_module_names", ()) and name not in LATE_NAMES:
        return False
    file = getattr(modules[name], "__file__", None)
    return isinstance(file, str) and not any(file.startswith(entry + "/") for entry in own_path)


# 3.8 and 3.9 do not know the names of their library: what we import ourselves, and what that imports.
LATE_NAMES = frozenset(
    "__future__ ast asyncio binascii collections contextlib copyreg dataclasses dis enum functools inspect itertools"  # noqa: SIM905
    " json keyword linecache opcode operator pprint re reprlib selectors shlex signal socket sre_compile sre_constants"
    " sre_parse subprocess textwrap threading timeit token tokenize traceback types warnings weakref".split()
)


class Finder:
    """Sees some modules come in: to complete them, or to stand in for an IPython that is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name not in arrivals and name not in stand_ins:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if name in arrivals and hasattr(spec.loader, "exec_module"):
                    spec.loader = Completing(spec.loader, arrivals[name])
                return spec
        make_spec: Any = type(os.__spec__)
        return make_spec(name, StandIn(), is_package=True) if name in stand_ins else None


class Completing:
    """The loader of a module, and something to do with the module afterwards."""

    def __init__(self, loader: Any, complete: Callable[[Any], None]) -> None:
        self.loader = loader
        self.complete = complete

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.complete(module)


class StandIn:
    """Makes as much of IPython as programs use that only want to show something."""

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__dict__.update(shown_names)
        module.__dict__.update(
            publish_display_data=publish_display_data,
            update_display=display,
            clear_output=clear_output,
            get_ipython=get_ipython,
            version_info=(0, 0, 0),
            __version__="0.0.0",
        )


def complete_linecache(module: Any) -> None:
    global linecache
    linecache = module
    for name in sources:
        remember_lines(name)


def complete_pyplot(module: Any) -> None:
    module.show = show_figures


def complete_ipython(module: Any) -> None:
    """Without a shell of its own IPython prints what it should display."""
    module.display = display
    module.publish_display_data = publish_display_data


def complete_multiprocessing(module: Any) -> None:
    """From 3.14 children start afresh by default, and would not find what cells define."""
    if sys.version_info >= (3, 14):
        module._default_context._default_context = module._concrete_contexts["fork"]
