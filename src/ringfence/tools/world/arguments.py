"""Checks what a model gave as arguments against a tool's schema, and says what is wrong so that it can be corrected.

Only what our own schemas use: plain types, `enum`, bounds of numbers and lengths, items of lists, required and unknown
names. A schema with anything else is refused when the tool is added, so that nothing is ever left unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ringfence.errors import InvalidArgument

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
}
_KEYS: Final = frozenset(
    (
        *("type", "title", "description", "default", "enum", "minLength", "maxLength", "minimum", "maximum"),
        *("exclusiveMinimum", "minItems", "maxItems", "items", "properties", "required", "additionalProperties"),
    )
)


def check_schema(schema: Mapping[str, Any], where: str = "the schema") -> None:
    """
    Raises:
        InvalidArgument: it says something that we would not check.
    """
    unknown = sorted(set(schema) - _KEYS)
    if unknown:
        raise InvalidArgument(f"{where}: {unknown[0]!r} is not checked here", hint=f"use {', '.join(sorted(_KEYS))}")
    if not isinstance(schema.get("type"), str) or schema["type"] not in _TYPES:
        raise InvalidArgument(f"{where}: type {schema.get('type')!r} is none of {', '.join(_TYPES)}")
    for name, part in schema.get("properties", {}).items():
        check_schema(part, f"{where}: {name}")
    if "items" in schema:
        check_schema(schema["items"], f"{where}: items")


def wrong_with(arguments: Any, schema: Mapping[str, Any], where: str = "") -> str:
    """What is wrong, in one line; empty if nothing is."""
    name = where or "the arguments"
    if "type" in schema and (fault := _wrong_type(arguments, schema["type"])):
        return f"{name}: {fault}"
    if "enum" in schema and arguments not in schema["enum"]:
        return f"{name}: {_short(arguments)} is none of {', '.join(map(str, schema['enum']))}"
    if isinstance(arguments, str) and not _within(len(arguments), schema, "minLength", "maxLength"):
        return f"{name}: {_bounds(schema, 'minLength', 'maxLength', 'characters')}"
    if isinstance(arguments, int | float) and not isinstance(arguments, bool) and (fault := _number(arguments, schema)):
        return f"{name}: {fault}"
    if isinstance(arguments, list | tuple):
        return _wrong_items(arguments, schema, name)
    if isinstance(arguments, Mapping) and "properties" in schema:
        return _wrong_fields(arguments, schema, where)
    return ""


def _wrong_type(value: Any, wanted: str) -> str:
    is_right = isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
    return "" if is_right else f"{_short(value)} is no {wanted}"


def _number(value: float, schema: Mapping[str, Any]) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value} is no number that can be used"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return f"{value} is not greater than {schema['exclusiveMinimum']}"
    return "" if _within(value, schema, "minimum", "maximum") else _bounds(schema, "minimum", "maximum", "")


def _wrong_items(values: list[Any] | tuple[Any, ...], schema: Mapping[str, Any], name: str) -> str:
    if not _within(len(values), schema, "minItems", "maxItems"):
        return f"{name}: {_bounds(schema, 'minItems', 'maxItems', 'items')}"
    if "items" not in schema:
        return ""
    faults = (wrong_with(each, schema["items"], f"{name}[{number}]") for number, each in enumerate(values))
    return next(filter(None, faults), "")


def _wrong_fields(given: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> str:
    known = schema["properties"]
    for name in schema.get("required", ()):
        if name not in given:
            return f"{where or 'the arguments'}: {name} is missing"
    if schema.get("additionalProperties") is False:
        for name in given:
            if name not in known:
                return f"{where or 'the arguments'}: there is no {_short(name)}; there are {', '.join(known)}"
    faults = (
        wrong_with(value, known[name], f"{where}.{name}" if where else name)
        for name, value in given.items()
        if name in known
    )
    return next(filter(None, faults), "")


def _within(value: float, schema: Mapping[str, Any], least: str, most: str) -> bool:
    return bool(value >= schema.get(least, value) and value <= schema.get(most, value))


def _bounds(schema: Mapping[str, Any], least: str, most: str, unit: str) -> str:
    words = ((least, "at least"), (most, "at most"))
    return f"{' and '.join(f'{said} {schema[key]}' for key, said in words if key in schema)} {unit}".rstrip()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
