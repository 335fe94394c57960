"""The port of a process-sandbox adapter: a command line in, the same command line behind a wall out.

    wrap(command, arguments, mounts) -> (command, arguments)

It is for whoever starts a program himself and wants a wall around that one start: a runner of WebAssembly, a build
step. The walls of `Confiner` (`base.py`) are stronger: they hold limits, cover protected paths, explain what they
refuse, and never run as root. An adapter only has a command line to work with, and says in its probe
what that is worth.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument

if TYPE_CHECKING:
    from ringfence.confinement.base import Probe

WORKSPACE = "/workspace"
"""Where the shadow workspace is shown, by every adapter that can show a directory at another place."""
RUNNER = "/__runner__"
"""The same for the directory of the program that is started."""

CommandLine = tuple[str, tuple[str, ...]]
"""A program and its arguments."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host, and where the command finds it.

    Raises:
        InvalidArgument: a path is not absolute, or goes up.
    """

    source: str
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        for path in (self.source, self.target):
            if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
                raise InvalidArgument(f"{path!r} cannot be mounted", argument="mounts", hint="give an absolute path")


class ProcessAdapter(Protocol):
    """Puts a wall around one command line."""

    @property
    def name(self) -> str: ...

    def probe(self) -> Probe:
        """What it guarantees on this machine, or why it cannot be used; never raises."""

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        """The command line that runs this one behind the wall, seeing the mounts and the system's programs.

        Paths of the host in the command line become those that the command sees.

        Raises:
            InvalidArgument: this adapter cannot show a mount where it is wanted.
            InitializationFailed: it cannot be used on this machine.
        """


def rewritten(words: Iterable[str], mounts: Iterable[Mount]) -> tuple[str, ...]:
    """The words with paths of the host replaced by those inside.

    A path is a word of its own, or follows `=` (as in `--dir=/host`), or stands before `::` (as in wasmtime's
    `--dir /host::/guest`).
    """
    longest_first = sorted(mounts, key=lambda mount: len(mount.source), reverse=True)
    return tuple(_rewritten(word, longest_first) for word in words)


def _rewritten(word: str, mounts: Sequence[Mount]) -> str:
    head, equals, tail = word.partition("=")
    if equals and head.startswith("-"):
        return f"{head}={_rewritten(tail, mounts)}"
    path, separator, rest = word.partition("::")
    for mount in mounts:
        source = mount.source.rstrip("/")
        if path == source or path.startswith(source + "/"):
            return mount.target.rstrip("/") + path[len(source) :] + separator + rest
    return word


def in_place(mounts: Iterable[Mount], adapter: str) -> tuple[Mount, ...]:
    """The mounts, for an adapter that shows everything where it is.

    Raises:
        InvalidArgument: one is wanted elsewhere.
    """
    found = tuple(mounts)
    for mount in found:
        if mount.source.rstrip("/") != mount.target.rstrip("/"):
            raise InvalidArgument(
                f"{adapter} cannot show {mount.source} at {mount.target}",
                argument="mounts",
                hint="give the same path as source and target, or use bwrap, nsjail or unshare",
            )
    return found


def without_marks(mounts: Iterable[Mount], marks: str, adapter: str) -> tuple[Mount, ...]:
    """The mounts, for a program that takes some characters of a path for something else.

    Raises:
        InvalidArgument: one has such a character, and would be another place, or more than one.
    """
    found = tuple(mounts)
    for mount in found:
        for path in (mount.source, mount.target):
            if set(path) & set(marks):
                raise InvalidArgument(
                    f"{adapter} cannot be told of {path!r}: it has a meaning of its own for {' '.join(marks)}",
                    argument="mounts",
                    hint="rename it, or use bwrap or unshare",
                )
    return found


def working_directory(mounts: Iterable[Mount]) -> str:
    """Where the command starts: the first mount that it may write to, else the first, else the root."""
    places = sorted(mounts, key=lambda mount: not mount.writable)
    return next((mount.target for mount in places), "/")


def wrapping_audit(adapter: str, wrapped: CommandLine, mounts: Iterable[Mount]) -> dict[str, Any]:
    """One entry of `sandboxAudits`: which adapter, and the wrapped command line with the host's paths hidden."""
    names = {mount.source.rstrip("/"): f"<host:{mount.target}>" for mount in mounts}
    command, arguments = wrapped
    words = [_hidden(word, names) for word in (command, *arguments)]
    return {"wrapper": adapter, "command": words[0], "arguments": words[1:]}


def _hidden(word: str, names: dict[str, str]) -> str:
    for source, name in sorted(names.items(), key=lambda pair: -len(pair[0])):
        word = word.replace(source, name)
    home = os.path.expanduser("~")
    return word.replace(home, "~") if len(home) > 1 else word
