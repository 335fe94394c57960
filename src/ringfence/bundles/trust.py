"""The trust store: whose signatures count, for tools of which names, and which keys count no longer.

One file of the person's own, replaced as a whole; a file that others could have written is not believed. A revoked key
stays in it, so that it is told apart from an unknown one and cannot be added again by mistake.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ringfence.bundles.canonical import NotCanonical, canonical, parse
from ringfence.bundles.private import locked, make_private, replace_file
from ringfence.bundles.reasons import Reason
from ringfence.dataclass import dataclass, replace
from ringfence.errors import AlreadyExists, BundleRefused, Damaged, FileError, InvalidArgument, NotFound

_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_PATTERN: Final = re.compile(r"[a-z0-9*?][a-z0-9._*?-]{0,63}/[a-z0-9*?][a-z0-9._*?-]{0,63}")
_SIZE_MAX: Final = 1024 * 1024
_REPAIR: Final = "restore it from a backup, or remove it and trust your keys again"


@dataclass(frozen=True, slots=True)
class TrustedKey:
    name: str
    public: bytes
    may_sign: tuple[str, ...]
    """Patterns of tools' names, such as `acme/*`."""
    revoked: str = ""
    """Why, if it counts no longer."""

    @property
    def id(self) -> str:
        return hashlib.sha256(self.public).hexdigest()

    def may(self, tool: str) -> bool:
        publisher, _, name = tool.partition("/")
        return any(
            fnmatch.fnmatchcase(publisher, pattern.partition("/")[0])
            and fnmatch.fnmatchcase(name, pattern.partition("/")[2])
            for pattern in self.may_sign
        )


class TrustStore:
    """
    Args:
        path: the file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def keys(self) -> tuple[TrustedKey, ...]:
        """Every key, those that were revoked among them.

        Raises:
            Damaged: the file is none of ours, or others can write it.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ()
        except OSError as fault:
            raise FileError.of(fault.errno or 0, os.fspath(self._path)) from None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
                raise self._damaged("others can write it, so that it says nothing about whom you trust")
            data = file.read(_SIZE_MAX + 1)
        try:
            return tuple(map(_key, _rows(parse(data))))
        except (NotCanonical, KeyError, TypeError, ValueError, binascii.Error) as fault:
            raise self._damaged(f"it cannot be read: {fault}") from None

    def find(self, key_id: str, tool: str) -> TrustedKey:
        """The key of this id, if it may sign tools of this name.

        Raises:
            BundleRefused: it may not, is not known, or was revoked.
        """
        key = next((key for key in self.keys() if key.id == key_id), None)
        if key is None:
            raise BundleRefused(
                Reason.UNKNOWN_KEY,
                f"{tool} is signed by the key {key_id[:16]}, which nobody here trusts",
                hint="if you know whose it is: ringfence bundle trust NAME KEY.pub --for 'publisher/*'",
            )
        if key.revoked:
            raise BundleRefused(
                Reason.REVOKED_KEY, f"{tool} is signed by the key {key.name!r}, which was revoked: {key.revoked}"
            )
        if not key.may(tool):
            raise BundleRefused(
                Reason.KEY_NOT_FOR_NAME,
                f"{tool} is signed by the key {key.name!r}, which is trusted for {', '.join(key.may_sign)} only",
                hint=f"if it may sign this, too: ringfence bundle trust {key.name} KEY.pub --for {tool}",
            )
        return key

    def add(self, name: str, public: bytes, may_sign: tuple[str, ...]) -> TrustedKey:
        """Trust a key, or the same key for further names.

        Raises:
            InvalidArgument: a name or pattern that cannot be one.
            AlreadyExists: the name is another key's, or the key has another name, or it was revoked.
        """
        if not _KEY_NAME.fullmatch(name):
            raise InvalidArgument(f"{name!r} is no name for a key", hint="letters, digits, and . _ @ - between them")
        for pattern in may_sign:
            if not _PATTERN.fullmatch(pattern):
                raise InvalidArgument(f"{pattern!r} is no pattern of tools' names", hint="such as 'acme/*'")
        if not may_sign:
            raise InvalidArgument("a key that may sign nothing", hint="say what it may sign: --for 'acme/*'")
        new = TrustedKey(name, public, may_sign)
        with self._changing() as keys:
            for key in keys:
                if key.id == new.id and key.revoked:
                    raise AlreadyExists(f"the key was revoked as {key.name!r}: {key.revoked}", hint="use another key")
                if (key.name == name) != (key.id == new.id):
                    raise AlreadyExists(f"there is a key {key.name!r} with the id {key.id[:16]}", hint="use that name")
            known = next((key for key in keys if key.id == new.id), None)
            if known is not None:
                keys.remove(known)
                new = replace(new, may_sign=tuple(dict.fromkeys((*known.may_sign, *may_sign))))
            keys.append(new)
        return new

    def revoke(self, name: str, why: str) -> TrustedKey:
        """From now on nothing counts that this key has signed, whenever that was.

        Raises:
            NotFound: there is no key of this name.
        """
        with self._changing() as keys:
            for at, key in enumerate(keys):
                if key.name == name:
                    keys[at] = replace(key, revoked=why or "no reason given")
                    return keys[at]
        raise NotFound(f"there is no key {name!r}", hint="ringfence bundle trust shows them")

    @contextmanager
    def _changing(self) -> Iterator[list[TrustedKey]]:
        make_private(self._path.parent)
        with locked(self._path.parent):
            keys = list(self.keys())
            yield keys
            rows = {
                key.name: {
                    "key": base64.b64encode(key.public).decode("ascii"),
                    "may_sign": list(key.may_sign),
                    "revoked": key.revoked,
                }
                for key in keys
            }
            replace_file(self._path, canonical({"format": 1, "keys": rows}), 0o600)

    def _damaged(self, why: str) -> Damaged:
        return Damaged(why, source=os.fspath(self._path), hint=_REPAIR)


def _rows(value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or value["format"] != 1:
        raise ValueError("of another format")
    return iter(value["keys"].items())


def _key(row: tuple[str, Any]) -> TrustedKey:
    name, given = row
    public = base64.b64decode(given["key"], validate=True)
    patterns = tuple(given["may_sign"])
    if len(public) != 32 or not all(isinstance(each, str) and _PATTERN.fullmatch(each) for each in patterns):
        raise ValueError(f"the key {name!r} makes no sense")
    return TrustedKey(name, public, patterns, str(given["revoked"]))
