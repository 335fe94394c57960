"""What comes along of the caller's environment: locale, time zone, terminal type, git's name; never a credential."""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ringfence.deferred import deferred_module
from ringfence.errors import InvalidArgument, WrongType
from ringfence.policy.expanding import is_encodable

if TYPE_CHECKING:
    import configparser
else:
    configparser = deferred_module("configparser")


_KEPT = ("LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR")
_KEPT_PREFIX = "LC_"
_GIT = {
    "GIT_AUTHOR_NAME": "name",
    "GIT_AUTHOR_EMAIL": "email",
    "GIT_COMMITTER_NAME": "name",
    "GIT_COMMITTER_EMAIL": "email",
}


def kept(environ: Mapping[str, str], home: str) -> dict[str, str]:
    """The variables for inside."""
    out = {name: environ[name] for name in environ if name in _KEPT or name.startswith(_KEPT_PREFIX)}
    files = (os.path.join(home, ".gitconfig"), os.path.join(home, ".config", "git", "config"))
    identity = _git_identity(tuple((path, _version(path)) for path in files))
    for name, key in _GIT.items():
        value = environ.get(name) or identity.get(key)
        if value:
            out[name] = value
    return out


def check_variables(variables: Iterable[tuple[object, object]]) -> None:
    """Refuse what no environment can hold.

    Raises:
        InvalidArgument, WrongType: names the variable.
    """
    for name, value in variables:
        if not isinstance(name, str) or not isinstance(value, str):
            raise WrongType("env", name if not isinstance(name, str) else value, "names and values that are str")
        if not name or "=" in name or "\0" in name or "\0" in value or not is_encodable(name + value):
            raise InvalidArgument(
                f"{name!r} cannot be the name of a variable, or its value holds a NUL byte or an unpaired surrogate"
            )


def _version(path: str) -> tuple[int, int, int] | None:
    """Changes when the file does."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


@lru_cache(maxsize=8)
def _git_identity(files: tuple[tuple[str, object], ...]) -> dict[str, str]:
    """user.name and user.email; the file itself, which may hold credentials, stays outside."""
    found: dict[str, str] = {}
    for path, _ in files:
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
        try:
            with open(path, encoding="utf-8") as file:
                # git indents its keys, which this parser would take for continued lines.
                parser.read_string("\n".join(line.strip() for line in file))
        except (OSError, ValueError, configparser.Error):
            continue
        if parser.has_section("user"):
            for key in ("name", "email"):
                value = (parser.get("user", key, fallback="") or "").strip().strip('"')
                if value:
                    found.setdefault(key, value)
    return found
