"""The port of a holder: something that bounds and measures one box's process tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    from ringfence.values.limits import Limit


@dataclass(frozen=True, slots=True)
class UsageReading:
    """What the tree has used since the box was made."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    """Now."""


class ResourceController(Protocol):
    """Bounds one box. Made before it starts, closed after it has ended."""

    @property
    def name(self) -> str:
        """For people: by what memory and processes are held."""

    @property
    def enforces(self) -> frozenset[Limit]:
        """Limits that the kernel holds by itself; the others have to be watched."""

    @property
    def joins(self) -> tuple[str, ...]:
        """Files that the box's first process writes itself into."""

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Directories that the launcher removes when the box has ended, even if we are gone by then."""

    def read(self, first_pid: int) -> UsageReading:
        """Measure the tree below `first_pid`, PID 1 of the box as our pid namespace names it. Never raises."""

    def memory_kills(self) -> int:
        """How often the kernel killed a process of the tree for memory, since the box was made."""

    def peak_memory_bytes(self) -> int:
        """The most that the tree has used, as far as it was seen."""

    def start_command(self) -> None:
        """A new command begins: forget the peak, where the kernel lets us."""

    def close(self) -> None: ...
