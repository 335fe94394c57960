"""Reads one value of a policy by the type that the schema gives its key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.policy.document import Listing, Mark, Node, Scalar, Section, kind_of
from ringfence.policy.examples import check_examples
from ringfence.policy.expanding import expand
from ringfence.policy.hosts import HostRule
from ringfence.policy.model import Name
from ringfence.policy.network_clients import Clients
from ringfence.policy.network_reading import allow_rules, published_port, read_networks
from ringfence.policy.rules import CommandRule, PathRule
from ringfence.policy.schema import RULE_KEYS, Key, Tighter, Type
from ringfence.policy.secret_reading import read_secret
from ringfence.values.sizes import parse_duration, parse_size

if TYPE_CHECKING:
    from ringfence.policy.faults import Faults

Rule = CommandRule | PathRule | HostRule

_LARGEST: Final = 2**60  # as in `policy.config`: beyond what the kernel's fields for limits hold
_FLAGS: Final = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_RULE_EXTRAS: Final = ("why", "matches", "spares")


@dataclass(frozen=True, slots=True)
class ExpansionContext:
    """What `~` and variables in paths stand for, and what presets of hosts start from."""

    home: str = "/home/agent"
    environ: Mapping[str, str] = field(default_factory=dict)
    clients: Callable[[], Clients] = Clients
    """What the person's own clients are configured for; asked only where a preset is named."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory or file that a policy grants."""

    path: str
    mark: Mark
    written: str


def read_value(key: Key, node: Node, around: ExpansionContext, faults: Faults) -> Any:
    """The value of a setting, of the Python type that its kind of key has.

    Args:
        faults: takes what is wrong with single items of a list.

    Raises:
        InvalidConfig: the node is of another type, or the value makes no sense.
    """
    match key.type:
        case Type.FLAG:
            scalar = _scalar(key, node)
            if not scalar.plain or scalar.text.lower() not in _FLAGS:
                raise _wrong(key, node)
            return _FLAGS[scalar.text.lower()]
        case Type.SIZE | Type.DURATION | Type.CORES | Type.COUNT:
            return _quantity(key, _scalar(key, node))
        case Type.CHOICE:
            return _choice(key, node)
        case Type.CHOICES:
            return faults.each(lambda item: _choice(key, item), _items(key, node))
        case Type.PORTS:
            return faults.each(lambda item: _port(key, item), _items(key, node))
        case Type.TOOLS:
            return texts(node, key.name, key.wanted, faults)
        case Type.DIRECTORIES:
            names = texts(node, key.name, key.wanted, faults)
            return faults.each(lambda name: _directory(name, around), names)
        case Type.COMMANDS | Type.PATHS | Type.HOSTS:
            return faults.each(lambda item: _rule(key, item, around, faults), _items(key, node))
        case Type.REACHABLE:
            clients = around.clients() if _names_a_preset(_items(key, node)) else Clients()
            found = faults.each(lambda item: allow_rules(item, key.name, clients), _items(key, node))
            return tuple(rule for rules in found for rule in rules)
        case Type.NETWORKS:
            return faults.each(lambda item: next(iter(read_networks((item,)))), _items(key, node))
        case Type.PUBLISHED:
            return faults.each(published_port, _items(key, node))
        case Type.SECRETS:
            if not isinstance(node, Section):
                raise _wrong(key, node)
            return faults.each(lambda entry: read_secret(*entry), node.entries)
        case _:
            assert_never(key.type)


def _names_a_preset(items: tuple[Node, ...]) -> bool:
    return any(isinstance(item, Scalar) and "." not in item.text for item in items)


def texts(node: Node, name: str, wanted: str, faults: Faults) -> tuple[Name, ...]:
    """The items of a list of plain texts.

    Raises:
        InvalidConfig: it is no list.
    """
    if not isinstance(node, Listing):
        raise node.mark.fault(f"{name} has to be {wanted}, not {kind_of(node)}", "write it as [one, two]")

    def read(item: Node) -> Name:
        if not isinstance(item, Scalar) or item.is_nothing or not item.text.strip():
            raise item.mark.fault(f"an item of {name} is {kind_of(item)}", "write a name")
        return Name(item.text, item.mark)

    return faults.each(read, node.items)


def _wrong(key: Key, node: Node, hint: str = "") -> InvalidConfig:
    return node.mark.fault(
        f"{key.name} has to be {key.wanted}, not {kind_of(node)}", hint or f"such as {key.name}: {key.example}"
    )


def _scalar(key: Key, node: Node) -> Scalar:
    if not isinstance(node, Scalar) or node.is_nothing:
        raise _wrong(key, node)
    return node


