"""The values that a policy file becomes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ringfence.dataclass import dataclass, field
from ringfence.policy.document import Mark
from ringfence.policy.schema import BY_NAME, Key, Tighter, Type

SHORT_FORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_execution_time": "limits.wall",
        "max_memory": "limits.memory",
        "network.allowlist.domains": "allowed_domains",
        "network.allowlist.ips": "allowed_domains",
        "network.allow": "allowed_domains",
        "network.denylist.domains": "denied_domains",
        "network.denylist.ips": "denied_domains",
    }
)
"""Keys that say the same as another: as written, and under which name the setting is kept."""

ROLE_TOOLS: Final = Key(
    "tools", Type.TOOLS, Tighter.EVERY_LIST, "The only tools that the role may use.", "a role is what it may do"
)
"""Kept among a role's settings, so that roles of several files agree on a tool as they do on a command."""


BUILT_IN: Final = Mark("built-in", 1)
"""Where a setting stands that no file gives."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was written. Lists that all have to allow are tuples of lists, one for each layer."""

    key: Key
    value: Any
    mark: Mark
    written: str
    """The key as its writer spelled it."""

    @property
    def place(self) -> str:
        return f"{self.written} at {self.mark}"


Block = Mapping[str, Setting]
EMPTY: Final[Block] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Name:
    """A role or tool as it is named somewhere."""

    text: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    mark: Mark
    inherits: tuple[Name, ...] = ()
    block: Block = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One file."""

    source: str
    default: Block = field(default_factory=dict)
    tools: Mapping[str, Block] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    may_widen: frozenset[str] = frozenset()


def canonical(name: str) -> str:
    """The name under which a setting is kept."""
    return SHORT_FORMS.get(name, name)


def key_of(name: str) -> Key:
    return ROLE_TOOLS if name == ROLE_TOOLS.name else BY_NAME[name]
