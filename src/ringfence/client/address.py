"""Where a server listens, and where the token for it comes from.

A token never stands in a URL or on a command line, where others read it: it is an argument, RINGFENCE_TOKEN, or a file
that RINGFENCE_TOKEN_FILE names and only its owner reads.
"""

import ipaddress
import os
import stat
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, InvalidConfig, NotFound, PermissionDenied
from ringfence.policy.environment import lookup

URL_VARIABLE: Final = "RINGFENCE_URL"
TOKEN_VARIABLE: Final = "RINGFENCE_TOKEN"
TOKEN_FILE_VARIABLE: Final = "RINGFENCE_TOKEN_FILE"
CA_FILE_VARIABLE: Final = "RINGFENCE_CA_FILE"
_LONGEST_TOKEN: Final = 4096
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's place. Exactly one of `socket` and `host` is set."""

    socket: str = ""
    """Of a Unix socket."""
    host: str = ""
    port: int = 0
    is_encrypted: bool = False
    base: str = ""
    """What every path begins with, where a proxy in front wants that."""

    @property
    def authority(self) -> str:
        """What the Host header says."""
        if self.socket:
            return "localhost"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS["https" if self.is_encrypted else "http"] else f"{name}:{self.port}"

    def __str__(self) -> str:
        if self.socket:
            return f"unix://{self.socket}"
        return f"{'https' if self.is_encrypted else 'http'}://{self.authority}{self.base}"


def parse_address(url: str) -> Address:
    """The place that a URL means: `unix:///run/ringfence.sock`, `http://127.0.0.1:8765`, `https://ringfence.example`.

    Raises:
        InvalidArgument: it is none of these, it holds a password, or a token would travel unencrypted.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise _invalid("its port is none") from None
    if parts.username is not None or parts.password is not None:
        raise _invalid("a token in a URL is read by others", hint=f"give it as token=, or in {TOKEN_VARIABLE}")
    if parts.query or parts.fragment:
        raise _invalid("it has a query or a fragment")
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if parts.netloc or not os.path.isabs(path):
            raise _invalid("a socket has an absolute path", hint="write unix:///run/user/1000/ringfence.sock")
        return Address(socket=path)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise _invalid(f"it begins with {parts.scheme or 'nothing'!r}")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise _invalid("a token would travel unencrypted to another machine", hint="use https://")
    return Address(
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        is_encrypted=parts.scheme == "https",
        base=parts.path.rstrip("/"),
    )


def server_url(environ: Mapping[str, str]) -> str | None:
    """The URL of the server that the environment names."""
    found = lookup(environ, URL_VARIABLE)
    return None if found is None else found.value


def server_token(environ: Mapping[str, str]) -> str | None:
    """The token that the environment gives, or names a file for.

    Raises:
        NotFound, PermissionDenied: the file is not there, or others may read it.
        InvalidConfig: both are given, or it is no token.
    """
    given, named = lookup(environ, TOKEN_VARIABLE), lookup(environ, TOKEN_FILE_VARIABLE)
    if given is not None and named is not None:
        raise InvalidConfig(f"{given.name} and {named.name} are both set", hint="unset one of them")
    if named is not None:
        return checked_token(_private_text(named.value), named.name)
    return None if given is None else checked_token(given.value, given.name)


def checked_token(token: str, source: str) -> str:
    """
    Raises:
        InvalidConfig: it cannot be one; not shown, since it may be a secret all the same.
    """
    if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidConfig(f"{source} holds no token", hint="`ringfence token create` shows one, once")
    return token


def _private_text(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFound("there is no such file", path=path, hint=f"see {TOKEN_FILE_VARIABLE}") from None
    except OSError as fault:
        raise PermissionDenied(
            fault.strerror or "cannot be read", path=path, hint=f"see {TOKEN_FILE_VARIABLE}"
        ) from None
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
            raise PermissionDenied("others may read it, or it is no file", path=path, hint="chmod 600 it")
        return file.read(_LONGEST_TOKEN + 2).strip()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _invalid(why: str, hint: str = "write unix:///PATH, http://127.0.0.1:PORT or https://HOST") -> InvalidArgument:
    """Without the URL itself, which may hold a secret."""
    return InvalidArgument(f"the server's URL: {why}", argument="url", hint=hint)
