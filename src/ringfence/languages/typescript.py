"""TypeScript to JavaScript by erasing types: what is left stands on the line and in the column where it stood.

Node strips types itself only from 22.6 (by a flag) and 23.6 on, and distributions ship 18 and 20; a transpiler is a
large dependency, native or in JavaScript. Most of TypeScript is JavaScript with annotations, so that blanks in their
place are enough, and tracebacks stay true without a source map. The grammar for it is here already: the risk analysis
reads by it. (docs/adr/0009-typescript-by-erasing-types.md)

One walk over the tree, parents first, collects edits; nothing inside of an erased part is looked at. Not everything is
blanks:
- Enums and parameter properties have a meaning at run time; they are written out, on the lines where they stand.
- JavaScript ends a statement at some line breaks and not at others. Where an erased part was what ended a statement, a
  `;` takes its first character; a parenthesis moves where a line break would otherwise come before `=>`.
- Parentheses are added where the erased part kept an expression together: `() => <T>{}`, `a + b as T * c`.

What this does not do: check types; remove imports that only types use (write `import type`); inline constant enums; run
decorators or JSX, which stay as they are for a runtime that knows them. Namespaces with values, `import x = ...` and
`export = ...` have no place to be written out and are refused.
"""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NoReturn

from tree_sitter import Node

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument
from ringfence.languages.edits import Edits
from ringfence.languages.enums import write_enum
from ringfence.languages.grammar import parse

_ERASED: Final = frozenset(
    {
        "type_annotation",
        "type_predicate_annotation",
        "asserts_annotation",
        "type_parameters",
        "type_arguments",
        "implements_clause",
        "accessibility_modifier",
        "override_modifier",
    }
)
"""Types and modifiers: blanks wherever they are."""

_ERASED_TOKENS: Final[dict[str, frozenset[str]]] = {
    "abstract_class_declaration": frozenset({"abstract"}),
    "method_definition": frozenset({"?", "readonly"}),
    "non_null_expression": frozenset({"!"}),
    "optional_parameter": frozenset({"?", "readonly"}),
    "public_field_definition": frozenset({"?", "!", "readonly"}),
    "required_parameter": frozenset({"readonly"}),
    "variable_declarator": frozenset({"!"}),
}
"""Words and signs that are types only as a direct part of this node."""

_ERASED_STATEMENTS: Final = frozenset(
    {"interface_declaration", "type_alias_declaration", "ambient_declaration", "function_signature"}
)
_ERASED_MEMBERS: Final = frozenset({"index_signature", "method_signature", "abstract_method_signature"})
_MODIFIERS: Final = frozenset({"accessibility_modifier", "override_modifier", "readonly"})
_ASSERTIONS: Final = frozenset({"as_expression", "satisfies_expression"})
_NAMESPACES: Final = frozenset({"internal_module", "module"})
_STATEMENTS: Final = frozenset(
    {
        "export_statement",
        "expression_statement",
        "lexical_declaration",
        "public_field_definition",
        "return_statement",
        "throw_statement",
        "variable_declaration",
    }
)
"""What an expression may be the end of, so that a line break ends both."""

_BREAK: Final = re.compile(rb"[\n\r]|\xe2\x80[\xa8\xa9]")
_SEMICOLON_NEXT: Final = re.compile(rb"[ \t]*;")
_STARTS_STATEMENT: Final = re.compile(rb"\{|(?:async|class|function|let)\b")
"""What means something else at the start of a statement or of an arrow function's body than inside an expression."""


def erase(code: str, *, jsx: bool = False) -> str:
    """The JavaScript of this TypeScript.

    Raises:
        InvalidArgument: the code does not parse, or uses what cannot be written in place; with line and column.
    """
    try:
        source = code.encode("utf-8")
    except UnicodeEncodeError as fault:
        line, column = code.count("\n", 0, fault.start) + 1, fault.start - code.rfind("\n", 0, fault.start)
        message = "half of a surrogate pair, which no file can hold"
        raise InvalidArgument(message, source="typescript", line=line, column=column) from None
    parsed = parse(source, jsx=jsx)
    root = parsed.root
    eraser = _Eraser(Edits(source))
    for start, end in parsed.tag_types:
        eraser.edits.blank(start, end)
    if root.has_error:
        eraser.check_syntax(root)
    eraser.walk(root)
    return eraser.edits.result()


def _has(node: Node, token: str) -> bool:
    return any(child.type == token for child in node.children)


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return "" if operator is None else operator.type


def _is_type_list_export(node: Node) -> bool:
    """`export type * from`, the one form that the grammar does not know: it leaves the word as an error."""
    return node.type == "export_statement" and any(
        child.is_error and [part.type for part in child.children] == ["type"] for child in node.children
    )


