"""Whether the operating system confines here, by what, and in which mode."""

import platform
from enum import StrEnum

from ringfence.confinement.choose import confiners
from ringfence.dataclass import dataclass
from ringfence.errors import InitializationFailed


class OsSandboxMode(StrEnum):
    """How much of the wall is used. Ours is whole in every mode: the names are understood, and none weakens it."""

    Disabled = "disabled"
    Permissive = "permissive"
    Normal = "normal"
    Strict = "strict"

    DISABLED = Disabled
    PERMISSIVE = Permissive
    NORMAL = Normal
    STRICT = Strict


@dataclass(frozen=True, slots=True)
class OsSandboxConfig:
    """Which mode is asked for."""

    mode: OsSandboxMode = OsSandboxMode.Strict


def is_os_sandbox_available() -> bool:
    """Whether a wall can be built here: found out by trying, not by whether a file exists."""
    return _first() is not None


def os_sandbox_name() -> str:
    """The wall that would be used, and the platform; `none` where there is none."""
    name = _first()
    return f"{name} ({platform.system()})" if name is not None else "none"


def _first() -> str | None:
    try:
        return next((confiner.name for confiner in confiners() if confiner.probe().usable), None)
    except InitializationFailed:
        return None
