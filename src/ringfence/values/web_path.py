"""The one spelling of a request's path, so that a rule about paths means what the server will make of it.

A path that servers read in different ways is refused, not guessed at: dot segments, doubled slashes, backslashes,
escaped dots, slashes, percent signs and control characters, path parameters. One escaped slash is let through, because
npm asks for scoped packages by it (`/@scope%2fname`): there it is the slash that it stands for.
"""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_ALLOWED: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,=:@/\-]|%[0-9A-Fa-f]{2})*")
_SCOPED: Final = re.compile(r"(?<=/)(@[a-z0-9~_-][a-z0-9._~-]*)%2[fF](?=[a-z0-9~_-])", re.IGNORECASE)
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~")
_TWO_WAYS: Final = frozenset({0x2E, 0x2F, 0x5C, 0x25, 0x3B, 0x7F, *range(0x20)})
_LONGEST: Final = 16 * 1024


class BadPath(ValueError):
    """A path that can be read in two ways; its message says why."""


def canonical_path(target: str) -> str:
    """The path of a request's target, without its query.

    Raises:
        BadPath: servers differ in what they make of it.
    """
    path = target.partition("?")[0]
    if path == "*":
        return path
    if len(path) > _LONGEST:
        raise BadPath("the path is too long")
    if not path.startswith("/"):
        raise BadPath("the path does not begin with a slash")
    if not _ALLOWED.fullmatch(path):
        raise BadPath("the path holds a character that servers read in different ways")
    path = _ESCAPE.sub(_plain, _SCOPED.sub(r"\1/", path, count=1))
    if "//" in path or any(segment in (".", "..") for segment in path.split("/")):
        raise BadPath("the path has an empty, a '.' or a '..' segment")
    return path


def _plain(escape: re.Match[str]) -> str:
    code = int(escape[1], 16)
    if code in _TWO_WAYS:
        raise BadPath(f"the path holds {escape[0]}, which servers read in different ways")
    return chr(code) if chr(code) in _UNRESERVED else escape[0].upper()


def path_pattern(glob: str) -> re.Pattern[str]:
    """What a rule's glob matches: `*` stops at a slash, `**` does not.

    Raises:
        BadPath: it is no glob of paths.
    """
    if not glob.startswith("/") or "?" in glob or "#" in glob or "***" in glob:
        raise BadPath("a path begins with a slash and has no query")
    parts = re.split(r"(\*\*|\*)", glob)
    for part in parts[::2]:
        if part and canonical_path("/" + part.lstrip("/")).removeprefix("/") != part.lstrip("/"):
            raise BadPath("write the path as the server sees it, without escapes")
    if "//" in glob:
        raise BadPath("the path has an empty segment")
    return re.compile("".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts))
