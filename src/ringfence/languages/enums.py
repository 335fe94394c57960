"""Enums of TypeScript, written out as JavaScript on the lines where they stand.

    enum Size { Small, Large = "l" }
    var Size; (function (Size) { Size[Size["Small"] = 0] = "Small"; Size["Large"] = "l" })(Size || (Size = {}));

The initializers stay in their place, so that they run in order and a traceback points at them. A constant enum is
written as a plain one: nothing is inlined.
"""

import re
from typing import Final

from tree_sitter import Node

from ringfence.dataclass import dataclass
from ringfence.languages.edits import Edits

_INTEGER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})")


@dataclass(frozen=True, slots=True)
class RefusedEnum:
    """A place that cannot be written out."""

    node: Node
    message: str
    hint: str


def write_enum(edits: Edits, node: Node, declare: str, members: dict[str, bool]) -> RefusedEnum | None:
    """Write out one enum.

    Args:
        edits: where to write.
        node: the enum.
        declare: the word that declares its name; empty if an earlier part did.
        members: the names of the members so far, with whether they are text. Those of this part are added.
    """
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is None or body is None:
        return RefusedEnum(node, "an enum without a name or a body", "complete it")
    enum = edits.text(name.start_byte, name.end_byte)
    head = f"{declare} {enum}; (function ({enum})" if declare else f";(function ({enum})"
    edits.replace(node.start_byte, name.end_byte, head)
    before: str | None = None  # the member before
    counted: int | None = -1  # its value, where that is known
    for child in body.children:
        if child.type == ",":
            edits.replace(child.start_byte, child.end_byte, ";")
        if not child.is_named or child.is_extra:
            continue
        label = child.child_by_field_name("name") if child.type == "enum_assignment" else child
        value = child.child_by_field_name("value")
        key = None if label is None else _key(edits, label)
        if label is None or key is None:
            return RefusedEnum(child, "the name of an enum member cannot be computed", "write its name as text")
        if value is None:
            if before is not None and members[before]:
                return RefusedEnum(child, "an enum member after one that is text needs a value", "give it a value")
            counted = None if counted is None else counted + 1
            number = f"{enum}[{before}] + 1" if counted is None else str(counted)
            edits.replace(label.start_byte, label.end_byte, f"{enum}[{enum}[{key}] = {number}] = {key}")
            members[key] = False
        else:
            text = edits.text(value.start_byte, value.end_byte)
            counted = int(text) if _INTEGER.fullmatch(text) else None
            members[key] = _is_text(edits, value, enum, members)
            if members[key]:
                edits.replace(label.start_byte, label.end_byte, f"{enum}[{key}]")
            else:
                edits.replace(label.start_byte, label.end_byte, f"{enum}[{enum}[{key}]")
                edits.close(value.end_byte, f"] = {key}")
            _qualify(edits, value, enum, members)
        before = key
    edits.replace(body.end_byte - 1, body.end_byte, f"}})({enum} || ({enum} = {{}}));")
    return None


def _key(edits: Edits, label: Node) -> str | None:
    """The name of a member as text in double quotes."""
    if label.type == "computed_property_name":
        label = label.named_children[0]
        if label.type != "string":
            return None
    text = edits.text(label.start_byte, label.end_byte)
    if label.type != "string":
        return f'"{text}"'
    return text if '"' in text[1:-1] else f'"{text[1:-1]}"'


def _is_text(edits: Edits, value: Node, enum: str, members: dict[str, bool]) -> bool:
    """Whether an initializer gives text: then no member is found by its value."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        match node.type:
            case "string" | "template_string":
                return True
            case "parenthesized_expression" | "as_expression" | "satisfies_expression":
                waiting.append(node.named_children[0])
            case "binary_expression":
                operator = node.child_by_field_name("operator")
                if operator is not None and operator.type == "+":
                    waiting.extend(node.named_children)
            case "identifier":
                if members.get(f'"{edits.text(node.start_byte, node.end_byte)}"', False):
                    return True
            case "member_expression":
                owner, of = edits.text(node.start_byte, node.end_byte).rpartition(".")[::2]
                if owner.strip() == enum and members.get(f'"{of.strip()}"', False):
                    return True
            case _:
                pass
    return False


def _qualify(edits: Edits, value: Node, enum: str, members: dict[str, bool]) -> None:
    """Inside an enum a member is known by its bare name."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if node.type in ("as_expression", "satisfies_expression"):
            waiting.append(node.children[0])
        elif node.type not in ("type_annotation", "type_arguments", "type_parameters"):
            waiting.extend(node.children)
        if node.type == "identifier" and f'"{edits.text(node.start_byte, node.end_byte)}"' in members:
            edits.open(node.start_byte, f"{enum}.")
