"""Reads sizes such as `512MB` and times such as `30s`, and writes them for people."""

import re
from fractions import Fraction

from ringfence.errors import InvalidConfig

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_NUMBER = r"(\d{1,20}(?:\.\d{1,20})?)"  # longer ones are no sizes, and would be infinite as floats
_SIZE = re.compile(_NUMBER + r"\s*([kmgt]?)i?b?", re.IGNORECASE)
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(_NUMBER + r"\s*(ms|s|m|h|)", re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """Bytes from `4096`, `512MB`, `1.5 GiB`; the units are powers of 1024 however they are spelled."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise InvalidConfig(f"{text!r} is not a size", hint="write it as 512MB, 2GB or a number of bytes")
    return int(Fraction(match[1]) * _UNITS[match[2].lower()])


def parse_duration(text: str | float) -> float:
    """Seconds from `30`, `30s`, `1.5m`, `250ms`."""
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise InvalidConfig(f"{text!r} is not a duration", hint="write it as 30s, 5m or a number of seconds")
    return float(match[1]) * _SECONDS[match[2].lower()]


def show_size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def show_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
