"""Reads what a policy or a caller writes about the network: rules that allow hosts, ports, networks, secrets.

A rule is a host (`api.example.com`, `db.example.com:5432`), a preset (`pip`, `github-push ORG/REPO`), or a section that
says more. Whatever it is written as, it becomes `HostRule`s that hold a `NetworkRule`, of which the judge of command
lines reads the host, and the proxy all of it.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import replace
from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.policy.document import Mark, Node, Scalar, Section, kind_of
from ringfence.policy.hosts import HostRule
from ringfence.policy.network_presets import BY_PRESET
from ringfence.policy.node_fields import flag_of, items_of, members_of, port_of, port_text, text_of
from ringfence.policy.preset_expanding import expand_preset, find_preset
from ringfence.policy.reach_rules import fault_of
from ringfence.values.network import GIT_PUSH, GIT_READ, SSH_PORT, Asking, Budget, Inspection, NetworkRule
from ringfence.values.sizes import parse_size

if TYPE_CHECKING:
    from ringfence.policy.network_clients import Clients

RULE_KEYS: Final = (
    "host",
    "ports",
    "methods",
    "paths",
    "raw",
    "ssh",
    "user",
    "inspect",
    "opaque",
    "ask",
    "private",
    "budget",
    "why",
)
"""What a rule of `network.allow` may say."""
BUDGET_KEYS: Final = ("body", "requests_per_minute", "connections", "total_out")

_ASKING: Final = {**{word: Asking.EACH for word in ("true", "yes", "each")}, "changes": Asking.CHANGES}
_GIT_USER: Final = "git"
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_METHOD: Final = re.compile(r"[A-Z]{1,20}(-[A-Z]+)*")


def allow_rules(node: Node, written: str, clients: Clients) -> tuple[HostRule, ...]:
    """What one item of a list such as `network.allow` means.

    Raises:
        InvalidConfig: nothing; names the place.
    """
    if isinstance(node, Section):
        return (_section_rule(node, written),)
    if not isinstance(node, Scalar) or node.is_nothing or not node.text.strip():
        raise node.mark.fault(f"an item of {written} is {kind_of(node)}", "write a host, a preset, or a rule")
    return text_rules(node.text, node.mark, written, clients)


def text_rules(text: str, mark: Mark, written: str, clients: Clients) -> tuple[HostRule, ...]:
    """The same of one that is written as a text.

    Raises:
        InvalidConfig: it is neither a host nor a preset.
    """
    try:
        found = find_preset(text)
    except InvalidArgument as fault:
        raise mark.fault(fault.message, fault.hint) from None
    if found is None:
        return (_host_rule(text, mark, written),)
    preset, argument = found
    if preset.client == "git" and mark.source:
        raise mark.fault(
            "the preset git follows the workspace's own remotes, which is nothing for a policy",
            "write github-read or the host; --allow git is for the command line",
        )
    place = str(mark) if mark.source else ""
    said = f"{written} {text.strip()}"
    return tuple(
        replace(
            HostRule.parse(rule.host, mark),
            allow=replace(rule, written=said, place=place, private=_named_privately(HostRule.parse(rule.host, mark))),
            preset=preset.name,
        )
        for rule in expand_preset(preset, argument, clients).rules
    )


def _host_rule(text: str, mark: Mark, written: str) -> HostRule:
    try:
        rule = HostRule.parse(text, mark)
    except InvalidConfig as fault:
        raise _instead(text, mark, fault) from None
    _refuse_everything(rule, text, written)
    _refuse_fault(plain_rule(rule), mark)
    if "." not in rule.bare and rule.network is None and rule.port is None and rule.bare != "localhost":
        near = difflib.get_close_matches(rule.bare, BY_PRESET, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}? " if near else "`ringfence net presets` lists the presets. "
        host = f"A host of your own network whose name has no dot is written with its port, such as {rule.bare}:443"
        raise mark.fault(f"{text!r} is neither a preset nor a host", meant + host)
    return replace(rule, allow=plain_rule(rule, written))


def _instead(text: str, mark: Mark, fault: InvalidConfig) -> InvalidConfig:
    near = difflib.get_close_matches(text.strip().lower().partition(" ")[0], BY_PRESET, n=1, cutoff=0.75)
    return mark.fault(fault.message, f"did you mean the preset {near[0]!r}?") if near else fault


def _refuse_everything(rule: HostRule, text: str, written: str) -> None:
    if rule.matches_everything or rule.bare in ("*", "0.0.0.0/0", "::/0"):
        raise rule.mark.fault(
            f"{text!r} in {written} allows every host", "name the hosts, or a preset; `ringfence net learn` finds them"
        )


def _refuse_fault(rule: NetworkRule, mark: Mark) -> None:
    """What the judge would not hold is refused where it is written."""
    if fault := fault_of(rule):
        raise mark.fault(fault, "write a host such as api.example.com:443, and paths from /")


def plain_rule(rule: HostRule, written: str = "") -> NetworkRule:
    """What a row of `allowed_domains` means to the proxy: a name alone is written for the web."""
    return NetworkRule(
        host=rule.bare.strip("[]"),
        ports=() if rule.port is None else (rule.port,),
        private=_named_privately(rule),
        written=f"{written} {rule.written}".strip(),
        place=str(rule.mark) if rule.mark.source else "",
    )


def _named_privately(rule: HostRule) -> tuple[str, ...]:
    """Addresses that are not global, where the rule names them itself."""
    network = address_network(rule)
    return (str(network),) if network is not None and not network.is_global else ()


def address_network(rule: HostRule) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The network that a rule on addresses means; `10.*` is 10.0.0.0/8."""
    if rule.network is not None:
        return rule.network
    parts = rule.bare.split(".")
    if not rule.addresses or len(parts) > 4:
        return None
    heads = [part for part in parts if part != "*"]
    if parts[: len(heads)] != heads or len(heads) == len(parts) or not heads or any(int(head) > 255 for head in heads):
        return None
    return ipaddress.IPv4Network((".".join((*heads, *("0",) * (4 - len(heads)))), 8 * len(heads)))


