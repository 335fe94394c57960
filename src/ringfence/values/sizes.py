"""Reads sizes such as `512MB` and times such as `30s`, and writes them for people."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from ringfence.deferred import deferred
from ringfence.errors import InvalidArgument, WrongType

if TYPE_CHECKING:
    from fractions import Fraction
else:
    Fraction = deferred("fractions", "Fraction")


Duration = float | str | timedelta
"""Seconds as a number, text such as `30s`, `5m` or `250ms`, or a timedelta."""
Size = int | str
"""Bytes as a number, or text such as `512MB`."""

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_NUMBER = r"(\d{1,20}(?:\.\d{1,20})?)"  # longer ones are no sizes, and would be infinite as floats
_SIZE = re.compile(_NUMBER + r"\s*([kmgt]?)i?b?", re.IGNORECASE)
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(_NUMBER + r"\s*(ms|s|m|h|)", re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """Bytes from `4096`, `512MB`, `1.5 GiB`; the units are powers of 1024 however they are spelled."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise InvalidArgument(f"{text!r} is not a size", hint="write it as 512MB, 2GB or a number of bytes")
    return int(Fraction(match[1]) * _UNITS[match[2].lower()])


def parse_duration(text: str | float) -> float:
    """Seconds from `30`, `30s`, `1.5m`, `250ms`."""
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise InvalidArgument(f"{text!r} is not a duration", hint="write it as 30s, 5m or a number of seconds")
    return float(match[1]) * _SECONDS[match[2].lower()]


def seconds_of(argument: str, given: object) -> float:
    """The seconds that are meant by a duration.

    Raises:
        InvalidArgument: a text that is no time.
        WrongType: something else than a number, a text or a timedelta.
    """
    if isinstance(given, int | float) and not isinstance(given, bool):
        return given
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, str):
        try:
            return parse_duration(given)
        except InvalidArgument as fault:
            raise InvalidArgument(f"{argument}: {fault.message}", argument=argument, hint=fault.hint) from None
    raise WrongType(argument, given, "seconds as a number, a text such as '30s', or a timedelta")


def bytes_of(argument: str, given: object) -> int:
    """The bytes that are meant by a size.

    Raises:
        InvalidArgument: a text that is no size.
        WrongType: something else than a whole number or a text.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, str):
        try:
            return parse_size(given)
        except InvalidArgument as fault:
            raise InvalidArgument(f"{argument}: {fault.message}", argument=argument, hint=fault.hint) from None
    raise WrongType(argument, given, "bytes as a whole number, or a text such as '512MB'")


def show_size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def show_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def show_age(seconds: float) -> str:
    """Roughly how long ago, in the largest unit of which there are at least two."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit} ago"
    return "just now"
