"""Values as JSON and back, by their own fields: what the manager and the proxy tell each other.

Made from the dataclasses themselves, so that a field that is added travels without a word here. Whatever does not fit
is an error of the sender, and nothing is made of it.
"""

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union

_T = TypeVar("_T")


def to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    return value


def from_plain(kind: type[_T], given: Any) -> _T:
    """A value of this dataclass.

    Raises:
        ValueError: something is missing, too much, or of another type.
    """
    made = _value(kind, given)
    assert isinstance(made, kind)
    return made


def _value(kind: Any, given: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        if given is None and type(None) in typing.get_args(kind):
            return None
        (only,) = (each for each in typing.get_args(kind) if each is not type(None))
        return _value(only, given)
    if origin is tuple:
        return _tuple(typing.get_args(kind), given)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass(kind, given)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(given)
    if kind is float and type(given) is int:
        return float(given)
    if type(given) is not kind:
        raise ValueError(f"{kind} was expected, not {type(given)}")
    return given


def _tuple(kinds: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    if not isinstance(given, list):
        raise ValueError("a list was expected")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_value(kinds[0], each) for each in given)
    if len(kinds) != len(given):
        raise ValueError("a list of another length was expected")
    return tuple(_value(kind, each) for kind, each in zip(kinds, given, strict=True))


def _dataclass(kind: type, given: Any) -> Any:
    if not isinstance(given, dict):
        raise ValueError(f"{kind.__name__} was expected")
    hints = _hints(kind)
    if unknown := given.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(map(str, unknown)))}")
    try:
        return kind(**{name: _value(hints[name], each) for name, each in given.items()})
    except TypeError as fault:
        raise ValueError(str(fault)) from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
