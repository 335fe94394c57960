"""Tells a client of the server: works out the change to its file (`agents/settings_files.py` makes it)."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from ringfence.agents.settings_files import Change, Scope, as_text, file_of, parse_object, read_settings
from ringfence.errors import AlreadyExists, InvalidArgument, InvalidConfig
from ringfence.mcp.clients import Client, Command

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
    path = file_of(client.files, scope, client.title, project, home)
    old = read_settings(path)
    entry = client.entry(command)
    if client.is_toml:
        return Change(path, old, _with_table(path, old or "", client.key, name, entry))
    return Change(path, old, _with_member(path, old or "", client.key, name, entry))


def _with_member(path: Path, old: str, key: str, name: str, entry: dict[str, Any]) -> str:
    by_hand = f"add this by hand: {json.dumps({key: {name: entry}})}"
    settings = parse_object(path, old, by_hand)
    servers = settings.get(key, {})
    if not isinstance(servers, dict):
        raise InvalidConfig(f"{key} in it is no object", source=os.fspath(path), hint=by_hand)
    if servers.get(name) == entry:
        return old
    _refuse_other(path, name, servers, by_hand)
    settings[key] = {**servers, name: entry}
    return as_text(settings, old)


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


def _toml(value: object) -> str:
    """Texts and lists of JSON are such of TOML, too, but for a character that TOML wants written out."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