def _items(key: Key, node: Node) -> tuple[Node, ...]:
    if not isinstance(node, Listing):
        hint = f"write {key.name}: [] to allow nothing" if isinstance(node, Scalar) and node.is_nothing else ""
        raise _wrong(key, node, hint if key.tighter is Tighter.EVERY_LIST else "")
    return node.items


def _quantity(key: Key, scalar: Scalar) -> float:
    number: float
    try:
        if key.type is Type.SIZE:
            number = parse_size(scalar.text)
        elif key.type is Type.DURATION:
            number = parse_duration(scalar.text)
        elif _NUMBER.fullmatch(scalar.text) and scalar.plain:
            number = float(scalar.text)
        else:
            raise _wrong(key, scalar)
    except OverflowError:
        number = _LARGEST * 2
    except InvalidArgument as fault:
        raise scalar.mark.fault(f"{key.name}: {fault.message}", fault.hint) from None
    if not 0 < number <= _LARGEST:
        raise scalar.mark.fault(
            f"{key.name} is {scalar.text}, which no limit can be", "leave it out to get the default; none can be off"
        )
    if key.type is Type.COUNT:
        if number != int(number):
            raise _wrong(key, scalar)
        return int(number)
    return number


def _choice(key: Key, node: Node) -> str:
    text = node.text if isinstance(node, Scalar) else ""
    if text in key.choices:
        return text
    near = difflib.get_close_matches(text, key.choices, n=1)
    hint = f"did you mean {str(near[0])!r}?" if near else ""
    raise _wrong(key, node, hint)


def _port(key: Key, node: Node) -> int:
    text = node.text if isinstance(node, Scalar) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65536:
        raise node.mark.fault(f"{key.name}: {kind_of(node)} is not a port", "write a number from 1 to 65535")
    return int(text)


def _directory(name: Name, around: ExpansionContext) -> Directory:
    path = _expanded(name.text, name.mark, around, glob=False)
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise name.mark.fault(f"{name.text!r} is not an absolute path without `..`", "write it from / or ~")
    return Directory("/" + path.strip("/"), name.mark, name.text)


def _expanded(text: str, mark: Mark, around: ExpansionContext, *, glob: bool) -> str:
    try:
        return expand(text, around.environ, around.home, glob=glob)
    except InvalidConfig as fault:
        raise mark.fault(fault.message, fault.hint) from None


def _rule(key: Key, node: Node, around: ExpansionContext, faults: Faults) -> Rule:
    name = RULE_KEYS[key.type]
    if isinstance(node, Section):
        members = {entry.text: (entry, value) for entry, value in node.entries}
        valid = (name, *_RULE_EXTRAS)
        unknown = [entry for entry, _ in members.values() if entry.text not in valid]
        for entry in unknown:
            faults.add(entry.mark.fault(f"unknown key {entry.text!r} in a rule", f"valid here: {', '.join(valid)}"))
        if name not in members:
            lacks = f"a rule of {key.name} without `{name}`"
            raise faults.last if unknown else node.mark.fault(lacks, f"write `- {name}: ...`")
        why = members["why"][1] if "why" in members else None
        if why is not None and not isinstance(why, Scalar):
            raise why.mark.fault(f"`why` has to be text, not {kind_of(why)}")
        rule = _plain_rule(key, members[name][1], around, why.text if why else "")
        check_examples(
            rule,
            allowing=key.tighter is Tighter.EVERY_LIST,
            matches=_examples(members, "matches", faults),
            spares=_examples(members, "spares", faults),
            faults=faults,
        )
        return rule
    return _plain_rule(key, node, around, "")


def _examples(members: Mapping[str, tuple[Scalar, Node]], name: str, faults: Faults) -> tuple[Name, ...]:
    return texts(members[name][1], name, "a list of examples", faults) if name in members else ()


def _plain_rule(key: Key, node: Node, around: ExpansionContext, why: str) -> Rule:
    if not isinstance(node, Scalar) or node.is_nothing or not node.text.strip():
        raise node.mark.fault(f"an item of {key.name} is {kind_of(node)}", f"such as {key.name}: {key.example}")
    allowing = key.tighter is Tighter.EVERY_LIST
    rule: Rule
    if key.type is Type.COMMANDS:
        rule = CommandRule.parse(node.text, node.mark, why)
    elif key.type is Type.HOSTS:
        rule = HostRule.parse(node.text, node.mark, why)
    else:
        return PathRule.parse(node.text, _expanded(node.text, node.mark, around, glob=True), node.mark, why)
    if allowing and rule.matches_everything:
        raise node.mark.fault(
            f"{node.text!r} in {key.name} allows everything",
            f"name what is allowed, or leave {key.name} out if everything is",
        )
    return rule