def _is_erased(node: Node) -> bool:
    """Whether a statement is only about types."""
    match node.type:
        case "import_statement":
            return _has(node, "type")
        case "export_statement":
            declaration = node.child_by_field_name("declaration")
            if declaration is None:
                return _has(node, "type") or _has(node, "namespace") or _is_type_list_export(node)
            return _is_erased(declaration)
        case "expression_statement":
            inner = node.children[0]
            return inner.type in _NAMESPACES and _is_erased(inner)
        case "internal_module" | "module":
            return not _has_values(node)
        case kind:
            return kind in _ERASED_STATEMENTS


def _has_values(namespace: Node) -> bool:
    waiting = [namespace]
    while waiting:
        body = waiting.pop().child_by_field_name("body")
        for child in () if body is None else body.named_children:
            inner = child.children[0] if child.type in ("expression_statement", "export_statement") else child
            inner = child.child_by_field_name("declaration") or inner
            if inner.type in _NAMESPACES:
                waiting.append(inner)
            elif inner.type != "comment" and not _is_erased(child):
                return True
    return False


@dataclass(slots=True)
class _Eraser:
    """One walk over one tree."""

    edits: Edits
    _open_ends: set[int] = field(default_factory=set)
    """Where statements end without a `;`."""
    _ends_before: set[int] = field(default_factory=set)
    """Where something erased has to leave a `;`."""
    _enums: dict[tuple[int, str], dict[str, bool]] = field(default_factory=dict)
    """The members of each enum so far, by its scope and name; enums of one name are one enum."""

    def walk(self, root: Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            kind = node.type
            if kind in _ERASED:
                self._check_breaks(node)
                self._blank(node)
                continue
            if kind in _ERASED_STATEMENTS:  # as the body of an `if`; lists of statements see to theirs
                self.edits.blank(node.start_byte, node.end_byte, first=";")
                continue
            if kind in _STATEMENTS and not self._is_ended(node):
                self._open_ends.add(node.end_byte)
            handler = _HANDLERS.get(kind)
            waiting.extend(self._without_tokens(node) if handler is None else handler(self, node))

    def _blank(self, node: Node) -> None:
        start = node.start_byte
        self.edits.blank(start, node.end_byte, first=";" if start in self._ends_before else "")

    def _is_ended(self, node: Node) -> bool:
        source, end = self.edits.source, node.end_byte
        return source[end - 1] == ord(";") or _SEMICOLON_NEXT.match(source, end) is not None

    def _spans_lines(self, start: int, end: int) -> bool:
        return _BREAK.search(self.edits.source, start, end) is not None

    def _without_tokens(self, node: Node) -> Iterable[Node]:
        """Blank the words in a node that are types; its other children."""
        tokens = _ERASED_TOKENS.get(node.type)
        if tokens is not None:
            for child in node.children:
                if child.type in tokens:
                    self._blank(child)
        return node.named_children

    # -- refusals

    def _refuse(self, node: Node, message: str, hint: str) -> NoReturn:
        row, start = node.start_point
        begin = node.start_byte - start
        column = len(self.edits.text(begin, node.start_byte)) + 1
        raise InvalidArgument(message, source="typescript", line=row + 1, column=column, hint=hint)

    def check_syntax(self, root: Node) -> None:
        """Raise for the first place that does not parse."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            hint = "correct the code; if it is correct TypeScript, write this place in plain JavaScript"
            if node.is_missing:
                missing = f": {node.type!r} is missing" if node.type in (")", "]", "}") else ""
                self._refuse(node, f"syntax error{missing}", hint)
            if node.is_error:
                first, *more = self.edits.text(node.start_byte, node.end_byte).strip().split("\n")
                where = "in what starts with" if more else "near"
                self._refuse(node, f"syntax error {where} {first[:40]!r}", hint)
            if not _is_type_list_export(node):
                waiting.extend(child for child in reversed(node.children) if child.has_error)

    def _check_breaks(self, node: Node) -> None:
        """A `[` or `(` on a new line starts a statement for TypeScript; for the grammar it goes on with the type."""
        if not self._spans_lines(node.start_byte, node.end_byte):
            return
        waiting = [node]
        while waiting:
            place = waiting.pop()
            waiting.extend(place.named_children)
            if place.type in ("array_type", "lookup_type", "call_expression"):
                for before, after in pairwise(place.children):
                    if after.type in ("[", "arguments") and self._spans_lines(before.end_byte, after.start_byte):
                        self._refuse(after, "a new line goes on with the type before", "end the line before with ';'")

    # -- statements and members

    def statements(self, node: Node) -> Iterable[Node]:
        kept: list[Node] = []
        last = None
        for child in node.children:
            if _is_erased(child):
                self._check_breaks(child)
                needs_end = last is not None and self.edits.source[last.end_byte - 1] not in b";{:"
                self.edits.blank(child.start_byte, child.end_byte, first=";" if needs_end else "")
                last = None
                continue
            inner = child.child_by_field_name("declaration") if child.type == "export_statement" else child
            if inner is not None and inner.type == "enum_declaration":
                self._enum(node, inner, None if inner is child else child)
            kept.append(child)
            if not child.is_extra:
                last = child
        return kept

    def _enum(self, scope: Node, node: Node, export: Node | None) -> None:
        name = node.child_by_field_name("name")
        assert name is not None and name.text is not None  # the grammar has no enum without a name
        key = (scope.id, name.text.decode("utf-8"))
        declared = key in self._enums
        if declared and export is not None:
            self._blank(export.children[0])
        # `var` at the top and `let` elsewhere, as the compiler does: an enum belongs to its block
        word = "" if declared else "var" if scope.type == "program" else "let"
        refused = write_enum(self.edits, node, word, self._enums.setdefault(key, {}))
        if refused is not None:
            self._refuse(refused.node, refused.message, refused.hint)

    def class_body(self, node: Node) -> Iterable[Node]:
        kept: list[Node] = []
        field_is_open = False
        for child in node.children:
            kind = child.type
            is_field = kind == "public_field_definition"
            if kind in _ERASED_MEMBERS or (is_field and (_has(child, "abstract") or _has(child, "declare"))):
                self._check_breaks(child)
                self.edits.blank(child.start_byte, child.end_byte, first=";" if field_is_open else "")
                field_is_open = False
                continue
            kept.append(child)
            if child.is_extra:
                continue
            if field_is_open and child.children and child.children[0].type in _MODIFIERS:
                # it ended the field before: without it, `x = 1` and on the next line `[y] = 2` are one field
                self._ends_before.add(child.start_byte)
            if is_field:
                self._field_named_as_modifier(child)
            field_is_open = is_field
        return kept

    def _field_named_as_modifier(self, node: Node) -> None:
        """A field `get: T` must not become the modifier of the member on the next line."""
        name, types = node.child_by_field_name("name"), node.child_by_field_name("type")
        if (
            name is not None
            and types is not None
            and name.text in (b"get", b"set", b"static", b"async", b"accessor")
            and node.child_by_field_name("value") is None
            and not self._is_ended(node)
        ):
            self._ends_before.add(types.start_byte)

    def import_statement(self, node: Node) -> Iterable[Node]:
        if any(child.type == "import_require_clause" for child in node.children):
            self._refuse(
                node,
                "`import x = require(...)` is not supported",
                'write `import x from "..."` or `const x = require("...")`',
            )
        return node.children

    def import_alias(self, node: Node) -> Iterable[Node]:
        self._refuse(node, "`import x = a.b` is not supported", "write `const x = a.b`")

    def export_statement(self, node: Node) -> Iterable[Node]:
        if _has(node, "="):
            self._refuse(node, "`export = x` is not supported", "write `export default x` or `module.exports = x`")
        return node.children

    def namespace(self, node: Node) -> Iterable[Node]:
        self._refuse(
            node, "a namespace that holds values is not supported", "write a module, or an object with these members"
        )

    def listed(self, node: Node) -> Iterable[Node]:
        """Names in braces, or parameters: blank those that are types, with the comma behind them."""
        entries = [child for child in node.children if not child.is_extra]
        for entry, after in pairwise(entries):
            if _is_type_entry(entry):
                self.edits.blank(entry.start_byte, after.end_byte if after.type == "," else entry.end_byte)
        return [entry for entry in entries if not _is_type_entry(entry)]

    # -- classes

    def class_like(self, node: Node) -> Iterable[Node]:
        body = node.child_by_field_name("body")
        for member in () if body is None else body.named_children:
            name = member.child_by_field_name("name")
            if member.type == "method_definition" and name is not None and name.text == b"constructor":
                derived = any(
                    part.type == "extends_clause"
                    for child in node.named_children
                    if child.type == "class_heritage"
                    for part in child.named_children
                )
                self._parameter_properties(body, member, derived=derived)
        return self._without_tokens(node)

    def _parameter_properties(self, body: Node | None, constructor: Node, *, derived: bool) -> None:
        """`constructor(private x)`: a field at the start of the class, and an assignment once there is a `this`."""
        parameters = constructor.child_by_field_name("parameters")
        block = constructor.child_by_field_name("body")
        if body is None or parameters is None or block is None:
            return
        names: list[str] = []
        for parameter in parameters.named_children:
            if any(child.type in _MODIFIERS for child in parameter.children):
                pattern = parameter.child_by_field_name("pattern")
                if pattern is None or pattern.type != "identifier":
                    self._refuse(parameter, "a parameter property cannot be a pattern", "assign its parts in the body")
                names.append(self.edits.text(pattern.start_byte, pattern.end_byte))
        if not names:
            return
        self.edits.open(body.start_byte + 1, "".join(f" {name};" for name in names))
        assignments = "".join(f" this.{name} = {name};" for name in names)
        if not derived:
            self.edits.open(block.start_byte + 1, assignments)
            return
        for statement in block.named_children:
            call = statement.named_children[0] if statement.type == "expression_statement" else None
            function = None if call is None else call.child_by_field_name("function")
            if function is not None and function.type == "super":
                ended = self.edits.source[statement.end_byte - 1] == ord(";")
                self.edits.close(statement.end_byte, assignments if ended else f";{assignments}")
                return
        self._refuse(
            constructor, "parameter properties need `super(...)` as a statement of its own", "assign them in the body"
        )

    # -- expressions

    def arrow_function(self, node: Node) -> Iterable[Node]:
        """No line break may come between `async`, `return` or the like and the parameters, or between them and `=>`."""
        children = node.children
        parameters = node.child_by_field_name("parameters")
        generic = node.child_by_field_name("type_parameters")
        returns = node.child_by_field_name("return_type")
        if parameters is None:
            return children
        if generic is not None and self._spans_lines(generic.start_byte, parameters.start_byte):
            self._check_breaks(generic)
            self.edits.blank(generic.start_byte, parameters.start_byte + 1, first="(")
            children.remove(generic)
        if returns is not None and self._spans_lines(parameters.end_byte, returns.end_byte):
            self._check_breaks(returns)
            self.edits.blank(parameters.end_byte - 1, returns.end_byte, last=")")
            children.remove(returns)
        return children

    def assertion(self, node: Node) -> Iterable[Node]:
        """`x as T`, `x satisfies T`"""
        expression = node.children[0]
        self._check_breaks(node.children[-1])
        ends = node.end_byte in self._open_ends
        self.edits.blank(expression.end_byte, node.end_byte, first=";" if ends else "")
        return (expression,)

    def cast(self, node: Node) -> Iterable[Node]:
        """`<T>x`"""
        types, expression = node.children[0], node.children[-1]
        self._check_breaks(types)
        start = expression.start_byte
        together = _STARTS_STATEMENT.match(self.edits.source, start) is not None
        if together or self._spans_lines(node.start_byte, start):
            self.edits.blank(types.start_byte, types.end_byte, first="(")
            self.edits.close(node.end_byte, ")")
        else:
            self._blank(types)
        return (expression,)

    def binary(self, node: Node) -> Iterable[Node]:
        left = base = node.children[0]
        if left.type in _ASSERTIONS:
            while base.type in _ASSERTIONS:
                base = base.children[0]
            if base.type == "binary_expression" and _operator(base) != _operator(node):
                self.edits.open(left.start_byte, "(")
                self.edits.close(base.end_byte, ")")
        return node.children

    def postfix(self, node: Node) -> Iterable[Node]:
        """A call or a member of what ends in a type: the grammar went on where TypeScript stops."""
        first, *others = children = node.children
        if first.type in _ASSERTIONS:
            if node.type != "call_expression" or not self._spans_lines(first.end_byte, others[0].start_byte):
                self._refuse(first, "it is not clear where this type ends", "put parentheses around `x as T`")
            self._open_ends.add(first.end_byte)  # `x as T`, and a new statement on the next line
        return children


def _is_type_entry(node: Node) -> bool:
    if node.type in ("import_specifier", "export_specifier"):
        return _has(node, "type")
    pattern = node.child_by_field_name("pattern") if node.type == "required_parameter" else None
    return pattern is not None and pattern.type == "this"


_HANDLERS: Final[dict[str, Callable[[_Eraser, Node], Iterable[Node]]]] = {
    "program": _Eraser.statements,
    "statement_block": _Eraser.statements,
    "switch_case": _Eraser.statements,
    "switch_default": _Eraser.statements,
    "class_body": _Eraser.class_body,
    "import_statement": _Eraser.import_statement,
    "import_alias": _Eraser.import_alias,
    "export_statement": _Eraser.export_statement,
    "internal_module": _Eraser.namespace,
    "module": _Eraser.namespace,
    "named_imports": _Eraser.listed,
    "export_clause": _Eraser.listed,
    "formal_parameters": _Eraser.listed,
    "class_declaration": _Eraser.class_like,
    "abstract_class_declaration": _Eraser.class_like,
    "class": _Eraser.class_like,
    "arrow_function": _Eraser.arrow_function,
    "as_expression": _Eraser.assertion,
    "satisfies_expression": _Eraser.assertion,
    "type_assertion": _Eraser.cast,
    "binary_expression": _Eraser.binary,
    "call_expression": _Eraser.postfix,
    "member_expression": _Eraser.postfix,
    "subscript_expression": _Eraser.postfix,
}