def _section_rule(node: Section, written: str) -> HostRule:
    members = members_of(node, RULE_KEYS, "a rule")
    if "host" not in members:
        raise node.mark.fault(f"a rule of {written} without `host`", "write `- host: api.example.com`")
    host = text_of(members["host"], "host")
    if find_preset_name(host):
        raise members["host"].mark.fault(
            f"{host!r} is a preset, and its rules are its own", f"write `- {host}`, or rules for its hosts"
        )
    rule = HostRule.parse(host, members["host"].mark)
    _refuse_everything(rule, host, written)
    ports = tuple(port_of(item) for item in items_of(members, "ports"))
    if ports and rule.port is not None:
        raise members["ports"].mark.fault("the port is given twice", "write it in `ports`, or after the host")
    allow = replace(
        plain_rule(rule, written),
        ports=ports or plain_rule(rule).ports,
        methods=tuple(_method(item) for item in items_of(members, "methods")),
        paths=tuple(_path(item) for item in items_of(members, "paths")),
        raw=flag_of(members, "raw"),
        inspection=_inspection(members, node),
        asking=_asking(members),
        private=(*plain_rule(rule).private, *(str(_network(item)) for item in items_of(members, "private"))),
        budget=_budget(members["budget"]) if "budget" in members else Budget(),
    )
    allow = _by_ssh(allow, members, node.mark)
    _refuse_blind(allow, members, node.mark)
    _refuse_fault(allow, node.mark)
    why = text_of(members["why"], "why") if "why" in members else ""
    return replace(rule, allow=allow, why=why)


def _by_ssh(rule: NetworkRule, members: Mapping[str, Node], mark: Mark) -> NetworkRule:
    """The rule, for git by SSH if it says so: `ssh: read`, or `push`, which is both."""
    if "ssh" not in members:
        if "user" in members:
            raise members["user"].mark.fault("`user` without `ssh`", "write `ssh: read` or `ssh: push` beside it")
        return rule
    uses = {"read": GIT_READ, "push": (*GIT_READ, *GIT_PUSH)}
    use = text_of(members["ssh"], "ssh").lower()
    if use not in uses:
        raise members["ssh"].mark.fault(f"`ssh` is {use!r}", "write read, or push, which is both")
    user = text_of(members["user"], "user") if "user" in members else _GIT_USER
    if not _USER.fullmatch(user):
        raise members["user"].mark.fault(f"{user!r} is not the name of a user", "such as git")
    seen = [name for name in ("methods", "raw", "inspect", "opaque") if name in members]
    seen += ["budget.body"] if rule.budget.body_bytes is not None else []
    if seen:
        raise mark.fault(f"`ssh` and `{seen[0]}`: git by SSH has no such thing", "write two rules")
    paths = tuple(path.removesuffix(".git") for path in rule.paths)
    return replace(rule, ssh_user=user, methods=uses[use], paths=paths, ports=rule.ports or (SSH_PORT,))


