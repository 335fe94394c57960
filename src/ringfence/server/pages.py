"""Lists in pages. A cursor holds the sort key of the last item that was given, so that what comes and goes between two
pages neither repeats nor hides others."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ringfence.server.problems import http_fault

T = TypeVar("T")


class Paged(Protocol):
    @property
    def cursor(self) -> str | None: ...
    @property
    def limit(self) -> int: ...


def page(items: Sequence[T], query: Paged, key: Callable[[T], Any]) -> tuple[list[T], str | None]:
    """The next of `items`, which are sorted by `key`, and the cursor for those after them.

    Raises:
        HttpFault: the cursor is none of ours.
    """
    rest = list(items)
    if query.cursor is not None:
        after = read_cursor(query.cursor)
        try:
            rest = [item for item in rest if _plain(key(item)) > after]
        except TypeError:
            raise _bad() from None
    found = rest[: query.limit]
    return found, make_cursor(key(found[-1])) if len(rest) > len(found) else None


def make_cursor(key: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_plain(key))).decode().rstrip("=")


def read_cursor(text: str) -> Any:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        raise _bad() from None


def _plain(key: Any) -> Any:
    return list(key) if isinstance(key, tuple) else key


def _bad() -> Exception:
    return http_fault("malformed_request", "the cursor is none of ours", hint="give next_cursor of the last page")
