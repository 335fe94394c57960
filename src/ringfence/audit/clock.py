"""Times as records hold them: RFC 3339, UTC, microseconds."""

import time

_second: tuple[int, str] = (-1, "")


def rfc3339(at: float | None = None) -> str:
    """A time, now if none is given, as `2025-02-07T12:00:00.123456Z`."""
    global _second  # a cache: thousands of records fall into one second, and one tuple is replaced by another at once
    nanoseconds = time.time_ns() if at is None else int(at * 1e9)
    second, rest = divmod(nanoseconds, 1_000_000_000)
    known, text = _second
    if known != second:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = (second, text)
    return f"{text}.{rest // 1000:06}Z"
