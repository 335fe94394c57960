"""How Node has to be told to read JavaScript: as a module or as CommonJS.

Node 18 and 20 do not find out by themselves for code that is in no file; 22.7 and later do, and `--input-type` says the
same to all of them, so it is always given. `import` and `export` statements, `import.meta` and `await` outside of
functions exist in modules only; everything else runs as CommonJS, where `require` is.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

_FUNCTIONS: Final = frozenset(
    {
        "arrow_function",
        "class_body",  # neither fields nor static blocks may wait
        "function_declaration",
        "function_expression",
        "generator_function",
        "generator_function_declaration",
        "method_definition",
    }
)
_BINDINGS: Final = frozenset({"variable_declarator", "import_specifier", "import_clause", "function_declaration"})

_REQUIRE: Final = (
    "\nimport require from 'data:text/javascript,"
    'import {createRequire} from "node:module"; export default createRequire(process.cwd() + "/")\';'
)
"""Gives `require` to a module. It stands at the end, where it moves no line: imports are made before anything runs."""


def prepare(code: str) -> tuple[str, tuple[str, ...]]:
    """The code to run, and the options for Node to run it with."""
    root = Parser(_javascript()).parse(code.encode("utf-8")).root_node
    if not _is_module(root):
        return code, ("--input-type=commonjs",)
    return (code + _REQUIRE if _lacks_require(root) else code), ("--input-type=module",)


@cache
def _javascript() -> Language:
    return Language(tree_sitter_javascript.language())


def _nodes(root: Node, outside: frozenset[str] = frozenset()) -> Iterator[Node]:
    """Every node that is not inside of one of these kinds."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if node.type not in outside:
            waiting.extend(node.children)


def _is_module(root: Node) -> bool:
    if any(node.type in ("import_statement", "export_statement") for node in root.children):
        return True
    for node in _nodes(root, _FUNCTIONS):
        if node.type == "await_expression" or (node.type == "for_in_statement" and _awaits(node)):
            return True
    return any(node.type == "meta_property" and node.text == b"import.meta" for node in _nodes(root))


def _awaits(loop: Node) -> bool:
    return any(child.type == "await" for child in loop.children)


def _lacks_require(root: Node) -> bool:
    """Whether code calls `require` and makes none. Scopes are ignored: one that it makes anywhere is its own."""
    used = False
    for node in _nodes(root):
        if node.type in _BINDINGS:
            if any(child.type == "identifier" and child.text == b"require" for child in node.children):
                return False
        elif node.type == "call_expression":
            function = node.child_by_field_name("function")
            used |= function is not None and function.text in (b"require", b"require.resolve")
    return used
