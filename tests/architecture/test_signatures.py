"""Every type that a public signature names is public: whoever writes one down can import it from where the rest is."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import functools
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import ringfence
import ringfence.sync

PUBLIC = {getattr(ringfence, name) for name in ringfence.__all__ if isinstance(getattr(ringfence, name), type)}
PUBLIC |= {
    getattr(ringfence.sync, name) for name in ringfence.sync.__all__ if isinstance(getattr(ringfence.sync, name), type)
}

# Types that a caller is given and hands on, or never meets; each with the reason why it is not public.
INTERNAL = {
    "SandboxParts",  # how the pool makes a sandbox; a caller gives SandboxOptions
    "OptionFields",  # its keys are the fields of SandboxOptions, for type checkers
    "OptionFieldsButMode",
    "CallArguments",  # the same, of one call
    "StreamArguments",
    "Box",  # what an engine makes; front doors see it nowhere
    "Lease",  # how sandboxes of one box share it
    "Given",  # how the manager asks its pool for a route
    "Terms",  # what a policy says, merged: PolicyEngine and Sandbox answer questions about it
    "Policy",  # a policy file as it was read: PolicyEngine.from_file
    "Resolver",  # for tests: the machine's best one is chosen
    "ScriptStream",  # for the command line: where code came from
    "Readable",  # anything that has read(size)
    "DirectoryNode",  # how a snapshot names its top directory in the store
    "PathRules",  # how a shadow matches names
    "ProtectedNames",
}
NOT_MADE_BY_CALLERS = {"BoxFiles", "RemoteFiles", "RemoteManager", "RemoteProcess", "RemoteSandbox", "Server"}
"""Their constructors are not public: a sandbox, or `connect`, gives one."""


def named(hint: Any) -> Iterator[type]:
    """The classes of ours that a type is made of."""
    if hint in (None, Any) or isinstance(hint, str | typing.TypeVar | typing.ParamSpec):
        return
    arguments = typing.get_args(hint)
    for argument in arguments:
        if isinstance(argument, list | tuple):
            for one in argument:
                yield from named(one)
        else:
            yield from named(argument)
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type) and origin.__module__.split(".")[0] == "ringfence":
        yield origin


def callables(thing: Any) -> Iterator[tuple[str, Any]]:
    """Functions to look at: the thing itself, or what is public in the class."""
    if inspect.isfunction(thing):
        yield thing.__name__, thing
        return
    for owner in thing.__mro__:
        if owner.__module__.split(".")[0] != "ringfence":
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") and (name != "__init__" or owner.__name__ in NOT_MADE_BY_CALLERS):
                continue
            if isinstance(member, property):
                member = member.fget
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member):
                yield f"{owner.__name__}.{name}", member


@functools.cache
def typing_names(module: str) -> dict[str, Any]:
    """What a module imports for type checkers alone; `Any` for what is of an optional package."""
    found: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            continue
        for line in node.body:
            for alias in line.names if isinstance(line, ast.Import | ast.ImportFrom) else ():
                name = alias.asname or alias.name
                try:
                    if isinstance(line, ast.Import):
                        found[name] = importlib.import_module(alias.name)
                        continue
                    owner = importlib.import_module(str(line.module))
                except ModuleNotFoundError as missing:
                    assert not str(missing.name).startswith("ringfence")
                    found[name] = Any
                    continue
                is_module = not hasattr(owner, alias.name)
                found[name] = (
                    importlib.import_module(f"{line.module}.{alias.name}") if is_module else getattr(owner, alias.name)
                )
    return found


def hints_of(function: Any) -> dict[str, Any]:
    function = inspect.unwrap(function)
    names = typing_names(function.__module__)
    # Those for type checkers count: what stands beside them under the same name only loads them later.
    return typing.get_type_hints(function, {**function.__globals__, **names})


FACES = [(ringfence, name) for name in ringfence.__all__] + [(ringfence.sync, name) for name in ringfence.sync.__all__]


@pytest.mark.parametrize(("face", "name"), FACES, ids=lambda value: getattr(value, "__name__", value))
def test_every_type_in_a_public_signature_is_public(face: types.ModuleType, name: str) -> None:
    thing = getattr(face, name)
    if not (inspect.isfunction(thing) or isinstance(thing, type)):
        return
    missing = {
        f"{place}: {found.__name__} of {found.__module__}"
        for place, function in callables(thing)
        for hint in hints_of(function).values()
        for found in named(hint)
        if found not in PUBLIC and found.__name__ not in INTERNAL
    }
    if dataclasses.is_dataclass(thing):
        hints = typing.get_type_hints(thing, {**vars(sys.modules[thing.__module__]), **typing_names(thing.__module__)})
        missing |= {
            f"{name}.{field.name}: {found.__name__} of {found.__module__}"
            for field in dataclasses.fields(thing)
            for found in named(hints[field.name])
            if not field.name.startswith("_") and found not in PUBLIC and found.__name__ not in INTERNAL
        }

    assert sorted(missing) == []


def test_a_type_that_is_not_public_would_be_found() -> None:
    from ringfence.values.principal import Principal

    assert list(named(dict[str, Principal | None])) == [Principal]
    assert list(named(collections.abc.Callable[[Principal], int])) == [Principal]
