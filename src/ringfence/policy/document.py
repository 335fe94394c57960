"""Reads YAML text into plain values that remember where they stand.

The nodes are built from the parser's events and not by its composer, so that depth and size are bounded while the text
is read: a document that nests without end, or whose aliases multiply, costs no more than one at the bound. Nothing is
converted here: whether `yes` is a flag or the program of that name is known only to the schema. Left out of YAML on
purpose, because each hides what a reader of a policy has to see: tags, merge keys, several documents in one file.
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidConfig
from ringfence.policy.faults import Faults

MAX_CHARACTERS: Final = 512 * 1024  # a policy of thousands of rules fits; the parser reads about 1 MB/s
MAX_DEPTH: Final = 32  # the deepest valid key stands at seven
MAX_NODES: Final = 50_000  # aliases count as often as they are used

_STR_TAG: Final = "tag:yaml.org,2002:str"
_NON_PRINTABLE: Final = yaml.reader.Reader.NON_PRINTABLE


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file; line and column count from one."""

    source: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"

    def fault(self, message: str, hint: str = "") -> InvalidConfig:
        """The error that something at this place is wrong."""
        return InvalidConfig(message, source=self.source, line=self.line, column=self.column, hint=hint)


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    mark: Mark
    plain: bool = True
    """Whether it stands without quotes, so that it may be read as a flag, a number or nothing."""

    @property
    def is_nothing(self) -> bool:
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple["Node", ...]
    mark: Mark


@dataclass(frozen=True, slots=True)
class Section:
    entries: tuple[tuple[Scalar, "Node"], ...]
    mark: Mark


Node = Scalar | Listing | Section
_SOUND: Final[dict[tuple[str, str], Node]] = {}
"""Texts without a fault and what they say, which follows from nothing else: parsing YAML takes longest of all."""
_SOUND_MOST: Final = 16


def read_document(text: str, source: str, faults: Faults | None = None) -> Node:
    """The one document in `text`; an empty text is an empty section.

    Args:
        faults: takes what is wrong and does not keep the rest from being read: keys that are given twice, tags.

    Raises:
        InvalidConfig: no YAML, or of a kind that is not accepted; names source, line and column.
    """
    text = text.removeprefix("\ufeff")
    start = Mark(source, 1)
    if len(text) > MAX_CHARACTERS:
        raise start.fault(f"{len(text)} characters are more than a policy may have", f"at most {MAX_CHARACTERS}")
    if bad := _NON_PRINTABLE.search(text):
        before = text[: bad.start()]
        mark = Mark(source, before.count("\n") + 1, bad.start() - before.rfind("\n"))
        raise mark.fault(f"the character U+{ord(bad[0]):04X} cannot stand in YAML", "remove it")
    known = _SOUND.get((source, text))
    if known is not None:
        return known
    kept = Faults(source)
    document = _Builder(source, kept).build(text)
    if not kept:
        if len(_SOUND) >= _SOUND_MOST:
            _SOUND.clear()
        _SOUND[source, text] = document
    elif faults is None:
        kept.raise_all()
    else:
        faults.add_all(kept)
    return document


@dataclass(slots=True)
class _Frame:
    """A list or section while it is read."""

    mark: Mark
    anchor: str | None
    is_section: bool
    nodes: list[Node]
    first_count: int


