"""How much a command may use: the limits, their names and their defaults."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self

from ringfence.errors import InvalidConfig
from ringfence.values.sizes import show_size

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit has a default; none can be switched off, only raised."""

    wall_seconds: float = 120.0
    """Wall-clock time of one command: long enough for a test suite, short enough that a hang is noticed."""
    cpu_seconds: float = 300.0
    """CPU time of the whole tree of one command; above wall time because the tree may use several cores."""
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
        for field in fields(self):
            value = getattr(self, field.name)
            whole = not field.name.endswith("_seconds")
            # A comparison that does not hold also refuses NaN; infinity would switch a limit off.
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not 0 < value <= _MOST
            ):
                number = "whole number" if whole else "number"
                raise InvalidConfig(
                    f"limit {field.name} is {value!r}; it must be a {number} above zero, and one that the kernel takes",
                    hint="leave a limit out to get its default; no limit can be switched off",
                )

    def changed(self, **changes: float | None) -> Self:
        """A copy with the given limits set; None leaves a limit as it is."""
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)
