"""What is asked of a sandbox, as a server takes it.

The options are made, and so checked, as everywhere (`manager/options.py`); what cannot leave this process is an error
here, and what this caller may not ask for is one of the server's.
"""

from __future__ import annotations

import os
from typing import Any, Final

from ringfence.dataclass import field_names
from ringfence.errors import InvalidArgument, NotFound, PermissionDenied
from ringfence.manager.network_options import Network
from ringfence.manager.options import Docker, NetworkMode, SandboxOptions
from ringfence.values.carried import carried

_STAYS: Final = {
    "observers": "whoever watches a server uses its /metrics and its record",
    "confirmation": "the server asks whoever may answer there",
    "shadow": "shadows of a server are made and looked at there",
    "shadow_bytes": "shadows of a server are made and looked at there",
    "agent_id": "the server's record names the token that asks",
    "org_id": "the server's record names the tenant",
}
"""Options that are objects of this process, or not a caller's to say, and what is there instead."""
_OF_HOST: Final = ("read", "write", "config", "python", "engine", "requires", "tool", "mediate_opens")
"""What only the owner of a server may choose: it is about the server's machine."""
_NETWORK: Final = ("allow", "deny", "publish", "ask", "inspect")
_USUAL: Final = SandboxOptions()


def session_body(options: SandboxOptions, *, once: bool = False) -> dict[str, Any]:
    """What a session with these options is made from; what was not asked for is left out.

    Raises:
        InvalidArgument: something of it cannot leave this process.
        NotFound, PermissionDenied: the policy's file cannot be read.
    """
    asked = {name: getattr(options, name) for name in field_names(SandboxOptions)}
    asked = {name: value for name, value in asked.items() if value != getattr(_USUAL, name)}
    for name, instead in _STAYS.items():
        if name in asked:
            raise InvalidArgument(f"{name} cannot be given to a server", argument=name, hint=instead)
    body: dict[str, Any] = {"once": True} if once else {}
    host: dict[str, Any] = {}
    for name, value in asked.items():
        if name == "network":
            body |= _network(value)
        else:
            (host if name in _OF_HOST else body)[name] = _plain(name, value)
    return body | {"host": host} if host else body


def _plain(name: str, value: Any) -> Any:
    if name in ("workspace", "config", "python"):
        return os.path.abspath(value)  # the server has another current directory
    if name in ("read", "write"):
        return [os.path.abspath(path) for path in value]
    if name == "policy":
        return _policy(value)
    if name == "env":
        return dict(value)
    if name == "engine":
        return {"docker": carried(value)} if isinstance(value, Docker) else value
    return carried(value)


def _policy(given: Any) -> str:
    """The text of a policy file, which tightens the server's."""
    if not isinstance(given, str | os.PathLike):
        raise InvalidArgument("a PolicyEngine cannot be given to a server", argument="policy", hint="give the file")
    path = os.fspath(given)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound("there is no such policy", path=path) from None
    except (OSError, UnicodeDecodeError) as fault:
        raise PermissionDenied(f"the policy cannot be read: {fault}", path=path) from None


def _network(given: NetworkMode | Network) -> dict[str, Any]:
    if isinstance(given, NetworkMode):
        return {"network": given.value}
    if given.reach or given.learn:
        raise InvalidArgument(
            "reach and learn are about the machine that boxes are on", argument="network", hint="leave them out"
        )
    if any("=" in secret for secret in given.secrets):
        raise InvalidArgument(
            "a server has its own secrets", argument="network", hint="name them: secrets=[NAME]; the operator has them"
        )
    spec = {name: carried(getattr(given, name)) for name in _NETWORK if getattr(given, name) not in (None, (), False)}
    return {"network": spec} | ({"secrets": list(given.secrets)} if given.secrets else {})
