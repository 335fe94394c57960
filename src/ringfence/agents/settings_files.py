"""Changes a settings file of another program: shows the change first, and makes it so that nothing in it is lost.

The whole file is read and understood before. A file with comments, or with the same key twice, cannot be written back
as it was; then the change is only shown, as what to add by hand. The old file is kept beside the new one, which takes
its place at once.
"""

import difflib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.errors import AlreadyExists, InvalidArgument, InvalidConfig, PermissionDenied

_BACKUP: Final = ".before-ringfence"
_MOST_BYTES: Final = 16 * 1024 * 1024


class Scope(StrEnum):
    """For which projects a client is told."""

    PROJECT = "project"
    USER = "user"


Files = Mapping[Scope, Callable[[Path, Path], Path]]
"""The file for each scope, from the project's and the person's directory."""


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


def file_of(files: Files, scope: Scope | None, title: str, project: Path, home: Path) -> Path:
    """
    Raises:
        InvalidArgument: the client has no file of this scope.
    """
    chosen = scope or next(iter(files))
    if chosen not in files:
        raise InvalidArgument(f"{title} has no file for the scope {chosen}", hint=f"use --scope {' or '.join(files)}")
    return files[chosen](project, home)


def write_change(change: Change) -> Path | None:
    """Make the change; where the old file is kept, if there was one.

    Raises:
        PermissionDenied: it cannot be written, or has become different since it was read.
    """
    target = Path(os.path.realpath(change.path))  # a link stays one
    try:
        if read_settings(change.path) != change.old:
            raise PermissionDenied("it was changed meanwhile", path=os.fspath(change.path), hint="try again")
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = _keep(target) if change.old is not None else None
        _replace(target, change.new, mode=target.stat().st_mode & 0o777 if kept is not None else 0o600)
    except OSError as fault:
        if isinstance(fault, PermissionDenied):
            raise
        raise PermissionDenied(f"it cannot be written: {fault.strerror}", path=os.fspath(change.path)) from fault
    return kept


def read_settings(path: Path) -> str | None:
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


def parse_object(path: Path, old: str, by_hand: str) -> dict[str, Any]:
    """A JSON object, which can be written back without losing anything.

    Raises:
        InvalidConfig: it is none; says what to add by hand.
    """
    try:
        settings = json.loads(old, object_pairs_hook=_unique) if old.strip() else {}
    except ValueError as fault:
        why = f"it is no plain JSON, and would lose something if it were written anew: {fault}"
        raise InvalidConfig(why, source=os.fspath(path), hint=by_hand) from None
    if not isinstance(settings, dict):
        raise InvalidConfig("it is no object", source=os.fspath(path), hint=by_hand)
    return settings


def as_text(settings: dict[str, Any], old: str) -> str:
    """As the file has it."""
    return json.dumps(settings, indent=_indent(old), ensure_ascii=False) + "\n"


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("the same key twice")
    return made


def _indent(text: str) -> int | str:
    """As the file has it."""
    found = re.search(r"\n([ \t]+)\S", text)
    return 2 if found is None else found[1] if found[1].startswith("\t") else len(found[1])


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
