"""Any of our frozen values as plain values, for JSON, and back by its type: grants, decisions, walls, file states.

A dataclass is an object of its fields; fields that have their default are left out. An enum is its value (an ordered
one its name), a path its text, bytes are base64. A `Result` has a form of its own, for people too (`plain.py`).
"""

import base64
import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum, IntFlag
from pathlib import Path
from typing import Any, TypeVar, cast

from ringfence.errors import InvalidArgument
from ringfence.values.limits import FollowsWall, NobodySaid

T = TypeVar("T")


def carried(value: Any) -> Any:
    """The plain form.

    Raises:
        TypeError: it holds something that is none of our values.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, IntEnum) and not isinstance(value, IntFlag) else value.value
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): carried(inner) for name, inner in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(carried, value))
    if isinstance(value, Sequence):
        return [carried(inner) for inner in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field for field in _fields(type(value)) if field.init)
        held = {field.name: getattr(value, field.name) for field in fields if not _is_usual(field, value)}
        return {name: carried(inner) for name, inner in held.items()}
    raise TypeError(f"{type(value).__name__} cannot be carried")


def fetched(kind: type[T], given: Any) -> T:
    """The value of that type which `carried` was given.

    Raises:
        InvalidArgument: it is none; says where.
    """
    try:
        return cast("T", _fetched(kind, given))
    except (KeyError, TypeError, ValueError) as fault:
        if isinstance(fault, InvalidArgument):
            raise
        raise InvalidArgument(
            f"not a {getattr(kind, '__name__', kind)}: {fault}", hint="the two sides are of different versions"
        ) from fault


def _fetched(kind: Any, given: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _of_union(typing.get_args(kind), given)
    if origin is tuple:
        inner = typing.get_args(kind)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_fetched(inner[0], each) for each in given)
        return tuple(_fetched(part, each) for part, each in zip(inner, given, strict=True))
    if origin is frozenset:
        return frozenset(_fetched(typing.get_args(kind)[0], each) for each in given)
    if origin in (dict, Mapping):
        of = typing.get_args(kind)[1]
        return {name: _fetched(of, each) for name, each in given.items()}
    if not isinstance(kind, type):
        return given  # Any, a Literal
    if issubclass(kind, Enum):
        is_ordered = issubclass(kind, IntEnum) and not issubclass(kind, IntFlag)
        return kind[given.upper()] if is_ordered else kind(given)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        known = {field.name for field in _fields(kind) if field.init}
        return kind(**{name: _fetched(hints[name], each) for name, each in given.items() if name in known})
    if kind is bytes:
        return base64.b64decode(given, validate=True)
    if issubclass(kind, Path):
        return Path(given)
    if kind is float and isinstance(given, int):
        return float(given)
    if not isinstance(given, kind):
        raise TypeError(f"{type(given).__name__} instead of {kind.__name__}")
    return given


def _of_union(kinds: tuple[Any, ...], given: Any) -> Any:
    if given is None:
        return None
    named = [kind for kind in kinds if kind is not types.NoneType]
    if len(named) > 1:
        raise TypeError(f"one of {len(named)} types, and nothing says which")
    return _fetched(named[0], given)


def _is_usual(field: "dataclasses.Field[Any]", value: Any) -> bool:
    """Whether a field has its default, also where that is more than it seems: a limit that nobody has given."""
    held = getattr(value, field.name)
    if isinstance(held, FollowsWall | NobodySaid):
        return True
    if field.default is not dataclasses.MISSING:
        return type(held) is type(field.default) and bool(held == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(held == field.default_factory())


@functools.cache
def _fields(kind: type) -> tuple["dataclasses.Field[Any]", ...]:
    return dataclasses.fields(kind)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
