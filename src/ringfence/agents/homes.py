"""A copy of an agent's settings for inside the wall: the person's own are neither shown nor written.

Each project has a copy of its own for each agent, in a directory of Ringfence's. The agent may write there, so that its
sessions go on the next time; what the person has set is copied anew at every start, over whatever was left there. What
an agent plants in its copy (a hook, a tool server) is run at most by the same agent, on the same project, inside.

The directory was written by what is walled in: names in it are removed and made anew by descriptor and never followed.
Left out are credentials, members of JSON that hold a key, files that hold a key's value, and hooks of Ringfence itself.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ringfence.agents.known import KnownAgent, Settings
from ringfence.dataclass import dataclass
from ringfence.errors import Busy, PermissionDenied
from ringfence.manager.configuring import agents_directory

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_FILES: Final = 2000
_HELPERS: Final = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport")
"""Members of settings that name programs of the host which print keys."""


@dataclass(frozen=True, slots=True)
class AgentHome:
    """The copy."""

    directory: Path
    """What the agent's variable names."""
    writable: Path
    left_out: tuple[str, ...]
    """What was not copied, and why."""


@contextmanager
def agent_home(agent: KnownAgent, workspace: Path, environ: Mapping[str, str], home: str) -> Iterator[AgentHome | None]:
    """The copy for an agent on a workspace, refreshed, and ours alone meanwhile; None if it keeps no settings.

    Raises:
        Busy: the same agent runs on the same workspace already.
        PermissionDenied: the copy cannot be written.
    """
    settings = agent.settings
    if settings is None:
        yield None
        return
    digest = hashlib.sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:16]
    directory = agents_directory(environ, home) / agent.name / f"{workspace.name[:32]}-{digest}"
    writable = directory / settings.inside if settings.inside else directory
    source = Path(environ.get(settings.moved_by) or os.path.join(home, settings.directory))
    if environ.get(settings.moved_by) and settings.inside:
        source = source / settings.inside
    secrets = tuple(value for name in agent.keys if len(value := environ.get(name, "")) >= 8)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(exist_ok=True, mode=0o700)
        with _locked(directory, agent.title, workspace):
            if settings.inside:
                _make_directory(directory, settings.inside)
            yield AgentHome(directory, writable, _refresh(settings, source, writable, secrets, frozenset(agent.keys)))
    except OSError as fault:
        if isinstance(fault, Busy | PermissionDenied):
            raise
        raise PermissionDenied(
            f"the copy of the settings of {agent.title} cannot be written: {fault.strerror}",
            path=os.fspath(directory),
            hint="make it writable, or set RINGFENCE_AGENTS_DIR to a directory that is",
        ) from fault


@contextmanager
def _locked(directory: Path, title: str, workspace: Path) -> Iterator[None]:
    """By a file beside it, which nobody inside can reach."""
    lock = os.open(directory.with_name(f"{directory.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"{title} runs on {workspace} already", hint="end it first, or use another checkout of the project"
            ) from None
        yield
    finally:
        os.close(lock)


def _make_directory(parent: Path, name: str) -> None:
    """Not writable from inside, but for what is below."""
    (parent / name).mkdir(exist_ok=True, mode=0o700)


def _refresh(
    settings: Settings, source: Path, target: Path, secrets: tuple[str, ...], keys: frozenset[str]
) -> tuple[str, ...]:
    into = os.open(target, _DIRECTORY)
    try:
        copier = _Copier(secrets, keys)
        for name in settings.copied:
            _remove(into, name)
            found = source / name
            if found.is_dir():
                copier.copy_directory(found, into, name)
            elif found.is_file():
                copier.copy_file(found, into, name)
        return tuple(copier.left_out)
    finally:
        os.close(into)


def _remove(parent: int, name: str) -> None:
    try:
        is_directory = stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if is_directory:
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


class _Copier:
    def __init__(self, secrets: tuple[str, ...], keys: frozenset[str]) -> None:
        self._secrets = tuple(map(os.fsencode, secrets))
        self._keys = keys
        self._count = 0
        self.left_out: list[str] = []

    def copy_directory(self, source: Path, parent: int, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=parent)
        into = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            for entry in sorted(os.scandir(source), key=lambda each: each.name):
                if entry.is_dir(follow_symlinks=False):
                    self.copy_directory(Path(entry.path), into, entry.name)
                elif entry.is_file():
                    self.copy_file(Path(entry.path), into, entry.name)
        finally:
            os.close(into)

    def copy_file(self, source: Path, parent: int, name: str) -> None:
        self._count += 1
        if source.stat().st_size > _MOST_BYTES or self._count > _MOST_FILES:
            self.left_out.append(f"{source}: too large, or too many files")
            return
        data = source.read_bytes()
        if source.suffix == ".json":
            data = _filtered(data, self._keys)
        if any(secret in data for secret in self._secrets):
            self.left_out.append(f"{source}: it holds a key")
            return
        descriptor = os.open(name, _NEW, 0o600 | (source.stat().st_mode & 0o100), dir_fd=parent)
        with open(descriptor, "wb") as file:
            file.write(data)


def _filtered(data: bytes, keys: frozenset[str]) -> bytes:
    """JSON without keys, and without our own hooks, which would build a wall inside the wall. What is no JSON is left
    to the agent."""
    try:
        return json.dumps(_without(json.loads(data), keys | set(_HELPERS)), indent=2).encode()
    except (ValueError, RecursionError):
        return data


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(inner, names) for name, inner in value.items() if name not in names}
    if isinstance(value, list):
        return [_without(inner, names) for inner in value if not _is_own_hook(inner)]
    return value


def _is_own_hook(value: Any) -> bool:
    command = value.get("command") if isinstance(value, dict) else None
    return isinstance(command, str) and "ringfence" in command and " hook " in f"{command} "
