"""Which environment variables are ours, by which other names they are accepted, and how a flag is read."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ringfence.errors import InvalidConfig

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "RINGFENCE_SANDBOX_CONFIG": "SYNAPSE_SANDBOX_CONFIG",
        "RINGFENCE_SANDBOX_ENABLED": "SYNAPSE_SANDBOX_ENABLED",
        "RINGFENCE_PROCESS_SANDBOX": "OPENAGENTIC_PROCESS_SANDBOX",
        "RINGFENCE_PROCESS_SANDBOX_REQUIRED": "OPENAGENTIC_PROCESS_SANDBOX_REQUIRED",
        "RINGFENCE_BWRAP_PATH": "OPENAGENTIC_BWRAP_PATH",
        "RINGFENCE_BWRAP_NETWORK": "OPENAGENTIC_BWRAP_NETWORK",
        "RINGFENCE_BWRAP_RO_BINDS": "OPENAGENTIC_BWRAP_RO_BINDS",
        "RINGFENCE_TOOL_ENGINE": "OPENAGENTIC_TOOL_ENGINE",
        "RINGFENCE_SANDBOX_INTEGRATION": "OPENAGENTIC_SANDBOX_INTEGRATION",
        "RINGFENCE_POOL_SIZE": "SANDBOX_POOL_SIZE",
        "RINGFENCE_MAX_MEMORY": "SANDBOX_MAX_MEMORY",
        "RINGFENCE_MAX_CPU": "SANDBOX_MAX_CPU",
        "RINGFENCE_NETWORK": "SANDBOX_NETWORK",
    }
)
"""Our name, then the name that the design documents use. Ours wins when both are set."""

_FLAGS: Final[Mapping[str, bool]] = MappingProxyType(
    {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
)


class Variable(NamedTuple):
    """A variable that is set: the name under which it was found, for messages, and its value."""

    name: str
    value: str


def lookup(environ: Mapping[str, str], name: str) -> Variable | None:
    """The value of one of our variables, or of its alias if it has one; an empty one counts as not set."""
    for candidate in (name, ALIASES.get(name, name)):
        value = environ.get(candidate, "").strip()
        if value:
            return Variable(candidate, value)
    return None


def flag(variable: Variable, extra: Mapping[str, bool] = MappingProxyType({})) -> bool:
    """Read yes or no; `extra` adds words of this one variable.

    Raises:
        InvalidConfig: the value is neither; a typing mistake never switches anything on or off.
    """
    words = {**_FLAGS, **extra}
    try:
        return words[variable.value.lower()]
    except KeyError:
        raise InvalidConfig(
            f"{variable.name} is {variable.value!r}, which is neither yes nor no", hint=f"use one of {', '.join(words)}"
        ) from None
