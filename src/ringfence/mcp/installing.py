"""Tells a client of the server: works out the change to its file, and makes it so that nothing of the file is lost.

The whole file is read and understood before, and what is in it afterwards is compared with that: every other key has to
be there with its value. A file with comments, or with the same key twice, cannot be written back as it was; then the
change is only shown. The old file is kept beside the new one, which takes its place at once.
"""

import difflib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringfence.errors import AlreadyExists, InvalidArgument, InvalidConfig, PermissionDenied
from ringfence.mcp.clients import Client, Command, Scope

_BACKUP: Final = ".before-ringfence"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """What would be written."""

    path: Path
    old: str | None
    """None: there is no such file."""
    new: str

    @property
    def is_needed(self) -> bool:
        return self.old != self.new

    @property
    def diff(self) -> str:
        before = (self.old or "").splitlines(keepends=True)
        lines = difflib.unified_diff(before, self.new.splitlines(keepends=True), str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def plan(client: Client, scope: Scope, name: str, command: Command, project: Path, home: Path) -> Change:
    """The change that makes a client know the server under a name.

    Raises:
        InvalidArgument: the name, or the client has no file of this scope.
        InvalidConfig: the file cannot be changed without losing something; says what to add by hand.
        AlreadyExists: another server has the name.
        PermissionDenied: the file cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"{name!r} is no name of a server", hint="letters, digits, - and _")
    if scope not in client.files:
        raise InvalidArgument(
            f"{client.title} has no file for the scope {scope}", hint=f"use --scope {' or '.join(client.scopes)}"
        )
    path = client.files[scope](project, home)
    old = _read(path)
    entry = client.entry(command)
    if client.is_toml:
        return Change(path, old, _with_table(path, old or "", client.key, name, entry))
    return Change(path, old, _with_member(path, old or "", client.key, name, entry))


def write(change: Change) -> Path | None:
    """Make the change; where the old file is kept, if there was one.

    Raises:
        PermissionDenied: it cannot be written, or has become different since it was read.
    """
    target = Path(os.path.realpath(change.path))  # a link stays one
    try:
        if _read(change.path) != change.old:
            raise PermissionDenied("it was changed meanwhile", path=os.fspath(change.path), hint="try again")
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = _keep(target) if change.old is not None else None
        _replace(target, change.new, mode=target.stat().st_mode & 0o777 if kept is not None else 0o600)
    except OSError as fault:
        if isinstance(fault, PermissionDenied):
            raise
        raise PermissionDenied(f"it cannot be written: {fault.strerror}", path=os.fspath(change.path)) from fault
    return kept


def _read(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise PermissionDenied(f"it cannot be read: {fault.strerror}", path=os.fspath(path)) from fault
    if len(data) > _MOST_BYTES:
        raise InvalidConfig("it is too large for a settings file", source=os.fspath(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidConfig("it is no UTF-8 text", source=os.fspath(path)) from None


def _with_member(path: Path, old: str, key: str, name: str, entry: dict[str, Any]) -> str:
    by_hand = f"add this by hand: {json.dumps({key: {name: entry}})}"
    try:
        settings = json.loads(old, object_pairs_hook=_unique) if old.strip() else {}
    except ValueError as fault:
        why = f"it is no plain JSON, and would lose something if it were written anew: {fault}"
        raise InvalidConfig(why, source=os.fspath(path), hint=by_hand) from None
    servers = settings.get(key, {}) if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise InvalidConfig(f"{key} in it is no object", source=os.fspath(path), hint=by_hand)
    if servers.get(name) == entry:
        return old
    _refuse_other(path, name, servers, by_hand)
    settings[key] = {**servers, name: entry}
    return json.dumps(settings, indent=_indent(old), ensure_ascii=False) + "\n"


def _with_table(path: Path, old: str, key: str, name: str, entry: dict[str, Any]) -> str:
    """TOML is added at the end, as text: what is there stays as it is, to the last comment."""
    lines = [f"[{key}.{name}]", *(f"{field} = {_toml(value)}" for field, value in entry.items())]
    table = "\n".join(lines) + "\n"
    by_hand = f"add this by hand: {' / '.join(lines)}"
    try:
        before = tomllib.loads(old)
        servers = before.get(key, {})
        if servers.get(name) == entry:
            return old
        _refuse_other(path, name, servers, by_hand)
        gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
        new = f"{old}{gap}{table}"
        if tomllib.loads(new) != {**before, key: {**servers, name: entry}}:
            raise InvalidConfig("it does not take another table", source=os.fspath(path), hint=by_hand)
    except (tomllib.TOMLDecodeError, AttributeError) as fault:
        raise InvalidConfig(f"it cannot be understood: {fault}", source=os.fspath(path), hint=by_hand) from None
    return new


def _refuse_other(path: Path, name: str, servers: dict[str, Any], by_hand: str) -> None:
    if name in servers:
        raise AlreadyExists(
            f"there is another server {name!r}", path=os.fspath(path), hint=f"give --name another one, or {by_hand}"
        )


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("the same key twice")
    return made


def _indent(text: str) -> int | str:
    """As the file has it."""
    found = re.search(r"\n([ \t]+)\S", text)
    return 2 if found is None else found[1] if found[1].startswith("\t") else len(found[1])


def _toml(value: object) -> str:
    """Texts and lists of JSON are such of TOML, too, but for a character that TOML wants written out."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _keep(target: Path) -> Path:
    """A copy of the file beside it, under a name that is free."""
    for number in range(1000):
        backup = target.with_name(f"{target.name}{_BACKUP}{f'-{number}' if number else ''}")
        try:
            made = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with open(made, "wb") as file:
            file.write(target.read_bytes())
        return backup
    raise AlreadyExists("there are a thousand backups", path=os.fspath(target), hint="remove some")


def _replace(target: Path, text: str, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.chmod(name, mode)
        if target.exists() and os.geteuid() == 0:
            found = target.stat()
            os.chown(name, found.st_uid, found.st_gid)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
