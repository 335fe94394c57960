"""JavaScript and TypeScript, read by their tree-sitter grammars. Advice only.

Two passes, as for Python: which names stand for which modules, then every node. Scope and order are ignored, so that a
name that is a module anywhere is one everywhere.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import tree_sitter_javascript
import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

from ringfence.dataclass import dataclass
from ringfence.policy.risk import findings as limits
from ringfence.policy.risk.findings import Findings
from ringfence.policy.risk.patterns import javascript as rows
from ringfence.policy.risk.patterns.base import RiskRow, first_match

_DEEPEST_CODE = 5
"""How far code in a constant in code is followed."""
_NAMES = frozenset(
    {
        "identifier",
        "property_identifier",
        "private_property_identifier",
        "shorthand_property_identifier",
        "shorthand_property_identifier_pattern",
        "statement_identifier",
        "type_identifier",
    }
)
_TIMERS = frozenset({"setTimeout", "setInterval"})
"""Run a text as code, if they are given one."""
_TEXTS = frozenset({"string", "template_string", "binary_expression"})
_CLASSES = frozenset({"class_declaration", "class", "abstract_class_declaration"})


def assess_javascript(code: str, found: Findings) -> None:
    _assess(_javascript(), code, found, 0)


assess_jsx = assess_javascript  # one grammar reads both


def assess_typescript(code: str, found: Findings) -> None:
    _assess(_typescript(), code, found, 0)


def assess_tsx(code: str, found: Findings) -> None:
    _assess(_tsx(), code, found, 0)


@cache
def _javascript() -> Language:
    return Language(tree_sitter_javascript.language())


@cache
def _typescript() -> Language:
    return Language(tree_sitter_typescript.language_typescript())


@cache
def _tsx() -> Language:
    return Language(tree_sitter_typescript.language_tsx())


def _assess(language: Language, code: str, found: Findings, level: int) -> None:
    root = Parser(language).parse(code.encode("utf-8")).root_node
    if "\0" in code:
        found.add("syntax error", limits.NO_SYNTAX, 1, 1)
    _Reader(language, code, found, level).read(root)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node and what is above it. A node's own `parent` searches from the root, which adds up to a square."""

    node: Node
    above: "_Place | None"
    depth: int
    in_class: bool
    """Classes are strict, so that their `this` is never every global."""

    @property
    def parent(self) -> Node | None:
        return None if self.above is None else self.above.node

    def nearest(self, *kinds: str) -> Node | None:
        place: _Place | None = self
        while place is not None and place.node.type not in kinds:
            place = place.above
        return None if place is None else place.node


def _places(root: Node) -> Iterator[_Place]:
    """Every named node, errors included; parents before children."""
    waiting = [_Place(root, None, 0, False)]
    while waiting:
        place = waiting.pop()
        yield place
        if place.depth <= limits.MAX_DEPTH:
            in_class = place.in_class or place.node.type in _CLASSES
            children = reversed(place.node.named_children)
            waiting.extend(_Place(child, place, place.depth + 1, in_class) for child in children)


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def _folded(node: Node | None, depth: int = 0) -> str | None:
    """The text that an expression is known to give: constants without escapes, also put together by `+`."""
    if node is None or depth > limits.MAX_DEPTH:
        return None
    match node.type:
        case "string" | "template_string":
            pieces = node.named_children
            return "".join(map(_text, pieces)) if all(piece.type == "string_fragment" for piece in pieces) else None
        case "parenthesized_expression" if node.named_child_count == 1:
            return _folded(node.named_children[0], depth + 1)
        case "binary_expression" if _text(node.child_by_field_name("operator")) == "+":
            left = _folded(node.child_by_field_name("left"), depth + 1)
            right = _folded(node.child_by_field_name("right"), depth + 1)
            return None if left is None or right is None else left + right
        case _:
            return None


def _first_argument(call: Node) -> Node | None:
    arguments = call.child_by_field_name("arguments")
    return arguments.named_children[0] if arguments is not None and arguments.named_children else None


def _is_import(call: Node) -> bool:
    """Whether this is `require(...)` or `import(...)`."""
    function = call.child_by_field_name("function")
    return function is not None and (
        function.type == "import" or (function.type == "identifier" and _text(function) == "require")
    )


def _bare(module: str) -> str:
    return module.removeprefix("node:")


def _judge_module(module: str) -> RiskRow | None:
    """What a module makes possible; None if it only computes."""
    name = _bare(module)
    if name in rows.HARMLESS_MODULES:
        return None
    if name.startswith((".", "/")):
        return rows.LOCAL_MODULE
    scope = "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
    return rows.MODULES.get(name) or rows.MODULES.get(scope) or rows.UNKNOWN_MODULE


