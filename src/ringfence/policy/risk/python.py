"""Python, read by its own parser: imports, calls, attributes, and the tricks that reach them. Advice only.

Two passes. The first learns which names stand for which modules and members, wherever they are imported; the second
looks at every node. Names are resolved without regard to order or scope, so that a name that is a module anywhere is
one everywhere: this can only raise the risk.
"""

import ast
import builtins
import re
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from ringfence.policy.risk import findings as limits
from ringfence.policy.risk.findings import Findings
from ringfence.policy.risk.patterns import python as rows
from ringfence.policy.risk.patterns.base import RiskRow, first_match
from ringfence.values.risk import Risk

_CODING = re.compile(r"^[ \t\f\ufeff]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_UTF8 = frozenset({"utf-8", "utf8", "utf_8", "utf-8-sig"})
_LONE_RETURN = re.compile(r"\r(?!\n)")
_FOLLOWS_ATTRIBUTE = re.compile(r"\{[^{}:]*[.\[]")
_WRITING = frozenset("wax+")
_MAX_TEXT = 20_000
"""Characters of a constant that is put together from pieces, and of code within code."""
_DEEPEST_CODE = 5
"""How far code in a constant in code is followed."""


def assess_python(code: str, found: Findings, _level: int = 0) -> None:
    """Add what is found in this code."""
    for cookie in _CODING.finditer(code):
        if cookie[1].lower() not in _UTF8:
            found.add(f"coding: {cookie[1]}", rows.CODING, code.count("\n", 0, cookie.start()) + 1, 1)
    if (hidden := _LONE_RETURN.search(code)) is not None:
        found.add("carriage return", rows.LONE_RETURN, code.count("\n", 0, hidden.start()) + 1, 1)
    try:
        with warnings.catch_warnings():  # the parser warns the caller about somebody else's code
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except SyntaxError as fault:
        found.add("syntax error", limits.NO_SYNTAX, max(fault.lineno or 1, 1), max(fault.offset or 1, 1))
        return
    except ValueError:
        found.add("syntax error", limits.NO_SYNTAX, 1, 1)
        return
    except (RecursionError, MemoryError):  # what CPython's parser raises for nesting that it does not follow
        found.add("too deep", limits.TOO_DEEP, 1, 1)
        return
    if _too_deep(tree):
        found.add("too deep", limits.TOO_DEEP, 1, 1)
        return
    _Reader(code, found, _level).read(tree)


def _too_deep(tree: ast.AST) -> bool:
    layer: list[ast.AST] = [tree]
    for _ in range(limits.MAX_DEPTH):
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
        if not layer:
            return False
    return True


def _imports(tree: ast.AST) -> dict[str, set[str]]:
    """Which dotted names each name stands for."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]].add(
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
    return names


def _folded(node: ast.expr | None) -> str | None:
    """The text that an expression is known to give: constants, put together by `+` or by an f-string."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _folded(left), _folded(right)
            return None if first is None or second is None else _short(first + second)
        case ast.JoinedStr(values=values):
            pieces = [_folded(value) for value in values]
            return _short("".join(piece for piece in pieces if piece is not None)) if None not in pieces else None
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _folded(value)
        case _:
            return None


def _short(text: str) -> str | None:
    return text if len(text) <= _MAX_TEXT else None


def _module_of(dotted: str) -> tuple[str, str]:
    """The longest known module at the start of a dotted name, and the rest."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if module in rows.HARMLESS or module in rows.MODULES:
            return module, ".".join(parts[end:])
    return parts[0], ".".join(parts[1:])


def _judge_import(module: str) -> RiskRow:
    """What importing a module, by its full dotted name, makes possible."""
    known, _ = _module_of(module)
    if known in rows.HARMLESS and known == module:
        return RiskRow(Risk.SAFE, "")
    if known in rows.MODULES:
        return rows.MODULES[known]
    return rows.UNKNOWN_MODULE


def _judge_member(dotted: str) -> RiskRow:
    """What a member of a module makes possible: `os.system`, `datetime.datetime.now`."""
    module, rest = _module_of(dotted)
    member = rest.partition(".")[0]
    if (hit := first_match(rows.MEMBERS, dotted) or first_match(rows.MEMBERS, f"{module}.{member}")) is not None:
        return hit[1]
    if not rest:
        return _judge_import(module)
    allowed = rows.HARMLESS.get(module, frozenset())
    if member in allowed or ("*" in allowed and not member.startswith("_")):
        return RiskRow(Risk.SAFE, "")
    if module in rows.SELF_EXPLAINING:
        return rows.UNKNOWN_MEMBER
    return rows.MODULES.get(module, rows.UNKNOWN_MODULE)


class _Reader:
    """Looks at every node of one tree."""

    def __init__(self, code: str, found: Findings, level: int) -> None:
        self._lines = code.split("\n")
        self._found = found
        self._level = level
        self._names: dict[str, set[str]] = {}
        self._imported: set[str] = set()
        """Modules that an import statement names itself."""
        self._bases: set[int] = set()
        """Nodes that are only the start of `start.member`."""
        self._done: set[int] = set()
        """Nodes that a node above them has already spoken for."""

    def read(self, tree: ast.Module) -> None:
        self._names = _imports(tree)
        for node in ast.walk(tree):  # breadth first: whoever speaks for a node comes before it
            name = type(node).__name__
            if name not in rows.HARMLESS_NODES:
                self._add(node, name, rows.UNKNOWN_CONSTRUCT)
            if id(node) not in self._done:
                self._look(node)

    def _look(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                self._import(node)
            case ast.ImportFrom():
                self._import_from(node)
            case ast.Name():
                self._name(node)
            case ast.Attribute():
                self._attribute(node)
            case ast.Call():
                self._call(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node)
            case ast.ClassDef():
                self._own_name(node, node.name)
            case ast.MatchClass():
                for name in node.kwd_attrs:  # `case object(__class__=x)` reads the attribute
                    self._attribute_name(node, name, None)
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    self._own_name(node, name)
            case _:
                pass

    def _add(self, node: ast.AST, pattern: str, row: RiskRow) -> None:
        line = getattr(node, "lineno", 1)
        start = getattr(node, "col_offset", 0)
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        column = len(text.encode("utf-8")[:start].decode("utf-8", "ignore")) + 1
        self._found.add(pattern, row, line, column)

    # -- imports

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imported.add(alias.name)
            self._add(node, f"import {alias.name}", _judge_import(alias.name))
            self._own_name(node, alias.asname or "")

    def _import_from(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            self._add(node, "relative import", rows.RELATIVE_IMPORT)
            return
        self._imported.add(node.module)
        self._add(node, f"import {node.module}", _judge_import(node.module))
        for alias in node.names:
            dotted = f"{node.module}.{alias.name}"
            if alias.name == "*":
                harmless = node.module in rows.HARMLESS and "*" in rows.HARMLESS[node.module]
                self._add(node, f"import {dotted}", RiskRow(Risk.SAFE, "") if harmless else rows.STAR_IMPORT)
            else:
                self._member(node, dotted, stored=True)
            self._own_name(node, alias.asname or "")

    # -- names and attributes

    def _dotted(self, node: ast.expr) -> set[str]:
        """The dotted names that an expression stands for, by the imports; empty if it is something else."""
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return set()
        return {".".join((root, *reversed(tail))) for root in self._names.get(node.id, ())}

    def _name(self, node: ast.Name) -> None:
        for dotted in self._names.get(node.id, ()):
            self._member(node, dotted, stored=not isinstance(node.ctx, ast.Load))
        self._own_name(node, node.id)

    def _own_name(self, node: ast.AST, name: str) -> None:
        """A name that needs no import."""
        if name in rows.BUILTINS:
            self._add(node, name, rows.BUILTINS[name])
        elif name not in rows.HARMLESS_BUILTINS and _is_dunder(name):
            self._add(node, name, rows.UNKNOWN_DUNDER)
        elif name not in rows.HARMLESS_BUILTINS and hasattr(builtins, name):
            self._add(node, name, rows.UNKNOWN_BUILTIN)

    def _member(self, node: ast.AST, dotted: str, *, stored: bool = False) -> None:
        """Something that the imports gave a name: a module, or a member of one."""
        module, rest = _module_of(dotted)
        if not rest:
            if not stored and id(node) not in self._bases:
                self._add(node, dotted, rows.MODULE_AS_VALUE)
            return
        row = _judge_member(dotted)
        if module not in self._imported or row is not rows.MODULES.get(module):  # else its import has said it already
            self._add(node, dotted, row)

    def _attribute(self, node: ast.Attribute) -> None:
        self._bases.add(id(node.value))
        for dotted in self._dotted(node):
            self._member(node, dotted)
        self._attribute_name(node, node.attr, node.value)

    def _attribute_name(self, node: ast.AST, name: str, owner: ast.expr | None) -> None:
        own = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
        if own and name in rows.OWN_METHODS:
            return
        if name in ("format", "format_map"):
            text = None if owner is None else _folded(owner)
            if text is None or _FOLLOWS_ATTRIBUTE.search(text):
                self._add(node, f".{name}", rows.FORMAT if text is None or "_" not in text else rows.FORMAT_PRIVATE)
        elif name in rows.ATTRIBUTES:
            self._add(node, f".{name}", rows.ATTRIBUTES[name])
        elif _is_dunder(name):
            if name not in rows.HARMLESS_DUNDERS:
                self._add(node, f".{name}", rows.UNKNOWN_DUNDER)
        elif name.startswith("_") and not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
            self._add(node, f".{name}", rows.PRIVATE)

    # -- calls

    def _call(self, node: ast.Call) -> None:
        names = self._dotted(node.func)
        if isinstance(node.func, ast.Name):
            names = {*names, node.func.id}
        for name in names:
            if (special := _CALLS.get(name.removeprefix("builtins."))) is not None:
                special(self, node)

    def _speak_for(self, func: ast.expr) -> None:
        """What is known of the call replaces what its bare name would say."""
        if isinstance(func, ast.Name):
            self._done.add(id(func))

    def _code(self, node: ast.Call) -> None:
        """eval, exec, compile: text that is known is read as well, text that is not is the worst that there is."""
        text = _folded(node.args[0]) if node.args else None
        if text is None or self._level >= _DEEPEST_CODE:
            self._add(node, "dynamic code", rows.DYNAMIC_CODE)
            return
        inner = Findings()
        assess_python(text.strip(), inner, self._level + 1)
        for finding in inner.assessment("python").findings:
            self._add(node, finding.pattern, RiskRow(finding.risk, f"within text that is run as code: {finding.why}"))

    def _import_by_name(self, node: ast.Call) -> None:
        text = _folded(node.args[0]) if node.args else None
        if text is None:
            self._add(node, "dynamic import", rows.DYNAMIC_IMPORT)
        else:
            self._add(node, f"import {text}", max(_judge_import(text), rows.UNKNOWN_MODULE, key=lambda row: row.risk))

    def _attribute_by_name(self, node: ast.Call) -> None:
        """getattr and its kin: a name that is known is an attribute like any other."""
        owner = node.args[0] if node.args else None
        name = _folded(node.args[1]) if len(node.args) > 1 else None
        modules = self._dotted(owner) if owner is not None else set()
        for dotted in modules:
            if name is None:
                self._add(node, f"{dotted}.?", rows.DYNAMIC_MEMBER)
            else:
                self._add(node, f"{dotted}.{name}", _judge_member(f"{dotted}.{name}"))
        if name is not None and not isinstance(owner, ast.Starred):
            self._bases.add(id(owner))
            self._attribute_name(node, name, owner)
            self._speak_for(node.func)

    def _open(self, node: ast.Call) -> None:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if None in given or any(isinstance(arg, ast.Starred) for arg in node.args):
            return  # the row of `open` itself speaks
        path = node.args[0] if node.args else given.get("file")
        mode = node.args[1] if len(node.args) > 1 else given.get("mode")
        where, how = _folded(path), "r" if mode is None else _folded(mode)
        if where is not None and (where.startswith(("/", "~")) or ".." in where.split("/")):
            self._add(node, "open", rows.OPENS_OUTSIDE)
        if how is not None:
            self._add(node, "open", rows.OPENS_TO_WRITE if _WRITING & set(how) else rows.OPENS_TO_READ)
            if "opener" not in given:
                self._speak_for(node.func)

    def _type(self, node: ast.Call) -> None:
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            self._add(node, "type", rows.MAKES_CLASS)

    # -- definitions

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in rows.ATTRIBUTES and node.name not in rows.OWN_METHODS:
            self._add(node, f"def {node.name}", rows.ATTRIBUTES[node.name])
        elif node.name not in rows.OWN_METHODS:
            self._own_name(node, node.name)


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


_CALLS: Final[dict[str, Callable[[_Reader, ast.Call], None]]] = {
    "eval": _Reader._code,
    "exec": _Reader._code,
    "compile": _Reader._code,
    "__import__": _Reader._import_by_name,
    "importlib.import_module": _Reader._import_by_name,
    "importlib.__import__": _Reader._import_by_name,
    "getattr": _Reader._attribute_by_name,
    "setattr": _Reader._attribute_by_name,
    "delattr": _Reader._attribute_by_name,
    "hasattr": _Reader._attribute_by_name,
    "open": _Reader._open,
    "io.open": _Reader._open,
    "codecs.open": _Reader._open,
    "type": _Reader._type,
}
