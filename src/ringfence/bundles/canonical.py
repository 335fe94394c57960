"""JSON in one form only, so that equal content is equal bytes: what is hashed and signed.

The form: UTF-8 without a byte order mark; objects with their keys in the order of their UTF-16 code units; no blank
between tokens; texts escaped only where JSON demands it; whole numbers from -(2^53 - 1) to 2^53 - 1 and no others; one
newline at the end. Without that newline it is what RFC 8785 writes for such values.
"""

import json
from typing import Any, Final

_MOST: Final = 2**53 - 1
_DEPTH_MAX: Final = 16


class NotCanonical(ValueError):
    """A value that has no such form, or bytes that are not in it; the message says what."""


def canonical(value: Any) -> bytes:
    """The bytes of a value.

    Raises:
        NotCanonical: it holds what has no form here.
    """
    _check(value, 0)
    text = json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        raise NotCanonical("a text contains an unpaired surrogate") from None


def parse(data: bytes) -> Any:
    """The value of bytes that are in the one form.

    Raises:
        NotCanonical: they are not.
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise NotCanonical("it is not UTF-8") from None
    except (ValueError, RecursionError) as fault:
        raise NotCanonical(f"it is not JSON: {fault}") from None
    if canonical(value) != data:
        raise NotCanonical("it is not in the one form that is signed (keys in order, no blanks, none twice)")
    return value


def _check(value: Any, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise NotCanonical(f"it is nested more than {_DEPTH_MAX} deep")
    match value:
        case None | bool() | str():
            return
        case int() if -_MOST <= value <= _MOST:
            return
        case dict():
            for key, each in value.items():
                if not isinstance(key, str):
                    raise NotCanonical(f"the key {key!r} is no text")
                _check(each, depth + 1)
        case list() | tuple():
            for each in value:
                _check(each, depth + 1)
        case _:
            raise NotCanonical(f"{value!r} is no text, whole number, true, false, null, list or object")


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=_units)}
    if isinstance(value, list | tuple):
        return [_ordered(each) for each in value]
    return value


def _units(key: str) -> bytes:
    """What JavaScript sorts texts by."""
    return key.encode("utf-16-be", "surrogatepass")
