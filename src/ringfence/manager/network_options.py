"""`Network`: what a caller lets a box reach, as one value that is checked where it is made.

Sandbox(network=["pip", "api.example.com:443"])
Sandbox(network=Network(allow=["github-read"], secrets=["GH_TOKEN=env:GH_TOKEN@api.github.com"], publish=[8000]))
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ringfence.dataclass import dataclass, field, replace
from ringfence.errors import InvalidArgument, InvalidConfig, WrongType
from ringfence.policy.document import Listing, Mark, Node, Scalar, Section
from ringfence.policy.hosts import HostRule
from ringfence.policy.network import NetworkRequest
from ringfence.policy.network_clients import Clients
from ringfence.policy.network_reading import allow_rules, published_port
from ringfence.policy.preset_expanding import find_preset

_CALLER: Final = Mark("", 1)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(=|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a box may reach. Under a policy it can only be less than the policy allows.

    Raises:
        InvalidArgument, WrongType: a value makes no sense.
    """

    allow: Sequence[str | Mapping[str, object]] | None = None
    """Hosts (`api.example.com`, `db.example.com:5432`), presets (`pip`), or rules as `network.allow` of a policy has
    them (docs/egress.md). None is what the policy allows."""
    deny: Sequence[str] = ()
    """Hosts that are refused whatever is allowed."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """`NAME=SOURCE@HOST`, with `env:`, `file:`, `fd:`, `command:` or `keyring:` as source; without a host, for those
    that the policy gives it (docs/egress.md)."""
    publish: Sequence[int | str] = ()
    """Ports of servers in the box: `8000`, or `"8000:18000"` for 127.0.0.1:18000 outside."""
    reach: Sequence[int] = ()
    """Ports of the host's own loopback that the box reaches at 127.0.0.1."""
    ask: bool = False
    """Whether a person is asked about a host that nothing allows, instead of refusing it."""
    inspect: bool = False
    """Whether every connection is looked into, or refused."""
    learn: bool = False
    """Whether everything that nothing denies is let through and recorded: for `ringfence net learn`."""
    written: str = "network"
    """What messages call it: `--allow` on the command line."""

    def __post_init__(self) -> None:
        for name in ("allow", "deny", "secrets", "publish", "reach"):
            value = getattr(self, name)
            if value is None and name == "allow":
                continue
            if isinstance(value, str | bytes) or not isinstance(value, Sequence):
                raise WrongType(f"network.{name}", value, "a list", hint=f"write {name}=[...]")
            object.__setattr__(self, name, tuple(value))
        ports: Sequence[object] = self.reach
        for port in ports:
            if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
                raise InvalidArgument(f"reach: {port!r} is not a port", hint="write a number from 1 to 65535")
        texts: Sequence[object] = self.secrets
        for text in texts:
            if not isinstance(text, str) or not _NAME.match(text):
                # Not shown: what was typed may be the secret itself.
                raise InvalidArgument("a secret without a name", argument="secrets", hint="write NAME=SOURCE@HOST")
        network_request(self, Clients())

    @property
    def presets(self) -> tuple[str, ...]:
        """The names of those that it allows."""
        found = (find_preset(item) for item in self.allow or () if isinstance(item, str))
        return tuple(dict.fromkeys(preset.name for preset, _ in filter(None, found)))


def network_request(network: Network, clients: Clients) -> NetworkRequest:
    """What a caller asks for, read: with presets as the person's own clients are configured.

    Raises:
        InvalidArgument, WrongType: something of it makes no sense.
    """
    try:
        return NetworkRequest(
            rules=None if network.allow is None else tuple(_rules(network.allow, network.written, clients)),
            denied=tuple(HostRule.parse(_text("deny", text), _CALLER) for text in network.deny),
            publish=tuple(published_port(_node(port)) for port in network.publish),
            reach=tuple(dict.fromkeys(network.reach)),
            ask_unlisted=network.ask,
            inspect_all=network.inspect,
            learn=network.learn,
            written=network.written,
        )
    except InvalidConfig as fault:
        said = fault.faults[0] if fault.faults else fault
        raise InvalidArgument(f"{network.written}: {_bare(said)}", argument="network", hint=said.hint) from None


def _rules(allow: Sequence[object], written: str, clients: Clients) -> list[HostRule]:
    rules: list[HostRule] = []
    for item in allow:
        if not isinstance(item, str | Mapping):
            raise WrongType("network.allow", item, "a host, a preset, or a rule")
        rules += allow_rules(_node(item), written, clients)
    return rules


def made_network(given: object) -> Network | None:
    """What a caller means by `network=`: a list of hosts and presets, or a `Network`; None for one that is off.

    Raises:
        InvalidArgument, WrongType: nothing.
    """
    if isinstance(given, Network):
        return given
    if isinstance(given, Mapping) or not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise WrongType("network", given, '"off", a list such as ["pip", "api.example.com:443"], or Network(...)')
    return Network(allow=tuple(given))


def joined(one: Network, other: Network) -> Network:
    """Both together: for options that come from two places of one caller."""
    return replace(
        one,
        allow=None if one.allow is None and other.allow is None else (*(one.allow or ()), *(other.allow or ())),
        deny=(*one.deny, *other.deny),
        secrets=(*one.secrets, *other.secrets),
        publish=(*one.publish, *other.publish),
        reach=(*one.reach, *other.reach),
        ask=one.ask or other.ask,
        inspect=one.inspect or other.inspect,
        learn=one.learn or other.learn,
    )


def _node(value: object) -> Node:
    """A value of Python as a policy file would hold it."""
    if isinstance(value, Mapping):
        return Section(tuple((Scalar(str(key), _CALLER), _node(inner)) for key, inner in value.items()), _CALLER)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Listing(tuple(map(_node, value)), _CALLER)
    if isinstance(value, bool):
        return Scalar(str(value).lower(), _CALLER)
    return Scalar("" if value is None else str(value), _CALLER)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongType(f"network.{name}", value, "a text")
    return value


def _bare(fault: InvalidConfig) -> str:
    """Its message without the place, which a caller's value has not."""
    return re.sub(r"^:1(:\d+)?: ", "", fault.message)
