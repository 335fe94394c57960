"""Look at what lies beneath a root: the content of a file, the names in a directory, what a path is, what a glob finds.

Everything starts from what `ground` found and judged. The kind is looked at first; only then is a file opened, through
the descriptor, so that a fifo does not hold us up and a device is not touched.
"""

import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum

from ringfence.dataclass import dataclass
from ringfence.errors import PathAccessDenied, PathTraversalError
from ringfence.workspace.faults import require_directory, require_file, too_large, translating
from ringfence.workspace.names import Asked, PathText, join, split
from ringfence.workspace.root_handle import RootHandle, reopened
from ringfence.workspace.walking import Walk

READ_LIMIT_BYTES = 64 * 1024 * 1024
"""A file is read into memory whole; more than this is seldom meant for an agent."""
LIST_LIMIT_ENTRIES = 100_000
"""A directory is listed into memory whole, and the agent decides how much is in it."""
GLOB_LIMIT_ENTRIES = 1_000_000
"""What a glob looks at; a scan of that many takes seconds."""

_CHUNK_BYTES = 1024 * 1024


class NodeType(Enum):
    """What a directory entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory. Links are shown as links; their targets are not looked at."""

    name: str
    kind: NodeType
    size_bytes: int
    mode: int
    modified_seconds: float


def read(ground: RootHandle, path: PathText, limit_bytes: int) -> bytes:
    asked = ground.ask(path)
    with translating(asked), ground.opened(asked) as found:
        require_file(asked, found.status)
        if found.status.st_nlink > 1 and not ground.allow_hard_links:
            raise PathAccessDenied(
                asked.text,
                "has a second name (hard link), which may lie outside",
                rule="hard links",
                hint="copy the file, or allow hard links",
            )
        if found.status.st_size > limit_bytes:
            raise too_large(asked, limit_bytes)
        with reopened(found.descriptor, os.O_RDONLY) as opened:
            content = b"".join(chunks_of(opened, limit_bytes + 1))
    if len(content) > limit_bytes:
        raise too_large(asked, limit_bytes)
    return content


def entries(ground: RootHandle, path: PathText, limit_entries: int) -> tuple[DirectoryEntry, ...]:
    asked = ground.ask(path)
    found_entries: list[DirectoryEntry] = []
    with translating(asked), ground.opened(asked) as found:
        require_directory(asked, found.status)
        with reopened(found.descriptor, os.O_RDONLY | os.O_DIRECTORY) as opened, os.scandir(opened) as scan:
            for item in scan:
                if len(found_entries) >= limit_entries:
                    raise _too_many(asked, limit_entries)
                if ground.rule_against(join(found.place, os.fsencode(item.name))) is not None:
                    continue
                with suppress(FileNotFoundError):
                    found_entries.append(_entry(item.name, item.stat(follow_symlinks=False)))
    return tuple(sorted(found_entries, key=lambda entry: entry.name))


def status(ground: RootHandle, path: PathText) -> DirectoryEntry:
    asked = ground.ask(path)
    with translating(asked), ground.opened(asked, os.O_NOFOLLOW) as found:
        return _entry(os.fsdecode(os.path.basename(found.place) or b"."), found.status)


def glob(ground: RootHandle, pattern: PathText, limit_entries: int) -> tuple[str, ...]:
    """The paths, relative to the root, that match; links are matched and not entered."""
    asked = ground.ask(pattern)
    segments = split(asked.relative)
    if b".." in segments:
        raise PathTraversalError(asked.text, "climbs by `..`", hint="write a pattern that goes down only")
    with translating(asked), ground.opened(Asked(asked.text, b"."), os.O_DIRECTORY) as top:
        with reopened(top.descriptor, os.O_RDONLY | os.O_DIRECTORY) as opened:
            walk = Walk(opened, limit_entries)
            found = tuple(sorted(_matches(ground, walk, _Segments(segments))))
        if walk.is_cut:
            raise _too_many(asked, limit_entries)
    return found


def chunks_of(descriptor: int, limit_bytes: int) -> Iterator[bytes]:
    """What can be read from a descriptor, at most so much of it."""
    left = limit_bytes
    while left > 0:
        chunk = os.read(descriptor, min(left, _CHUNK_BYTES))
        if not chunk:
            return
        yield chunk
        left -= len(chunk)


class _Segments:
    """A glob, matched name by name: a state is the set of segments that may come next."""

    def __init__(self, segments: tuple[bytes, ...]) -> None:
        self._patterns = [
            None if segment == b"**" else re.compile(fnmatch.translate(os.fsdecode(segment))) for segment in segments
        ]
        self.begin = self._closure({0})

    def after(self, state: frozenset[int], name: str) -> frozenset[int]:
        following: set[int] = set()
        for index in state:
            if index == len(self._patterns):
                continue
            pattern = self._patterns[index]
            if pattern is None:
                following.add(index)
            elif pattern.match(name):
                following.add(index + 1)
        return self._closure(following)

    def is_whole(self, state: frozenset[int]) -> bool:
        return len(self._patterns) in state

    def _closure(self, state: set[int]) -> frozenset[int]:
        """`**` stands for nothing, too."""
        reached = set(state)
        for index in sorted(state):
            while index < len(self._patterns) and self._patterns[index] is None:
                index += 1
                reached.add(index)
        return frozenset(reached)


def _matches(ground: RootHandle, walk: Walk, segments: _Segments) -> Iterator[str]:
    states = {b"": segments.begin}
    for level in walk:
        here = states.pop(level.path)
        enter: set[bytes] = set()
        for entry in level.entries:
            name = os.fsencode(entry.name)
            path = join(level.path, name)
            state = segments.after(here, entry.name)
            if not state or ground.rule_against(path) is not None:
                continue
            if segments.is_whole(state):
                yield os.fsdecode(path)
            if entry.is_dir(follow_symlinks=False):
                states[path] = state
                enter.add(name)
        level.below = [name for name in level.below if name in enter]


def _kind(mode: int) -> NodeType:
    if stat.S_ISREG(mode):
        return NodeType.FILE
    if stat.S_ISDIR(mode):
        return NodeType.DIRECTORY
    return NodeType.LINK if stat.S_ISLNK(mode) else NodeType.OTHER


def _entry(name: str, status: os.stat_result) -> DirectoryEntry:
    mode = status.st_mode
    return DirectoryEntry(name, _kind(mode), status.st_size, stat.S_IMODE(mode), status.st_mtime)


def _too_many(asked: Asked, limit_entries: int) -> PathAccessDenied:
    return PathAccessDenied(
        asked.text,
        f"holds more than {limit_entries} entries",
        rule="limit_entries",
        hint="raise limit_entries, or ask for less",
    )
