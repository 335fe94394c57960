"""What a client asks for by SSH: one of git's own services, on one repository, and nothing else.

git asks a server to run a program: `git-upload-pack 'org/repo.git'`. What cannot be read as exactly that, by these
names and with a path of plain letters, is refused: it would be a command line for a shell on the other side. What goes
on is written anew from what was read.
"""

import re
import shlex
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.network import GIT_PUSH, GIT_READ

_SERVICES: Final = {method.lower(): method for method in (*GIT_READ, *GIT_PUSH)}
_PATH: Final = re.compile(r"~?[A-Za-z0-9._+@/-]{1,1000}")
_PROTOCOL: Final = re.compile(r"version=[0-9](:[a-z0-9=-]{1,40}){0,4}")


class BadCommand(ValueError):
    """It is none of git's; its message says what it is."""


@dataclass(frozen=True, slots=True)
class GitCommand:
    method: str
    """Of `GIT_READ` or `GIT_PUSH`."""
    repository: str
    """As it was written."""

    @property
    def path(self) -> str:
        """The repository as rules have it: from `/`, without `.git`."""
        return "/" + self.repository.removeprefix("/").removesuffix("/").removesuffix(".git")

    @property
    def line(self) -> str:
        """What the server is asked to run."""
        return f"{self.method.lower()} '{self.repository}'"


def read_command(text: str) -> GitCommand:
    """
    Raises:
        BadCommand: it is not one of git's services on one repository.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if words[:1] == ["git"]:
        words = [f"git-{words[1]}", *words[2:]] if len(words) > 1 else []
    if len(words) != 2 or words[0] not in _SERVICES:
        raise BadCommand("only git's own services pass by SSH (git-upload-pack, git-upload-archive, git-receive-pack)")
    repository = words[1]
    segments = repository.removeprefix("/").removesuffix("/").split("/")
    if not _PATH.fullmatch(repository) or any(segment in ("", ".", "..") for segment in segments):
        raise BadCommand("the repository's path can be read in two ways: plain letters, no '.' or '..', no empty part")
    return GitCommand(_SERVICES[words[0]], repository)


def is_protocol(value: str) -> bool:
    """Whether a value of `GIT_PROTOCOL` may go on."""
    return _PROTOCOL.fullmatch(value) is not None
