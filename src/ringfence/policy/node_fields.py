"""Reads the fields of a section in a policy: one function for each kind of value, each with the place in its errors."""

import difflib
from collections.abc import Mapping
from typing import Final

from ringfence.policy.document import Listing, Node, Scalar, Section, kind_of

_FLAGS: Final = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}


def word_of(members: Mapping[str, Node], name: str, valid: tuple[str, ...], otherwise: str) -> str:
    if name not in members:
        return otherwise
    text = text_of(members[name], name).lower()
    if text not in valid:
        raise members[name].mark.fault(f"{name} is {text!r}", f"one of {', '.join(valid)}")
    return text


def members_of(node: Section, valid: tuple[str, ...], what: str) -> dict[str, Node]:
    for key, _ in node.entries:
        if key.text not in valid:
            near = difflib.get_close_matches(key.text, valid, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(valid)}"
            raise key.mark.fault(f"unknown key {key.text!r} in {what}", hint)
    return {key.text: value for key, value in node.entries}


def items_of(members: Mapping[str, Node], name: str) -> tuple[Node, ...]:
    """Of a list, or the one value that stands in its place."""
    node = members.get(name)
    if node is None:
        return ()
    if isinstance(node, Listing):
        if not node.items:
            raise node.mark.fault(f"`{name}` is empty", f"leave {name} out, or the rule")
        return node.items
    return (node,)


def text_of(node: Node, name: str) -> str:
    if not isinstance(node, Scalar) or node.is_nothing or not node.text.strip():
        raise node.mark.fault(f"`{name}` is {kind_of(node)}", "write a text")
    return node.text.strip()


def flag_of(members: Mapping[str, Node], name: str) -> bool:
    if name not in members:
        return False
    text = text_of(members[name], name).lower()
    if text not in _FLAGS:
        raise members[name].mark.fault(f"`{name}` is {text!r}", "write true or false")
    return _FLAGS[text]


def port_text(text: str) -> str:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65536:
        raise ValueError(text)
    return text


def port_of(node: Node) -> int:
    text = text_of(node, "ports")
    try:
        return int(port_text(text))
    except ValueError:
        raise node.mark.fault(f"{text!r} is not a port", "write a number from 1 to 65535") from None
