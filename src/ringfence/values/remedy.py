"""What would allow something that was refused, in the words of the door that one came through.

A rule refuses the same whoever asks; what can be done about it differs. At the command line one adds an option, in the
library a keyword, where a policy is in force a row of it. An agent can do none of that: it is told what to do instead,
and what it has to ask the operator for.
"""

import shlex
from enum import StrEnum
from typing import Final

from ringfence.dataclass import dataclass


class Door(StrEnum):
    """Through which of our faces somebody asked."""

    LIBRARY = "library"
    COMMAND_LINE = "command_line"
    POLICY = "policy"
    """The command line, with a policy in force: it has the last word about what is granted."""
    AGENT = "agent"
    """Whoever reads a command's output and can neither grant nor configure anything."""


class Access(StrEnum):
    """What is to be done with a path."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Need:
    """A grant that is missing: the one path, and no more than is needed of it."""

    access: Access
    path: str
    """For writing a directory, which is all that can be granted for that."""

    def said(self, door: Door) -> str:
        """How it is granted there; for an agent, what to do without it."""
        match door:
            case Door.LIBRARY:
                return f"{self.access}=[{self.path!r}]"
            case Door.COMMAND_LINE:
                return f"--{self.access} {shlex.quote(self.path)}"
            case Door.POLICY:
                return f"add {self.path} to filesystem.{self.access} of the policy"
            case Door.AGENT if self.access is Access.WRITE:
                return f"write below the workspace, in $HOME or in /tmp; only the operator can grant {self.path}"
            case Door.AGENT:
                return f"use what is in the workspace; only the operator can grant {self.path}"


ALLOW_OPTION: Final = "--allow "
"""How what would allow a host is written at the command line."""


def allowing(host: str, door: Door) -> str:
    """How a host is allowed; for an agent, whom to ask for which."""
    match door:
        case Door.LIBRARY:
            return f"network=[{host!r}]"
        case Door.COMMAND_LINE:
            return f"{ALLOW_OPTION}{shlex.quote(host)}"
        case Door.POLICY:
            return f"add {host} to network.allow of the policy"
        case Door.AGENT:
            return f"do without it, or ask the operator to allow {host}"


_LIMITS: Final = {
    "wall": ("--timeout TIME", "timeout="),
    "cpu": ("--cpu-time TIME", "limits=Limits(cpu_seconds=...)"),
    "memory": ("--memory SIZE", "limits=Limits(memory_bytes=...)"),
    "processes": ("--processes N", "limits=Limits(processes=...)"),
    "output": ("--output SIZE", "limits=Limits(output_bytes=...)"),
    "open files": ("limits.openFiles in the configuration file", "limits=Limits(open_files=...)"),
    "file size": ("limits.fileSize in the configuration file", "limits=Limits(file_bytes=...)"),
    "disk": ("limits.disk in the configuration file", "limits=Limits(disk_bytes=...)"),
    "files": ("limits.files in the configuration file", "limits=Limits(files=...)"),
}
"""By the name of a limit: where it is raised at the command line, and in the library."""


def raising(limit: str, door: Door) -> str:
    """How a limit is raised; for an agent, what to do within it."""
    typed, keyword = _LIMITS.get(limit, (f"raise the {limit} limit",) * 2)
    match door:
        case Door.LIBRARY:
            return keyword
        case Door.COMMAND_LINE:
            return typed
        case Door.POLICY:
            return f"{typed}, as far as limits.{limit.replace(' ', '_')} of the policy allows"
        case Door.AGENT:
            return "use less of it, or take smaller steps; only the operator can raise it"
