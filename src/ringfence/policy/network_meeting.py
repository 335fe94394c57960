"""What two rules about the network allow together: a host, port, method and path that both of them mean.

Layers only tighten, so that what two lists allow is what a rule of each allows. Where it cannot be told whether two
patterns have a host in common (`*.example.com` and `api.*`), they are taken to have none: less is reached, not more.
"""

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from typing import Final

from ringfence.dataclass import replace
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule, normal_host
from ringfence.policy.network_reading import address_network
from ringfence.values.network import WEB_PORTS, Asking, Budget, Inspection, NetworkRule

_ANYTHING: Final = "~"
"""Stands for what a wildcard stands for; no host and no pattern holds it."""
_INSPECTION: Final = (Inspection.NEVER, Inspection.WHERE_NEEDED, Inspection.ALWAYS)
_ASKING: Final = (Asking.NEVER, Asking.CHANGES, Asking.EACH)
_NOWHERE: Final = Mark("", 1)


def host_covers(wide: str, narrow: str) -> bool:
    """Whether every host that the narrow pattern means, the wide one means too; no, if that is not sure."""
    if wide == narrow:
        return True
    outer, inner = _parsed(wide), _parsed(narrow)
    outer_network, inner_network = address_network(outer), address_network(inner)
    if outer_network is not None and inner_network is not None:
        return outer_network.version == inner_network.version and inner_network.subnet_of(outer_network)  # type: ignore[arg-type]  # same version
    if outer_network is not None or inner_network is not None or inner.addresses or outer.addresses:
        return False
    labels = [(_ANYTHING, f"{_ANYTHING}.{_ANYTHING}") if label == "*" else _spread(label) for label in _labels(narrow)]
    pattern = re.compile(outer.pattern)
    return all(pattern.fullmatch(".".join(name)) for name in product(*labels[:8])) and len(labels) <= 8


@lru_cache(maxsize=512)
def _parsed(pattern: str) -> HostRule:
    return HostRule.parse(pattern, _NOWHERE)


def _labels(pattern: str) -> list[str]:
    return normal_host(pattern).split(".") if "*" not in pattern else pattern.lower().rstrip(".").split(".")


def _spread(label: str) -> tuple[str, ...]:
    """A label with a wildcard in it, with something in its place and with nothing."""
    return (label.replace("*", _ANYTHING), label.replace("*", "")) if "*" in label else (label,)


def path_covers(wide: str, narrow: str) -> bool:
    """The same for globs of paths, where `*` stops at a slash and `**` does not."""
    if wide == narrow:
        return True
    pattern = "".join(
        {"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*)", wide) if part
    )
    parts = [part for part in re.split(r"(\*\*|\*)", narrow) if part]
    choices = [("", "~", "~/~") if part == "**" else ("", "~") if part == "*" else (part,) for part in parts]
    return len(parts) <= 12 and all(re.fullmatch(pattern, "".join(text)) for text in product(*choices))


def meet(earlier: NetworkRule, later: NetworkRule) -> NetworkRule | None:
    """What both rules allow; None if that is nothing."""
    if host_covers(earlier.host, later.host):
        host = later.host
    elif host_covers(later.host, earlier.host):
        host = earlier.host
    else:
        return None
    if earlier.ssh_user != later.ssh_user:
        return None
    ports = _common(earlier.ports or WEB_PORTS, later.ports or WEB_PORTS)
    methods = _either(earlier.methods, later.methods)
    paths = _paths(earlier.paths, later.paths)
    if not ports or methods is None or paths is None:
        return None
    return replace(
        later,
        host=host,
        ports=() if ports == WEB_PORTS else ports,
        methods=methods,
        paths=paths,
        raw=earlier.raw and later.raw,
        inspection=max(earlier.inspection, later.inspection, key=_INSPECTION.index),
        asking=max(earlier.asking, later.asking, key=_ASKING.index),
        private=narrowed_networks(earlier.private, later.private) if later.private else earlier.private,
        budget=least(earlier.budget, later.budget),
    )


def meet_lists(earlier: Iterable[NetworkRule], later: Iterable[NetworkRule]) -> tuple[NetworkRule, ...]:
    """What both lists allow, in the order of the later one."""
    before = tuple(earlier)
    found = (meet(one, other) for other in later for one in before)
    return tuple(dict.fromkeys(rule for rule in found if rule is not None))


def narrowed_networks(earlier: Iterable[str], later: Iterable[str]) -> tuple[str, ...]:
    """The addresses that both lists of networks hold."""
    found: dict[str, None] = {}
    for one, other in product(map(ipaddress.ip_network, earlier), map(ipaddress.ip_network, later)):
        if one.version != other.version or not one.overlaps(other):
            continue
        found[str(max(one, other, key=lambda network: network.prefixlen))] = None
    return tuple(found)


def least(one: Budget, other: Budget) -> Budget:
    """Of two budgets the smaller, number by number."""
    return Budget(
        body_bytes=_less(one.body_bytes, other.body_bytes),
        requests_per_minute=_less(one.requests_per_minute, other.requests_per_minute),
        connections=_less(one.connections, other.connections),
        total_bytes_out=_less(one.total_bytes_out, other.total_bytes_out),
    )


def _less(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _common(earlier: tuple[int, ...], later: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(port for port in later if port in earlier)


def _either(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...] | None:
    """Methods that are in both lists, where an empty one is every method; None if there are none."""
    if not earlier or not later:
        return later or earlier
    return tuple(method for method in later if method in earlier) or None


def _paths(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...] | None:
    if not earlier or not later:
        return later or earlier
    inner = [path for path in later if any(path_covers(wide, path) for wide in earlier)]
    inner += [path for path in earlier if any(path_covers(wide, path) for wide in later)]
    return tuple(dict.fromkeys(inner)) or None
