"""What was done in a shadow, as values: one `Change` for each name that is not as the host has it."""

from enum import StrEnum

from ringfence.dataclass import dataclass


class NodeKind(StrEnum):
    """What something is: a file, a directory, a link."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    SPECIAL = "special"
    """A fifo, a socket or a device; never committed."""


class ChangeKind(StrEnum):
    """What became of a path in a shadow."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True)
class Node:
    """One name in a tree, as far as a commit carries it over."""

    kind: NodeKind
    mode: int
    """The permission bits, set-uid and its like included; a commit drops those."""
    size_bytes: int = 0
    target: str = ""
    """Where a link leads."""

    @property
    def is_directory(self) -> bool:
        return self.kind is NodeKind.DIRECTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Names are as the file system has them, undecodable bytes as surrogates: make them visible to show them."""

    kind: ChangeKind
    path: str
    """Relative to the top of the project."""
    old: Node | None
    """On the host; None if there is nothing."""
    new: Node | None
    """In the shadow; None if it is gone."""
    source: str = ""
    """Where it was before, if it was renamed."""
    is_content: bool = False
    """Whether a file's bytes differ, and not the mode alone."""
    is_binary: bool = False
    began_on_host: bool = False
    """Whether the shadow's entry is a copy of one of the host's that was changed, and not made anew."""
    refused: str = ""
    """Why it is never committed; empty if nothing in the change itself speaks against it."""
    stamp: int = 0
    """When the shadow's entry was last changed, by the kernel's clock: two looks at the same work are equal."""

    @property
    def is_type_change(self) -> bool:
        return self.old is not None and self.new is not None and self.old.kind is not self.new.kind

    @property
    def is_mode_change(self) -> bool:
        kinds = (NodeKind.FILE, NodeKind.DIRECTORY)
        if self.old is None or self.new is None or self.is_type_change or self.new.kind not in kinds:
            return False
        return self.old.mode != self.new.mode


@dataclass(frozen=True, slots=True)
class CommitRefusal:
    """One path that was not committed, or cannot be."""

    path: str
    why: str
    rule: str
    allow_by: str = ""
    """What would allow it; empty if nothing does."""

    def __str__(self) -> str:
        tail = f"; {self.allow_by}" if self.allow_by else ""
        return f"{self.path!r}: {self.why} [rule: {self.rule}]{tail}"


@dataclass(frozen=True, slots=True)
class Hunk:
    """A stretch of a file that differs, with some lines around it. Line numbers start at 0."""

    old_start: int
    new_start: int
    lines: tuple[bytes, ...]
    """Each with ` `, `-` or `+` in front, and with the line's own end."""

    @property
    def old_lines(self) -> int:
        return sum(not line.startswith(b"+") for line in self.lines)

    @property
    def new_lines(self) -> int:
        return sum(not line.startswith(b"-") for line in self.lines)


@dataclass(frozen=True, slots=True)
class FileHunks:
    """The hunks of one changed text file, and a mark of the two contents that they were made from."""

    path: str
    mark: str
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, slots=True)
class HunkChoice:
    """Some hunks of a file, by number, as somebody saw them."""

    path: str
    mark: str
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a diff is meant: paths with everything below them, and single hunks. By default everything."""

    paths: tuple[str, ...] | None = None
    """None for all; a renamed file is meant by its old and by its new name."""
    hunks: tuple[HunkChoice, ...] = ()
    """Files of which only these hunks are meant, whatever `paths` says about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a commit did. With conflicts it did nothing at all."""

    applied: tuple[Change, ...] = ()
    merged: tuple[str, ...] = ()
    """Those of `applied` that were merged with what the host had changed."""
    refused: tuple[CommitRefusal, ...] = ()
    """Left out by a rule; the rest was applied."""
    conflicts: tuple[CommitRefusal, ...] = ()
    """The host changed the same; nothing was applied."""

    @property
    def is_done(self) -> bool:
        return not self.conflicts


class RecoveryKind(StrEnum):
    """What became of a commit that was interrupted."""

    FINISHED = "finished"
    UNDONE = "undone"
    STUCK = "stuck"
    """Neither was possible; the journal is kept, and `left` says what stands in the way."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A commit that was interrupted, and what became of it."""

    shadow_id: str
    kind: RecoveryKind
    paths: tuple[str, ...]
    """What it was about."""
    left: tuple[str, ...] = ()
    """Paths that the host has changed since the interruption: these stay as the host has them."""
