"""On whose behalf something runs, and in which sandbox."""

from ringfence.dataclass import dataclass, field_names
from ringfence.errors import InvalidArgument

_NAME_MAX = 256
"""Characters of a name: it is kept in every record of the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """What the journal says about where a request came from. Names are the caller's own; nobody checks them.

    Raises:
        InvalidArgument: a name is longer than a record should hold.
    """

    session_id: str | None = None
    agent_id: str | None = None
    org_id: str | None = None
    sandbox_id: str | None = None
    tool: str = "shell_exec"

    def __post_init__(self) -> None:
        for name in field_names(Principal):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and len(value) <= _NAME_MAX):
                raise InvalidArgument(f"{name} is not text of at most {_NAME_MAX} characters", hint="use a short name")