class _Reader:
    """Looks at every node of one tree."""

    def __init__(self, language: Language, code: str, found: Findings, level: int) -> None:
        self._language = language
        self._lines = code.encode("utf-8").split(b"\n")
        self._found = found
        self._level = level
        self._modules: defaultdict[str, set[str]] = defaultdict(set)

    def read(self, root: Node) -> None:
        places = list(_places(root))
        for place in places:
            self._learn(place)
        for place in places:
            if place.depth > limits.MAX_DEPTH:
                self._add(place.node, "too deep", limits.TOO_DEEP)
            else:
                self._look(place)
        if root.has_error:
            self._add(root, "syntax error", limits.NO_SYNTAX)

    def _add(self, node: Node, pattern: str, row: RiskRow) -> None:
        line, start = node.start_point
        column = len(self._lines[line][:start].decode("utf-8", "ignore")) + 1 if line < len(self._lines) else 1
        self._found.add(pattern, row, line + 1, column)

    # -- modules

    def _learn(self, place: _Place) -> None:
        """Remember a name that stands for a module."""
        node = place.node
        match node.type:
            case "variable_declarator" | "assignment_expression":
                name = node.child_by_field_name("name") or node.child_by_field_name("left")
                module = self._module(node.child_by_field_name("value") or node.child_by_field_name("right"))
                if name is not None and name.type == "identifier" and module is not None:
                    self._modules[_text(name)].add(module)
            case "import_clause" | "namespace_import" | "import_require_clause":
                statement = place.nearest("import_require_clause", "import_statement")
                module = None if statement is None else _folded(statement.child_by_field_name("source"))
                for child in node.named_children:
                    if child.type == "identifier" and module is not None:
                        self._modules[_text(child)].add(_bare(module))
            case _:
                pass

    def _module(self, node: Node | None) -> str | None:
        """The module that an expression is known to be: `require("fs")`, `await import("fs")`."""
        while node is not None and node.type in ("await_expression", "parenthesized_expression"):
            node = node.named_children[0] if node.named_children else None
        if node is not None and node.type == "call_expression" and _is_import(node):
            name = _folded(_first_argument(node))
            return None if name is None else _bare(name)
        return None

    def _source(self, node: Node, source: Node | None) -> None:
        module = _folded(source)
        if module is None:
            self._add(node, "dynamic import", rows.DYNAMIC_IMPORT)
        elif (row := _judge_module(module)) is not None:
            self._add(node, f"import {module}", row)

    # -- nodes

    def _look(self, place: _Place) -> None:
        node = place.node
        kind = node.type
        if node.is_error or node.is_missing:
            self._add(node, "syntax error", limits.NO_SYNTAX)
            return
        if kind in rows.CONSTRUCTS:
            self._add(node, kind.replace("_", " "), rows.CONSTRUCTS[kind])
        elif kind not in rows.HARMLESS_NODES:
            self._add(node, kind.replace("_", " "), rows.UNKNOWN_CONSTRUCT)
        if kind in _NAMES and "\\" in _text(node):
            self._add(node, "escaped name", rows.ESCAPED_NAME)
        match kind:
            case "identifier" | "shorthand_property_identifier":
                self._identifier(node, place.parent)
            case "property_identifier" | "shorthand_property_identifier_pattern" | "private_property_identifier":
                self._property(place)
            case "member_expression":
                self._member(node)
            case "subscript_expression":
                self._subscript(node, place.parent)
            case "call_expression":
                self._call(node)
            case "import_statement" | "export_statement" | "import_require_clause":
                if (source := node.child_by_field_name("source")) is not None:
                    self._source(node, source)
            case "variable_declarator":
                self._destructured(node)
            case "import_specifier" | "export_specifier":
                self._named_import(place)
            case "pair" | "pair_pattern":
                key = node.child_by_field_name("key")
                if key is not None and (name := _folded(key)) is not None:
                    self._property_name(key, name)
            case "this":
                if not place.in_class:
                    self._add(node, "this", rows.LOOSE_THIS)
            case _:
                pass

    def _identifier(self, node: Node, parent: Node | None) -> None:
        name = _text(node)
        base = parent is not None and parent.type == "member_expression" and _is(parent, "object", node)
        if name == "process" and base and parent is not None:
            member = _text(parent.child_by_field_name("property"))
            self._add(parent, f"process.{member}", rows.PROCESS.get(member, rows.UNKNOWN_PROCESS))
        elif name == "module" and base and parent is not None:
            if _text(parent.child_by_field_name("property")) != "exports":
                self._add(node, name, rows.GLOBALS[name])
        elif name == "Object" and base and parent is not None:
            member = _text(parent.child_by_field_name("property"))
            if member not in rows.HARMLESS_OBJECT:
                self._add(parent, f"Object.{member}", rows.UNKNOWN_OBJECT)
        elif name == "Object":
            self._add(node, name, rows.UNKNOWN_OBJECT)
        elif name == "require" and parent is not None and parent.type == "call_expression" and _is_import(parent):
            pass  # the call says which module
        elif name in rows.GLOBALS:
            self._add(node, name, rows.GLOBALS[name])
        elif name in rows.AS_GLOBALS:
            self._add(node, name, rows.MODULES[name])

    def _property(self, place: _Place) -> None:
        node, parent = place.node, place.parent
        if (
            _text(node) == "constructor"
            and parent is not None
            and parent.type == "method_definition"
            and place.in_class
        ):
            return
        owner = None if parent is None else parent.child_by_field_name("object")
        if parent is not None and parent.type == "member_expression" and owner is not None:
            if owner.type == "identifier" and _text(owner) == "process":
                return  # its own table speaks
            if _text(node).startswith("_") and owner.type != "this":
                self._add(node, f".{_text(node)}", rows.PRIVATE)
        self._property_name(node, _text(node))

    def _property_name(self, node: Node, name: str) -> None:
        if name in rows.PROPERTIES:
            self._add(node, f".{name}", rows.PROPERTIES[name])

    def _member(self, node: Node) -> None:
        owner = node.child_by_field_name("object")
        path = [_text(node.child_by_field_name("property"))]
        while owner is not None and owner.type == "member_expression":
            path.insert(0, _text(owner.child_by_field_name("property")))
            owner = owner.child_by_field_name("object")
        if owner is None:
            return
        known = self._module(owner)
        modules = {known} if known else self._modules.get(_text(owner), set()) if owner.type == "identifier" else set()
        for module in modules:
            self._module_member(node, module, ".".join(path))

    def _module_member(self, node: Node, module: str, member: str) -> None:
        if (hit := first_match(rows.MEMBERS, f"{module}.{member}")) is not None:
            self._add(node, f"{module}.{member}", hit[1])

    def _destructured(self, node: Node) -> None:
        """`const {rm} = require("fs")`"""
        names = node.child_by_field_name("name")
        module = self._module(node.child_by_field_name("value"))
        if names is not None and names.type == "object_pattern" and module is not None:
            for child in names.named_children:
                self._module_member(child, module, _text(child.child_by_field_name("key") or child))

    def _named_import(self, place: _Place) -> None:
        node = place.node
        name = _text(node.child_by_field_name("name"))
        statement = place.nearest("import_statement", "export_statement")
        module = None if statement is None else _folded(statement.child_by_field_name("source"))
        if module is not None:
            self._module_member(node, _bare(module), name)
            self._property_name(node, name)

    def _subscript(self, node: Node, parent: Node | None) -> None:
        index = node.child_by_field_name("index")
        name = _folded(index)
        if name is not None:
            self._property_name(node, name)
        elif index is None or index.type != "number":
            called = parent is not None and parent.type in ("call_expression", "new_expression")
            self._add(node, "computed member", rows.DYNAMIC_CALL if called else rows.DYNAMIC_MEMBER)

    def _call(self, node: Node) -> None:
        if _is_import(node):
            self._source(node, _first_argument(node))
            return
        function = node.child_by_field_name("function")
        called = _text(function) if function is not None and function.type == "identifier" else ""
        argument = _first_argument(node)
        if called in _TIMERS and (argument is None or argument.type not in _TEXTS):
            return  # a function, as everybody has it
        if called == "eval" or called in _TIMERS:
            text = _folded(argument)
            if text is None or self._level >= _DEEPEST_CODE:
                self._add(node, "dynamic code", rows.DYNAMIC_CODE)
                return
            inner = Findings()
            _assess(self._language, text, inner, self._level + 1)
            for finding in inner.assessment("javascript").findings:
                why = f"within text that is run as code: {finding.why}"
                self._add(node, finding.pattern, RiskRow(finding.risk, why))


def _is(parent: Node, field: str, node: Node) -> bool:
    child = parent.child_by_field_name(field)
    return child is not None and child.id == node.id