def find_preset_name(text: str) -> bool:
    return text.strip().lower() in BY_PRESET


def _refuse_blind(rule: NetworkRule, members: Mapping[str, Node], mark: Mark) -> None:
    """What cannot be held without looking into the connection, on a rule that says not to."""
    seen = [name for name in ("methods", "paths") if name in members]
    seen += ["ask: changes"] if rule.asking is Asking.CHANGES else []
    seen += ["budget.body"] if rule.budget.body_bytes is not None else []
    if rule.inspection is Inspection.NEVER and seen:
        raise mark.fault(f"`opaque` and `{seen[0]}`: what is not looked into cannot be held to that", "keep one")
    if rule.raw and seen:
        raise mark.fault(f"`raw` and `{seen[0]}`: bytes that are no HTTP have none", "write two rules")


def _inspection(members: Mapping[str, Node], node: Section) -> Inspection:
    always, never = flag_of(members, "inspect"), flag_of(members, "opaque")
    if always and never:
        raise node.mark.fault("`inspect` and `opaque`", "keep one of the two")
    return Inspection.ALWAYS if always else Inspection.NEVER if never else Inspection.WHERE_NEEDED


def _asking(members: Mapping[str, Node]) -> Asking:
    if "ask" not in members:
        return Asking.NEVER
    text = text_of(members["ask"], "ask").lower()
    if text in ("false", "no", "never"):
        return Asking.NEVER
    if text not in _ASKING:
        raise members["ask"].mark.fault(f"`ask` is {text!r}", "write true, each, changes or never")
    return _ASKING[text]


def _budget(node: Node) -> Budget:
    if not isinstance(node, Section):
        raise node.mark.fault(f"`budget` has to be a section, not {kind_of(node)}", "such as budget: {total_out: 10MB}")
    members = members_of(node, BUDGET_KEYS, "a budget")
    return Budget(
        body_bytes=_size(members, "body"),
        requests_per_minute=_count(members, "requests_per_minute"),
        connections=_count(members, "connections"),
        total_bytes_out=_size(members, "total_out"),
    )


def _size(members: Mapping[str, Node], name: str) -> int | None:
    if name not in members:
        return None
    try:
        return parse_size(text_of(members[name], name))
    except (InvalidArgument, OverflowError) as fault:
        raise members[name].mark.fault(f"{name}: {getattr(fault, 'message', fault)}", "such as 10MB") from None


def _count(members: Mapping[str, Node], name: str) -> int | None:
    if name not in members:
        return None
    text = text_of(members[name], name)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise members[name].mark.fault(f"{name} is {text!r}", "write a whole number above zero")
    return int(text)


def read_networks(items: Iterable[Node]) -> Iterator[str]:
    """Networks of addresses, each in its one spelling.

    Raises:
        InvalidConfig: one of them is none, or is every address.
    """
    return (str(_network(item)) for item in items)


def _network(node: Node) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    text = text_of(node, "private")
    try:
        network = ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        raise node.mark.fault(f"{text!r} is not a network of addresses", "such as 10.1.0.0/16") from None
    if network.prefixlen == 0:
        raise node.mark.fault(f"{text!r} is every address", "name the network that is meant, such as 10.1.0.0/16")
    return network


def published_port(node: Node) -> tuple[int, int]:
    """`8000`, or `8000:18000`: the port inside, and the one outside; 0 is any free one.

    Raises:
        InvalidConfig: it is none.
    """
    text = text_of(node, "publish")
    inside, colon, outside = text.partition(":")
    try:
        return int(port_text(inside)), int(port_text(outside)) if colon else 0
    except ValueError:
        raise node.mark.fault(f"{text!r} is not a port", "write 8000, or 8000:18000 for another one outside") from None


def _method(node: Node) -> str:
    text = text_of(node, "methods").upper()
    if not _METHOD.fullmatch(text):
        raise node.mark.fault(f"{text!r} is not a method of HTTP", "such as GET or POST")
    return text


def _path(node: Node) -> str:
    text = text_of(node, "paths")
    if not text.startswith("/") or any(ord(letter) <= 32 or letter in "?#" for letter in text):
        raise node.mark.fault(f"{text!r} is not a path", "write it from /, without a query, such as /simple/**")
    return text
