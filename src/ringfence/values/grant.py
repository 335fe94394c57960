"""What a box may see, touch and use: the one thing that enforcement obeys."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits


class Explain(StrEnum):
    """How much of what a command does is looked at while it does it, so that a refusal has its exact reason."""

    OFF = "off"
    CHANGES = "changes"
    """Opens for writing, programs, connections, and what changes names and modes."""
    FULL = "full"
    """Every open too."""


@dataclass(frozen=True, slots=True)
class Shadowing:
    """What stands in for the workspace: what is changed lies there, and the host's files stay as they are."""

    directory: Path
    """Holds `upper`, `work` and `lock`, as `workspace.shadow` lays them out."""
    is_copy: bool
    """Whether `upper` is all of it, instead of what differs."""
    memory_bytes: int = 0
    """If not 0, changes are kept in memory of this size while a box stands, and written to `upper` afterwards."""

    @property
    def upper(self) -> Path:
        return self.directory / "upper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Paths are absolute and resolved. Denied beats writable beats readable."""

    workspace: Path
    """The directory that the command works in; always writable."""
    shadow: Shadowing | None = None
    """What the workspace's changes go into, instead of the workspace."""
    writable: tuple[Path, ...] = ()
    """Further directories that may be read and written."""
    readable: tuple[Path, ...] = ()
    """Further files and directories that may be read."""
    denied: tuple[str, ...] = ()
    """Absolute paths, or globs such as `**/.env`, hidden even inside what is granted."""
    protected: tuple[str, ...] = ()
    """Paths relative to a writable directory that stay readable but cannot be written or made."""
    strict: bool = False
    """Whether what is denied is also held at the moment of opening, by name and by file, not by covers alone."""
    read_outside: bool = False
    """Whether the rest of the host is readable."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the box."""
    python: str | None = None
    """The interpreter that runs Python code; the first on PATH if not given."""
    preload: tuple[str, ...] = ()
    """Modules that it imports before it is asked for anything."""
    explain: Explain = Explain.CHANGES
    limits: Limits = field(default_factory=Limits)
    cores: float | None = None
    """How many cores may be busy at once, where the policy says so. Containers hold it; elsewhere the CPU time does."""
    places: tuple[tuple[str, str], ...] = ()
    """(a rule as violations name it, the file and line that says so)"""
    requires: frozenset[Guarantee] = frozenset()
    """What the wall has to guarantee; a wall that lacks one of them is not used."""

    @property
    def writable_roots(self) -> tuple[Path, ...]:
        return (self.workspace, *self.writable)

    @property
    def grown_roots(self) -> tuple[Path, ...]:
        """Where on the host that what is written lies."""
        return (self.shadow.upper if self.shadow else self.workspace, *self.writable)
