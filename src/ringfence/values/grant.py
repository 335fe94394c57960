"""What a box may see, touch and use: the one thing that enforcement obeys."""

from enum import StrEnum
from pathlib import Path

from ringfence.dataclass import dataclass, field
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.network import NetworkGrant


class Trace(StrEnum):
    """How much of what a command does is looked at while it does it, so that a refusal has its exact reason."""

    OFF = "off"
    CHANGES = "changes"
    """Opens for writing, programs, connections, what changes names and modes; and reads that are refused where looking
    costs next to nothing: those of programs such as `cat` and `cp`."""
    READS = "reads"
    """Every read that is refused, too, but for what is found by walking through directories."""
    FULL = "full"
    """Every open, also for the record."""


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
    """The directory that the command works in; writable, unless it is said otherwise."""
    read_only: bool = False
    """Whether the workspace can only be read; it is one of `readable` then."""
    shadow: Shadowing | None = None
    """What the workspace's changes go into, instead of the workspace."""
    writable: tuple[Path, ...] = ()
    """Further directories that may be read and written."""
    readable: tuple[Path, ...] = ()
    """Further files and directories that may be read."""
    placed: tuple[tuple[str, Path], ...] = ()
    """(name inside, file or directory of the host): what an engine itself shows, read-only and under a name of its own,
    where its wall builds a view; elsewhere it keeps its own name."""
    denied: tuple[str, ...] = ()
    """Absolute paths, or globs such as `**/.env`, hidden even inside what is granted."""
    protected: tuple[str, ...] = ()
    """Paths relative to a writable directory that stay readable but cannot be written or made."""
    kept: tuple[str, ...] = ()
    """Absolute paths below a writable directory that Ringfence itself reads: the same holds for them."""
    mediate_opens: bool = False
    """Whether what is denied is also held at the moment of opening, by name and by file, not by covers alone."""
    read_outside: bool = False
    """Whether the rest of the host is readable."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the box."""
    python: str | None = None
    """The interpreter that runs Python code; the first on PATH if not given."""
    preload: tuple[str, ...] = ()
    """Modules that it imports before it is asked for anything."""
    trace: Trace = Trace.CHANGES
    limits: Limits = field(default_factory=Limits)
    wall_capped_by: str = ""
    """What says that no call may take longer than `limits.wall_seconds`; empty if a caller's timeout may raise that."""
    cores: float | None = None
    """How many cores may be busy at once, where the policy says so. Containers hold it; elsewhere the CPU time does."""
    places: tuple[tuple[str, str], ...] = ()
    """(a rule as violations name it, the file and line that says so)"""
    network: NetworkGrant | None = None
    """What may be reached, through the proxy outside; None is no network at all."""
    requires: frozenset[Guarantee] = frozenset()
    """What the wall has to guarantee; a wall that lacks one of them is not used."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The workspace and what else may be written."""
        return (self.workspace, *self.writable)

    @property
    def writable_roots(self) -> tuple[Path, ...]:
        return self.writable if self.read_only else self.roots

    def protected_in(self, root: Path) -> tuple[str, ...]:
        """What is protected below one of them, relative to it; a slash before a name says: there, and no deeper."""
        top = f"{root}/"
        own = (path.removeprefix(str(root)) for path in self.kept if path.startswith(top))
        return (*self.protected, *own)

    @property
    def grown_roots(self) -> tuple[Path, ...]:
        """Where on the host that what is written lies."""
        return (self.shadow.upper, *self.writable) if self.shadow else self.writable_roots
