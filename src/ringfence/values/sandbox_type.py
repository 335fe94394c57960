"""Which kind of engine ran something."""

from enum import StrEnum
from typing import Self


class SandboxType(StrEnum):
    """Which kind of engine ran it."""

    SUBPROCESS = "subprocess"
    """The lightest wall that is still one; only code that was found to be harmless, and only where that was asked
    for."""
    NATIVE = "native"
    DOCKER = "docker"
    WASI = "wasi"
    AIO = "aio"

    @classmethod
    def of(cls, wall: str) -> Self:
        """The kind that a wall of this name belongs to."""
        return next((kind for kind in (cls.DOCKER, cls.WASI) if wall.startswith(kind)), cls.NATIVE)
