"""How much a command may use: the limits, their names and their defaults."""

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self

from ringfence.dataclass import dataclass, field_names, replace
from ringfence.errors import InvalidArgument
from ringfence.values.sizes import Duration, Size, bytes_of, seconds_of, show_size

_MIB = 1024 * 1024
_MOST = 2**62  # control groups and resource limits take signed 64-bit numbers; this leaves room to count on


class Limit(StrEnum):
    """Names of the limits, as they appear in results and settings."""

    WALL = "wall"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    OPEN_FILES = "open files"
    FILE_SIZE = "file size"
    OUTPUT = "output"
    DISK = "disk"
    FILES = "files"


_IN_BYTES = frozenset({Limit.MEMORY, Limit.FILE_SIZE, Limit.OUTPUT, Limit.DISK})
_IN_SECONDS = frozenset({Limit.WALL, Limit.CPU})


def show_limit(limit: Limit, value: float) -> str:
    """A limit's value as a person would write it."""
    if limit in _IN_BYTES:
        return show_size(value)
    return f"{value:g} s" if limit in _IN_SECONDS else f"{value:g}"


class FollowsWall(float):
    """A CPU time that nobody has given: so many times the wall-clock time, also when that is changed."""

    times: float

    def __new__(cls, value: float, times: float) -> "FollowsWall":
        made = super().__new__(cls, value)
        made.times = times
        return made


class NobodySaid(float):
    """A wall-clock time that nobody has given: a caller's timeout may raise it."""


_CPU_PER_WALL = 2.5  # above one because the tree may use several cores; less than all of a large machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit has a default; none can be switched off, only raised.

    Sizes may be texts such as `512MB`, times texts such as `30s` or a timedelta; a type checker takes these from
    `Limits().changed(memory_bytes="512MB")`.
    """

    wall_seconds: float = NobodySaid(120.0)
    """Wall-clock time of one command: long enough for a test suite, short enough that a hang is noticed."""
    cpu_seconds: float = FollowsWall(_CPU_PER_WALL * 120.0, _CPU_PER_WALL)
    """CPU time of the whole tree of one command; unless it is given, two and a half times the wall-clock time."""
    memory_bytes: int = 2048 * _MIB
    """Memory of the whole tree: a compiler or a data frame fits, a leak does not take the host along."""
    processes: int = 512
    """Processes and threads of the whole tree: `make -j` and node's threads fit, a fork bomb does not."""
    open_files: int = 4096
    """Descriptors per process."""
    file_bytes: int = 1024 * _MIB
    """Size of one file."""
    output_bytes: int = 16 * _MIB
    """Bytes kept of stdout, and as many of stderr."""
    tmp_bytes: int = 512 * _MIB
    """Size of each private tmpfs (/tmp, the home directory, /dev/shm)."""
    disk_bytes: int = 4096 * _MIB
    """How much the writable directories of the host may grow during a command."""
    files: int = 500_000
    """How many new files the writable directories of the host may gain during a command."""

    def __post_init__(self) -> None:
        for name, read in _READ_FROM_TEXT:
            given: object = getattr(self, name)
            if isinstance(given, _TEXTS):
                object.__setattr__(self, name, read(name, given))
        if isinstance(self.cpu_seconds, FollowsWall) and isinstance(self.wall_seconds, (int, float)):
            times = self.cpu_seconds.times
            object.__setattr__(self, "cpu_seconds", FollowsWall(min(times * self.wall_seconds, _MOST), times))
        for name, kinds in _KINDS:
            value = getattr(self, name)
            # A comparison that does not hold also refuses NaN; infinity would switch a limit off.
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value <= _MOST:
                number = "number" if float in kinds else "whole number"
                raise InvalidArgument(
                    f"limit {name} is {value!r}; it must be a {number} above zero, and one that the kernel takes",
                    hint="leave a limit out to get its default; no limit can be switched off",
                )

    @property
    def may_rise(self) -> bool:
        """Whether a caller's timeout may raise the wall-clock time."""
        return isinstance(self.wall_seconds, NobodySaid)

    def raised_to(self, wall_seconds: float) -> Self:
        """With at least this wall-clock time, and the CPU time that follows from it, where nobody has said how much."""
        if not self.may_rise or wall_seconds <= self.wall_seconds:
            return self
        return replace(self, wall_seconds=NobodySaid(wall_seconds))

    def on_cores(self, cores: float) -> Self:
        """With no more CPU time than so many cores have in the wall-clock time."""
        cpu = cores * self.wall_seconds
        if self.cpu_seconds <= cpu:
            return self
        return replace(self, cpu_seconds=FollowsWall(cpu, cores) if isinstance(self.cpu_seconds, FollowsWall) else cpu)

    def changed(self, **changes: Duration | Size | None) -> Self:
        """A copy with the given limits set; None leaves a limit as it is."""
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)


_TEXTS = (str, timedelta)
_NAMES = field_names(Limits)
_KINDS = tuple((name, (int, float) if name.endswith("_seconds") else (int,)) for name in _NAMES)
_READ_FROM_TEXT: tuple[tuple[str, Callable[[str, object], float]], ...] = tuple(
    (name, seconds_of if name.endswith("_seconds") else bytes_of)
    for name in _NAMES
    if name.endswith(("_seconds", "_bytes"))
)