class _Builder:
    def __init__(self, source: str, faults: Faults) -> None:
        self._source = source
        self._faults = faults
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._open: set[str] = set()
        self._count = 0
        self._root: Node | None = None

    def build(self, text: str) -> Node:
        try:
            for event in _events(text):
                self._take(event)
        except yaml.MarkedYAMLError as fault:
            raise self._broken(fault) from None
        return self._root if self._root is not None else Section((), Mark(self._source, 1))

    def _take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                if self._root is not None:
                    raise self._mark(event).fault("a second document in one file", "remove the line `---`")
            case yaml.AliasEvent():
                self._add(self._aliased(event))
            case yaml.ScalarEvent():
                self._refuse_tag(event, event.implicit[0] or event.implicit[1])
                self._grow(1, event)
                scalar = Scalar(event.value, self._mark(event), plain=event.style is None)
                self._remember(event.anchor, scalar, 1)
                self._add(scalar)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._refuse_tag(event, event.implicit)
                self._start(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case _:
                pass  # start and end of the stream and of the document

    def _start(self, event: Any) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise self._mark(event).fault(f"nested more than {MAX_DEPTH} levels deep", "a policy needs seven")
        self._grow(1, event)
        if event.anchor is not None:
            self._open.add(event.anchor)
        is_section = isinstance(event, yaml.MappingStartEvent)
        self._frames.append(_Frame(self._mark(event), event.anchor, is_section, [], self._count))

    def _end(self) -> None:
        frame = self._frames.pop()
        node: Node
        if frame.is_section:
            node = Section(tuple(_entries(frame.nodes, self._faults)), frame.mark)
        else:
            node = Listing(tuple(frame.nodes), frame.mark)
        if frame.anchor is not None:
            self._open.discard(frame.anchor)
        self._remember(frame.anchor, node, self._count - frame.first_count + 1)
        self._add(node)

    def _remember(self, anchor: str | None, node: Node, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)

    def _aliased(self, event: Any) -> Node:
        if event.anchor in self._open:
            raise self._mark(event).fault(f"*{event.anchor} contains itself", "write it out")
        if event.anchor not in self._anchors:
            raise self._mark(event).fault(f"*{event.anchor} names nothing", f"give something the name &{event.anchor}")
        node, size = self._anchors[event.anchor]
        self._grow(size, event)
        return node

    def _grow(self, by: int, event: Any) -> None:
        self._count += by
        if self._count > MAX_NODES:
            raise self._mark(event).fault(
                f"more than {MAX_NODES} values, aliases counted as often as they are used", "use fewer aliases"
            )

    def _refuse_tag(self, event: Any, implicit: bool) -> None:
        if not implicit and event.tag not in (None, "!"):
            self._faults.add(self._mark(event).fault(f"the tag {event.tag} is not accepted", "remove it"))

    def _add(self, node: Node) -> None:
        if self._frames:
            self._frames[-1].nodes.append(node)
        else:
            self._root = node

    def _mark(self, event: Any) -> Mark:
        return Mark(self._source, event.start_mark.line + 1, event.start_mark.column + 1)

    def _broken(self, fault: yaml.MarkedYAMLError) -> InvalidConfig:
        at = fault.problem_mark or fault.context_mark
        mark = Mark(self._source, at.line + 1, at.column + 1) if at is not None else Mark(self._source, 1)
        problem = fault.problem or "cannot be read"
        if "\\t" in problem:
            return mark.fault("a tab where YAML wants spaces", "indent with spaces")
        hint = "put it in quotes" if "cannot start any token" in problem else "see the line above it too"
        return mark.fault(f"no valid YAML: {problem}", hint)


def _events(text: str) -> Iterator[Any]:
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_event():
            yield loader.get_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
    finally:
        loader.dispose()


def _entries(nodes: list[Node], faults: Faults) -> Iterator[tuple[Scalar, Node]]:
    seen: dict[str, Mark] = {}
    for key, value in zip(nodes[::2], nodes[1::2], strict=True):
        if not isinstance(key, Scalar):
            faults.add(key.mark.fault("a key has to be a name", "put it in quotes if it begins with a bracket"))
        elif key.text in seen:
            first = f"the first one is at line {seen[key.text].line}"
            faults.add(key.mark.fault(f"the key {key.text!r} is given twice", first))
        else:
            seen[key.text] = key.mark
            yield key, value


def kind_of(node: Node) -> str:
    """What a node is, in words for a message."""
    match node:
        case Listing():
            return "a list"
        case Section():
            return "a section"
        case Scalar() if node.is_nothing:
            return "nothing"
        case Scalar():
            return repr(node.text if len(node.text) <= 60 else node.text[:57] + "...")
