"""Parses TypeScript by its tree-sitter grammar, around what the grammar does not know or reads wrongly.

Each gap is closed in a copy that only the parser sees: other characters, but as many bytes, so that every position in
the tree is one in the code. A pattern that matches inside of text or a comment therefore changes nothing.
"""

import re
from functools import cache
from typing import Final

import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

from ringfence.dataclass import dataclass

_LONG_NAME: Final = re.compile(rb"(?:\b(?:as|satisfies)\s|[|&])\s*\|?\s*[A-Za-z_$][\w$]*(?:\.[\w$]+){2,}")
"""`x as A.B.C` is read as the member `C` of `x as A.B`."""
_IMPORT: Final = re.compile(rb"""\bimport\(\s*(?:"[^"\n]*"|'[^'\n]*')\s*\)""")
"""`f<import("x").Y>(y)` is read as two comparisons; with a name in its place it is read as it should be."""
_VARIANCE: Final = re.compile(rb"(?<=[<,])\s*(?:in\s+out|in|out)(?=\s+[A-Za-z_$])")
"""`interface A<in T, out U>` is an error."""
_TAG_TYPES: Final = re.compile(rb">[ \t]*`")
r"""f<T>`...` is read as two comparisons or is an error."""
_LONGEST_TAG_TYPES: Final = 1000
"""How far back their `<` is looked for; keeps the search linear."""
_NO_TYPE: Final = re.compile(rb"&&|\|\||;\s*$|=(?!>)")
"""What two comparisons have between them and types have not."""
_BLACK: Final = re.compile(rb"[^\s]")


@dataclass(frozen=True, slots=True)
class Parsed:
    root: Node
    tag_types: tuple[tuple[int, int], ...]
    """Types of tagged templates, by start and end: they are in no node."""


def parse(source: bytes, *, jsx: bool) -> Parsed:
    parser = Parser(_tsx() if jsx else _typescript())
    seen = _IMPORT.sub(lambda match: b"_" * len(match[0]), source)
    seen = _LONG_NAME.sub(lambda match: match[0].replace(b".", b"_"), seen)
    root = parser.parse(seen).root_node
    tag_types = tuple(_tag_types(seen, root))
    if tag_types:
        blanked = bytearray(seen)
        for start, end in tag_types:
            blanked[start:end] = _BLACK.sub(b" ", seen[start:end])
        seen = bytes(blanked)
        root = parser.parse(seen).root_node
    if root.has_error:
        without = _VARIANCE.sub(lambda match: _BLACK.sub(b" ", match[0]), seen)
        if without != seen:
            root = parser.parse(without).root_node
    return Parsed(root, tag_types)


@cache
def _typescript() -> Language:
    return Language(tree_sitter_typescript.language_typescript())


@cache
def _tsx() -> Language:
    return Language(tree_sitter_typescript.language_tsx())


def _tag_types(source: bytes, root: Node) -> list[tuple[int, int]]:
    found = []
    for match in _TAG_TYPES.finditer(source):
        tick = match.end() - 1
        template = root.named_descendant_for_byte_range(tick, tick + 1)
        if template is None or template.type != "template_string" or template.start_byte != tick:
            continue  # inside of text or a comment, or the end of a template
        start = _opening(source, match.start())
        if start is not None and _NO_TYPE.search(source, start, match.start()) is None:
            found.append((start, match.start() + 1))
    return found


def _opening(source: bytes, end: int) -> int | None:
    """The `<` that belongs to the `>` at `end`."""
    depth = 0
    for at in range(end, max(end - _LONGEST_TAG_TYPES, 0), -1):
        if source[at] == ord(">") and source[at - 1] != ord("="):
            depth += 1
        elif source[at] == ord("<"):
            depth -= 1
            if depth == 0:
                return at
    return None
