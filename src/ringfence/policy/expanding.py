"""Paths of settings: `~` and variables put in, and texts that no path can be."""

import re
from collections.abc import Mapping
from typing import Final

from ringfence.errors import InvalidConfig
from ringfence.policy.globs import escape

_REFERENCE: Final = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[^}]*)\}|(?P<open>\{))", re.ASCII
)


def expand(path: str, environ: Mapping[str, str], home: str, *, glob: bool = False) -> str:
    """Put in the home directory for `~` and values for `$VAR` and `${VAR}`; `$$` is a dollar sign.

    What is put in is not expanded again. With `glob`, it is also escaped, so that a star in the name of a home
    directory stays a plain star in a blacklist row.

    Raises:
        InvalidConfig: a variable is not set or empty, as `$X/keys` would become `/keys`; `~user`; or no usable home.
    """
    quote = escape if glob else str

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        name = found["bare"] or found["braced"] or ""
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise InvalidConfig(
                f"{path!r}: {found[0]} names no variable", hint="write $NAME or ${NAME}, or $$ for a dollar"
            )
        if not environ.get(name):
            state = "is empty" if name in environ else "is not set"
            raise InvalidConfig(f"{path!r}: the variable {name} {state}", hint="set it, write the path out, or use $$")
        return quote(environ[name])

    head, slash, tail = path.partition("/")
    if not head.startswith("~"):
        return _REFERENCE.sub(value, path)
    if head != "~":
        raise InvalidConfig(
            f"{path!r}: {head} is not supported", hint="write the path of that home directory, or ./ before ~"
        )
    if not home.startswith("/"):
        raise InvalidConfig(f"{path!r}: the home directory is {home!r}, which is not absolute", hint="set HOME")
    return (quote(home.rstrip("/")) + slash + _REFERENCE.sub(value, tail)) or "/"


def is_encodable(text: str) -> bool:
    """Whether the operating system can be given this text: no half of a character, bytes of file names excepted."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
